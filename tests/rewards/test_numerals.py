from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewards.maths import lines, numerals


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1,234", 1234), (r"10,\!000", 10000), (r"1\,000", 1000), ("7{,}425{,}000", 7425000), ("1,000.99",
        "1000.99"),
        (r"\frac12", "1/2"), (r"\frac1{72}", "1/72"), (r"-1\frac{1}{2}", "-3/2"), ("1 1/4", "5/4"), ("3/4",
        "3/4"),
        (r"3 \times 10^{-4}", "3/10000"), ("2.5E-3", "1/400"), (r"0.\overline{3}", "1/3"), ("5.", 5),
        (".75", "3/4"),
        ("**72**", 72), ("$17$", 17), (r"185\\", 185), ("+5", 5),
    ],
)  # fmt: skip
def test_numerals_are_exact(text: str, value: int | str) -> None:
    assert numerals.read(text) == (Fraction(value), "")


@pytest.mark.parametrize(
    "text", ["1,8", "12,34", "1,0000", "1/0", "12*4", "", "-", ".", "--5", "0,123", "1e999999999"]
)
def test_what_is_no_numeral(text: str) -> None:
    assert numerals.read(text) is None


@pytest.mark.parametrize(
    ("line", "value", "unit"),
    [
        ("72 clips, altogether.", 72, "clip, altogether."),
        ("$1,234.50", Fraction(2469, 2), "dollar"),
        ("50%", 50, "percent"),
        ("4 million", 4_000_000, ""),
        ("x = 18", 18, ""),
        ("15 cm^2", 15, "centimetre^2"),
        ("45 miles per hour", 45, "mile/hour"),
        (r"45 \text{ mph}", 45, "mile/hour"),
    ],
)
def test_a_number_in_a_line(line: str, value: int | Fraction, unit: str) -> None:
    numeral = lines.read(line)
    assert numeral is not None
    assert numeral.value == value
    assert numeral.unit.replace(",", "").replace(".", "") == unit.replace(",", "").replace(".", "")


@pytest.mark.parametrize(
    "line", ["5!", "18 or 20", "5x", "12*4", "72 R 2", "about 5", "5 and a half", "5 half", "17 minus", "5 5"]
)
def test_a_line_with_a_second_number_or_a_hedge_has_none(line: str) -> None:
    assert lines.read(line) is None


@settings(max_examples=150, deadline=None)
@given(st.fractions(min_value=-(10**9), max_value=10**9, max_denominator=10**6))
def test_every_way_to_write_a_fraction_is_the_fraction(value: Fraction) -> None:
    sign, top, bottom = "-" if value < 0 else "", abs(value.numerator), value.denominator
    whole, rest = divmod(top, bottom)
    written = [f"{sign}{top}/{bottom}", rf"{sign}\frac{{{top}}}{{{bottom}}}"]
    if rest and whole:
        written += [f"{sign}{whole} {rest}/{bottom}", rf"{sign}{whole}\frac{{{rest}}}{{{bottom}}}"]
    if bottom == 1:
        written += [f"{sign}{top:,}", f"{sign}{top}.00", f"{sign}${top}"]
    for text in written:
        numeral = numerals.read(text)
        assert numeral is not None and numeral.value == value, text
