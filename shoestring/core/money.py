"""Money: `Decimal` to six places in the interfaces, whole micro-dollars in arrays and in the ledger, never a
float.
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from shoestring.core.text import DECIMAL_NUMBER

MICRO = Decimal("0.000001")
# In micro-dollars this amount, and the sum of thousands of such amounts, fits into 64 bits.
MAX_DIGITS = 9
MAX_USD = 10**MAX_DIGITS
MOST_USD = Decimal(MAX_USD - 1)


def usd(value: object) -> Decimal:
    """Parse an amount of dollars, rounded up to the micro-dollar.

    A float is refused: it cannot represent a tenth of a cent exactly.

    Raises:
        ValueError: not a finite decimal number, or a float.
    """
    if isinstance(value, (float, bool)):
        raise ValueError(
            f"money must be a string or a Decimal, not {value!r}: write it in quotes, like '0.003'"
        )
    if isinstance(value, (int, Decimal)):
        amount = Decimal(value)
    elif re.fullmatch(DECIMAL_NUMBER, text := str(value).strip()):
        amount = Decimal(text)
    else:
        raise ValueError(f"{value!r} is not an amount of dollars: write it like '0.003'")
    if not amount.is_finite():
        raise ValueError(f"{value!r} is not an amount of dollars: it must be finite")
    # Arithmetic on a number of a million digits overflows, so its digits are counted first.
    if amount and amount.adjusted() >= MAX_DIGITS:
        raise ValueError(f"{value!r} is more than the ledger's maximum of ${MAX_USD:,}")
    return amount.quantize(MICRO, rounding=ROUND_CEILING)


def budget(text: str) -> Decimal:
    """Parse a cap that a person wrote, rounded down: rounding up would allow more than the person did.

    Raises:
        ValueError: not an amount above zero.
    """
    try:
        amount_usd = -usd(f"-{text.strip()}")
    except ValueError:
        raise ValueError(
            f"{text!r} is not an amount of dollars below ${MAX_USD:,}: write it like 0.003"
        ) from None
    if amount_usd <= 0:
        raise ValueError(f"${amount_usd} is not a budget: it must be above 0")
    return amount_usd


def capped_usd(amount_usd: Decimal) -> Decimal:
    """Return an amount rounded up to the micro-dollar, at most MOST_USD: no budget pays for that."""
    return usd(min(amount_usd, MOST_USD))


def microusd(amount_usd: Decimal) -> int:
    """Return an amount in dollars as whole micro-dollars, rounded up."""
    return int(amount_usd.scaleb(6).to_integral_value(rounding=ROUND_CEILING))


def from_microusd(amount_microusd: int) -> Decimal:
    """Return whole micro-dollars as an amount in dollars."""
    return Decimal(int(amount_microusd)).scaleb(-6)


Usd = Annotated[
    Decimal,
    BeforeValidator(usd),
    PlainSerializer(lambda amount: format(amount, "f"), return_type=str),
    WithJsonSchema(
        {"type": "string", "pattern": r"^-?\d+(\.\d{1,6})?$", "description": "dollars, as a decimal string"}
    ),
]
