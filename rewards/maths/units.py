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
    "or and nor not no but if unless either maybe possibly perhaps plus minus times over divided multiplied by "
    "half halves quarter third to than until through between more less greater fewer mod modulo remainder r "
    "zero one two three four five six seven eight nine ten eleven twelve twenty thirty forty fifty "
    "i pi e infinity x y z".split()
)
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

    `" million square feet"` gives `("foot^2", 1000000)`. None if `text` holds anything that is not plainly a unit
    or noun: digits, operators, single letters outside the table, hedges.
    """
    text = _WRAPPED.sub(r" \1 ", _DEGREE.sub(" degree ", text))
    text = _SPACING.sub(" ", text)
    words: list[str] = []
    factor, power, position, joiner = 1, "", 0, ""
    while position < len(text):
        piece = _PIECE.match(text, position)
        if piece is None:
            return None
        position, token = piece.end(), piece.group()
        if token[0].isalpha():
            if scale(token) and not words:
                factor *= scale(token) or 1
            elif token.lower() in _POWERS and (not words or token.lower() not in ("squared", "cubed")):
                power = f"^{_POWERS[token.lower()]}"
            elif token.lower() in _POWERS:
                words[-1] += f"^{_POWERS[token.lower()]}"
            elif token.lower() == "per":
                joiner = "/"
            else:
                name = _noun(token)
                if name is None:
                    return None
                words.append(joiner + name + power)
                power = joiner = ""
        elif token[0] == "^":
            if not words or "^" in words[-1]:
                return None
            words[-1] += "^" + token.strip("^ {}")
        elif token == "/":
            joiner = "/"
        elif token in ("*", "-") and not words:
            return None
    if power or joiner:
        return None
    return "".join(word if word[0] == "/" or not at else " " + word for at, word in enumerate(words)), factor


def _noun(word: str) -> str | None:
    """Return the standard name of a unit, or the singular of any other noun; None if it can be neither."""
    known = named(word)
    if known is not None:
        return known
    lower = word.lower()
    if len(word) < 2 or lower in _NOT_UNITS:
        return None
    return lower[:-1] if lower.endswith("s") and not lower.endswith("ss") and len(lower) > 3 else lower
