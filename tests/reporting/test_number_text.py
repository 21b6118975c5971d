"""Formatted numbers are short and exact to their last digit."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoestring.core.money import from_microusd
from shoestring.reporting import number_text


@given(st.integers(-(10**15), 10**15))
def test_dollars_are_within_half_their_last_digit_and_only_zero_is_zero(micro: int) -> None:
    amount = from_microusd(micro)
    text = number_text.dollars(amount)
    number = Decimal(text.replace("$", "").replace(",", ""))
    places = len(text.partition(".")[2])
    assert abs(number - amount) <= Decimal(1).scaleb(-places) / 2
    assert (number == 0) == (amount == 0)


@given(st.floats(0, 1e9))
def test_a_duration_has_at_most_two_units(seconds: float) -> None:
    unit_s = {"s": 1, "min": 60, "h": 3600, "d": 86_400}
    text = number_text.duration(seconds).split()
    if text[0] != "<0.01":
        parsed_s = sum(
            float(number) * unit_s[unit] for number, unit in zip(text[::2], text[1::2], strict=True)
        )
        assert parsed_s == pytest.approx(seconds, rel=0.02, abs=0.005)


@given(st.integers(0, 10**12))
def test_a_short_count_is_short_and_right_to_three_digits(number: int) -> None:
    text = number_text.short_count(number)
    factor = {"k": 10**3, "M": 10**6, "G": 10**9}.get(text[-1], 1)
    assert len(text) <= 6
    assert float(text.rstrip("kMG")) * factor == pytest.approx(number, rel=0.006)


@pytest.mark.parametrize(
    ("text", "formatted"),
    [
        ("$0.001234", number_text.dollars(Decimal("0.001234"))),
        ("$1,234.57", number_text.dollars(Decimal("1234.567890"))),
        ("$0", number_text.dollars(Decimal(0))),
        ("$0.0416/h", number_text.hourly(Decimal("0.0416"))),
        ("$32.77/h", number_text.hourly(Decimal("32.770000"))),
        ("12.3 s", number_text.duration(12.34)),
        ("71.3 ms", number_text.short_duration(0.07131)),
        ("1 ms", number_text.short_duration(0.0009996)),
        ("812 us", number_text.short_duration(0.000812)),
        ("1.00 s", number_text.short_duration(0.9996)),
        ("1 h 0 min", number_text.duration(3599.7)),
        ("4 d 3 h", number_text.duration(4 * 86_400 + 3 * 3600)),
        ("96,412 rows/s", number_text.rate(964_120, 10)),
        ("", number_text.rate(0, 10)),
        ("12.3 MB", number_text.size(12_345_678)),
        ("71.6%", number_text.percent(0.716)),
        ("<0.1%", number_text.percent(0.0002)),
        ("0.4413", number_text.score(0.44131)),
    ],
)
def test_numbers_are_formatted_for_people(text: str, formatted: str) -> None:
    assert formatted == text
