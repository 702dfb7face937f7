"""Units of measure, currencies and counted nouns: what may follow a number without changing its value."""

from __future__ import annotations

import re

_FAMILIES = """
metre: m meter meters metres
centimetre: cm centimeter centimeters centimetres
millimetre: mm millimeter millimeters millimetres
kilometre: km kilometer kilometers kilometres
inch: in inches
foot: ft feet
yard: yd yards
mile: mi miles
gram: g grams gramme grammes
kilogram: kg kgs kilo kilos kilograms
milligram: mg milligrams
pound: lb lbs pounds
ounce: oz ounces
ton: tons tonne tonnes
litre: l L liter liters litres
millilitre: ml mL milliliter milliliters millilitres
gallon: gal gallons
second: s sec secs seconds
minute: min mins minutes
hour: h hr hrs hours
day: days
week: weeks
month: months
year: yr yrs years
degree: degrees deg
radian: rad radians
celsius: degreeC °C
fahrenheit: degreeF °F
percent: percents pct percentage
dollar: dollars usd buck bucks
cent: cents
euro: euros eur
pence: penny pennies
newton: N newtons
joule: J joules
watt: W watts
hertz: Hz
kelvin: K
mile/hour: mph
kilometre/hour: kph kmh
unit: units
"""
_NAMES = {
    word: line.partition(":")[0]
    for line in _FAMILIES.strip().splitlines()
    for word in [line.partition(":")[0], *line.partition(":")[2].split()]
}
_SCALES = {
    "hundred": 100,
    "thousand": 1000,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
    "dozen": 12,
}
_POWERS = {"square": 2, "squared": 2, "sq": 2, "cubic": 3, "cubed": 3}
# After a number these words change or hedge the value, so they are no unit.
_NOT_UNITS = frozenset(
    [
        "or", "and", "nor", "not", "no", "but", "if", "unless", "either", "maybe", "possibly", "perhaps",
        "plus", "minus", "times", "over", "divided", "multiplied", "by", "half", "halves", "quarter",
        "third", "to", "than", "until", "through", "between", "more", "less", "greater", "fewer", "mod",
        "modulo", "remainder", "r", "zero", "one", "two", "three", "four", "five", "six", "seven", "eight",
        "nine", "ten", "eleven", "twelve", "twenty", "thirty", "forty", "fifty", "i", "pi", "e", "infinity",
        "x", "y", "z"
    ]
)  # fmt: skip
_WRAPPED = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mbox|rm|operatorname)[ ]?\{([^{}]*)\}")
_SPACING = re.compile(r"\\[,;:! ]|~|\\q?quad\b|[\u00a0\u2009\u202f]")
_DEGREE = re.compile(r"\^[ ]?(?:\{[ ]?\\circ[ ]?\}|\\circ\b)|\\degree\b")
_PIECE = re.compile(r"[A-Za-z]+|\^[ ]?\{?-?[123]\}?|[/.,;'!*()-]|[ ]+|\\cdot")


def named(word: str) -> str | None:
    """Return the standard name of a unit word or sign in the table, else None. `M` is not `m`."""
    found = _NAMES.get(word)
    return found if found or len(word) < 3 else _NAMES.get(word.lower())


def scale(word: str) -> int | None:
    """Return what a number word such as `million` multiplies by, else None."""
    return _SCALES.get(word.lower().removesuffix("s"))


def read(text: str) -> tuple[str, int] | None:
    """Return the standard form of the unit words in `text` and the factor of its number words.

    `" million square feet"` gives `("foot^2", 1000000)`. None if `text` holds anything that is not plainly a
    unit or noun: digits, operators, single letters outside the table, hedges.
    """
    text = _WRAPPED.sub(r" \1 ", _DEGREE.sub(" degree ", text))
    text = _SPACING.sub(" ", text)
    phrase = _Phrase()
    position = 0
    while position < len(text):
        piece = _PIECE.match(text, position)
        if piece is None or not phrase.take(piece.group()):
            return None
        position = piece.end()
    if phrase.power or phrase.joiner:
        return None
    return "".join(phrase.words).strip(), phrase.factor


class _Phrase:
    """The unit words read so far, and what the next word will be joined and raised by."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.factor = 1
        self.power = ""
        self.joiner = ""

    def take(self, token: str) -> bool:
        """Take one word or sign; False if it does not belong to a unit."""
        if token[0].isalpha():
            return self._word(token)
        if token[0] == "^":
            return self._raise("^" + token.strip("^ {}"))
        if token == "/":
            self.joiner = "/"
        return bool(self.words) or token not in ("*", "-", "!")

    def _word(self, word: str) -> bool:
        lower = word.lower()
        scaled = None if self.words else scale(word)
        if scaled is not None:
            self.factor *= scaled
        elif lower in _POWERS and self.words and lower.endswith("d"):
            return self._raise(f"^{_POWERS[lower]}")
        elif lower in _POWERS:
            self.power = f"^{_POWERS[lower]}"
        elif lower == "per":
            self.joiner = "/"
        else:
            return self._unit(word)
        return True

    def _unit(self, word: str) -> bool:
        name = _noun(word)
        if name is None:
            return False
        self.words.append((self.joiner or " ") + name + self.power)
        self.power = self.joiner = ""
        return True

    def _raise(self, power: str) -> bool:
        if not self.words or "^" in self.words[-1]:
            return False
        self.words[-1] += power
        return True


def _noun(word: str) -> str | None:
    """Return the standard name of a unit, or the singular of any other noun; None if it can be neither."""
    known = named(word)
    if known is not None:
        return known
    lower = word.lower()
    if len(word) < 2 or lower in _NOT_UNITS:
        return None
    return lower[:-1] if lower.endswith("s") and not lower.endswith("ss") and len(lower) > 3 else lower
