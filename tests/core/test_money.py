"""A budget never exceeds the amount that a person wrote."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoestring.core.money import MAX_USD, MICRO, budget, usd


@given(st.decimals(MICRO, MAX_USD - 1, places=9))
def test_a_budget_is_rounded_down_and_a_cost_up(amount: Decimal) -> None:
    assert budget(f" {amount:f} ") <= amount <= usd(amount)
    assert usd(amount) - budget(str(amount)) in (0, MICRO)


@pytest.mark.parametrize(
    "text", ["", "abc", "$5", "5,000", "nan", "inf", "1e400", "0", "-1", "0.0000009", "--5"]
)
def test_a_budget_must_be_an_amount_above_zero(text: str) -> None:
    with pytest.raises(ValueError, match="is not a"):
        budget(text)
