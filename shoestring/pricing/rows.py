"""The rows of price lists, and how they are parsed. A row that cannot be parsed gives one sentence with the
reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from pydantic import Field

from shoestring.core.errors import WorldError
from shoestring.core.money import Usd, usd
from shoestring.core.record import Record
from shoestring.core.types import Market

LOCATION_FIELDS = ("pool", "provider", "region", "zone", "machine")
MACHINE_FIELDS = ("gpu", "gpu_count", "cores", "memory_gb")
PRICE_FIELDS = ("usd_per_hour", "per_hour", "currency")
FIELDS = (*LOCATION_FIELDS, *MACHINE_FIELDS, "market", *PRICE_FIELDS, "as_of", "source")
REQUIRED_FIELDS = "pool (or machine), market, usd_per_hour (or per_hour and currency), as_of, source"


class ExchangeRate(Record):
    """The value of one unit of a currency in dollars, and its date."""

    usd: Usd = Field(gt=0)
    as_of: date
    source: str = Field(min_length=1)


class PriceRow(Record):
    """The price of a machine-hour. A row names a pool of the world, or a provider's machine and prices every
    pool of it.

    `gpu_count` and `cores` are None where the list does not give them. `as_of` of a price in another currency
    is the older date of price and exchange rate; `listed_on` and `rate_on` are these two.
    """

    pool: str = ""
    provider: str = ""
    region: str = ""
    zone: str = ""
    machine: str = ""
    gpu: str = ""
    gpu_count: int | None = Field(None, ge=0)
    cores: float | None = Field(None, gt=0)
    memory_gb: float | None = Field(None, gt=0)
    market: Market
    usd_per_hour: Usd
    as_of: date
    source: str
    listed_on: date | None = Field(None, description="null: `as_of`")
    rate_on: date | None = Field(None, description="null: the price is in dollars")

    @property
    def listed(self) -> date:
        """The date of the price, whatever the exchange rate's is."""
        return self.listed_on or self.as_of

    @property
    def name(self) -> str:
        """The pool or the machine that the row prices, for a person."""
        parts = (self.provider, self.zone or self.region, self.machine)
        return self.pool or " ".join(part for part in parts if part)

    @property
    def key(self) -> tuple[str, ...]:
        """The key of the row: two rows with the same key price the same thing."""
        return (self.pool, self.provider.lower(), self.region, self.zone, self.machine.lower(), self.market)

    @property
    def description(self) -> str:
        return f"{self.name} {self.market} ${self.usd_per_hour} ({self.as_of}, {self.source})"


class RowError(ValueError):
    """A row cannot be parsed; holds the reason. The reader of the file turns it into its own error."""


def parse_rows(
    rows: Sequence[Mapping[str, Any]], rates: Mapping[str, ExchangeRate] | None = None
) -> tuple[PriceRow, ...]:
    """Parse the price rows of a world file, without validating the prices.

    Raises:
        WorldError: a row is malformed. Names its number.
    """
    parsed = []
    for number, row in enumerate(rows, 1):
        try:
            parsed.append(parse_row(row, rates or {}))
        except RowError as error:
            name = row.get("pool") or row.get("machine") or "no pool"
            raise WorldError(f"price row {number} ({name}): {error}") from None
    return tuple(parsed)


def parse_row(row: Mapping[str, Any], rates: Mapping[str, ExchangeRate]) -> PriceRow:
    """Parse one row. Raises RowError if a field is missing, unknown or malformed."""
    if unknown := sorted(set(map(str, row)) - set(FIELDS)):
        optional = ", ".join((*LOCATION_FIELDS[1:4], *MACHINE_FIELDS))
        raise RowError(
            f"unknown field {', '.join(unknown)}; a row has {REQUIRED_FIELDS}, and may have {optional}"
        )
    missing = [field for field in ("market", "as_of", "source") if _empty(row.get(field))]
    missing += ["usd_per_hour"] if _empty(row.get("usd_per_hour")) and _empty(row.get("per_hour")) else []
    missing += ["pool"] if _empty(row.get("pool")) and _empty(row.get("machine")) else []
    if missing:
        raise RowError(f"missing {', '.join(missing)}; a row has {REQUIRED_FIELDS}")
    price, rate = _price(row, rates)
    listed_on, source = _day(row["as_of"]), str(row["source"])
    if rate:
        source = f"{source}, at ${rate.usd} per {row['currency']} ({rate.source})"
    return PriceRow(
        **{field: str(row.get(field) or "").strip() for field in (*LOCATION_FIELDS, "gpu")},
        gpu_count=_number(row, "gpu_count", int),
        cores=_number(row, "cores", float),
        memory_gb=_number(row, "memory_gb", float),
        market=_market(row["market"]),
        usd_per_hour=price,
        as_of=min(listed_on, rate.as_of) if rate else listed_on,
        source=source,
        listed_on=listed_on if rate else None,
        rate_on=rate.as_of if rate else None,
    )


def _empty(value: object) -> bool:
    return value is None or not str(value).strip()


def _market(value: object) -> Market:
    try:
        return Market(str(value))
    except ValueError:
        raise RowError(f"{value!r} is not a market; known: {', '.join(Market)}") from None


def _price(row: Mapping[str, Any], rates: Mapping[str, ExchangeRate]) -> tuple[Decimal, ExchangeRate | None]:
    """Return the dollars an hour, and the exchange rate that converted them, if any."""
    currency = str(row.get("currency") or "USD").strip().upper()
    field = "per_hour" if _empty(row.get("usd_per_hour")) else "usd_per_hour"
    if field == "usd_per_hour" and (currency != "USD" or not _empty(row.get("per_hour"))):
        raise RowError("usd_per_hour is in dollars: write per_hour and currency, or usd_per_hour alone")
    rate = rates.get(currency)
    try:
        price = usd(row[field])
        converted = price if rate is None else usd(price * rate.usd)
    except ValueError as error:
        raise RowError(f"{field}: {error}") from None
    if rate is None and currency != "USD":
        declared = f"known: {', '.join(sorted(rates))}" if rates else "known: none"
        raise RowError(
            f"no exchange rate for {currency!r} ({declared}): declare it in `rates`, with its date"
        )
    return converted, rate


def _number(row: Mapping[str, Any], field: str, kind: type[int] | type[float]) -> Any:
    """Return a non-negative number, or None if the field is empty. A float of 0 counts as empty."""
    value = row.get(field)
    if _empty(value):
        return None
    try:
        number = float(str(value))
        if not 0 <= number < 1e6 or (kind is int and number != int(number)):
            raise ValueError
    except ValueError:
        raise RowError(
            f"{field}: {value!r} is not {'a whole number' if kind is int else 'a number'}"
        ) from None
    return kind(number) if kind is int or number else None


def _day(value: object) -> date:
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, date):
        return value
    try:
        return date.fromisoformat(str(value).strip())
    except ValueError:
        raise RowError(f"as_of: {value!r} is not a date: write it like 2026-07-30") from None
