"""One row of a price list, and how it is parsed: what cannot be read is said in one sentence, whoever then refuses or sets it aside."""

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
    """What one unit of a currency is worth, and when it was."""

    usd: Usd = Field(gt=0)
    as_of: date
    source: str = Field(min_length=1)


class PriceRow(Record):
    """What somebody asks for a machine-hour. A row names a pool of ours, or the provider's machine, which prices every pool that is one.

    `gpu_count`, `cores`: None where the list does not say. `as_of`: of a price in another currency, the older of price and rate.
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

    @property
    def name(self) -> str:
        """What is priced, for a person."""
        return self.pool or " ".join(
            part for part in (self.provider, self.zone or self.region, self.machine) if part
        )

    @property
    def key(self) -> tuple[str, ...]:
        """What is priced: two rows with one key speak of the same."""
        return (self.pool, self.provider.lower(), self.region, self.zone, self.machine.lower(), self.market)

    @property
    def said(self) -> str:
        return f"{self.name} {self.market} ${self.usd_per_hour} ({self.as_of}, {self.source})"


class RowError(ValueError):
    """A row that says nothing, with the sentence that says why. Renamed by whoever reads the file."""


def parse_rows(
    rows: Sequence[Mapping[str, Any]], rates: Mapping[str, ExchangeRate] | None = None
) -> tuple[PriceRow, ...]:
    """Price rows that a person wrote, which nobody has doubted yet. Raises WorldError: a row is malformed, by its number."""
    parsed = []
    for number, row in enumerate(rows, 1):
        try:
            parsed.append(parse_row(row, rates or {}))
        except RowError as bad:
            raise WorldError(
                f"price row {number} ({row.get('pool') or row.get('machine') or 'no pool'}): {bad}"
            ) from None
    return tuple(parsed)


def parse_row(row: Mapping[str, Any], rates: Mapping[str, ExchangeRate]) -> PriceRow:
    """One row. Raises BadRow: a field is missing, unknown or no such thing."""
    if unknown := sorted(set(map(str, row)) - set(FIELDS)):
        raise RowError(
            f"unknown field {', '.join(unknown)}; a row has {REQUIRED_FIELDS}, and may have {', '.join((*LOCATION_FIELDS[1:4], *MACHINE_FIELDS))}"
        )
    missing = [field for field in ("market", "as_of", "source") if _empty(row.get(field))]
    missing += ["usd_per_hour"] if _empty(row.get("usd_per_hour")) and _empty(row.get("per_hour")) else []
    missing += ["pool"] if _empty(row.get("pool")) and _empty(row.get("machine")) else []
    if missing:
        raise RowError(f"no {', '.join(missing)}; a row has {REQUIRED_FIELDS}")
    price, rated = _price(row, rates)
    as_of = _day(row["as_of"])
    return PriceRow(
        **{field: str(row.get(field) or "").strip() for field in (*LOCATION_FIELDS, "gpu")},
        gpu_count=_number(row, "gpu_count", int),
        cores=_number(row, "cores", float),
        memory_gb=_number(row, "memory_gb", float),
        market=_market(row["market"]),
        usd_per_hour=price,
        as_of=min(as_of, rated.as_of) if rated else as_of,
        source=f"{row['source']}, at ${rated.usd} a {row['currency']} ({rated.source})"
        if rated
        else str(row["source"]),
    )


def _empty(value: object) -> bool:
    return value is None or not str(value).strip()


def _market(value: object) -> Market:
    try:
        return Market(str(value))
    except ValueError:
        raise RowError(f"{value!r} is not a market; there is: {', '.join(Market)}") from None


def _price(row: Mapping[str, Any], rates: Mapping[str, ExchangeRate]) -> tuple[Decimal, ExchangeRate | None]:
    """Dollars an hour, and the rate that made them of another currency."""
    currency = str(row.get("currency") or "USD").strip()
    field = "per_hour" if _empty(row.get("usd_per_hour")) else "usd_per_hour"
    if field == "usd_per_hour" and (currency != "USD" or not _empty(row.get("per_hour"))):
        raise RowError("usd_per_hour is in dollars: write per_hour and currency, or usd_per_hour alone")
    try:
        price = usd(row[field])
    except ValueError as error:
        raise RowError(f"{field}: {error}") from None
    if currency == "USD":
        return price, None
    if currency not in rates:
        declared = f"there is: {', '.join(sorted(rates))}" if rates else "there is none"
        raise RowError(f"no exchange rate for {currency!r} ({declared}): declare it in `rates`, with its date")
    return usd(price * rates[currency].usd), rates[currency]


def _number(row: Mapping[str, Any], field: str, kind: type[int] | type[float]) -> Any:
    value = row.get(field)
    if _empty(value):
        return None
    try:
        number = float(str(value))
        if not 0 <= number < 1e6 or (kind is int and number != int(number)):
            raise ValueError
    except ValueError:
        raise RowError(f"{field}: {value!r} is not {'a whole number' if kind is int else 'a number'}") from None
    return kind(number) if kind is int or number else None


def _day(value: object) -> date:
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, date):
        return value
    try:
        return date.fromisoformat(str(value).strip())
    except ValueError:
        raise RowError(f"as_of: {value!r} is not a day: write it like 2026-07-30") from None
