"""The price settings of a world file: prices, catalogues, discounts, commitments, exchange rates, and how old
a price may be.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from decimal import ROUND_CEILING, Decimal
from fnmatch import fnmatch
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from shoestring.core.money import MICRO
from shoestring.core.record import Record
from shoestring.core.types import Market, Pool
from shoestring.pricing.rows import ExchangeRate, PriceRow

DEFAULT_CATALOGUE = "default"
COMMITMENT_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
CATALOGUE_DAYS = {Market.SPOT: 92, Market.ON_DEMAND: 366, Market.RESERVED: 366}
"""Default maximum age of a catalogue's row, in days. Spot prices change by the month, list prices by the
year.
"""


class CatalogueFile(Record):
    """A price list of another provider. Rows in Shoestring's format name date and source; for other formats
    they go here.
    """

    file: str = Field(
        min_length=1, description=f"path from the world file; {DEFAULT_CATALOGUE}: the list of the package"
    )
    provider: str = Field("", description="of all rows that do not give it")
    as_of: date | None = Field(None, description="date of all rows that do not give it")
    source: str = Field("", description="of all rows that do not give it; empty: the file's name")


def _file_from_name(value: Any) -> Any:
    return {"file": value} if isinstance(value, str) else value


class Discount(Record):
    """A discount off the list price.

    Names are patterns (`p5*`); an omitted name matches any. If several discounts apply, each is taken off the
    price that the one before left.
    """

    share: Decimal = Field(gt=0, lt=1, description="of the list price that is not paid: 0.2 is 20% off")
    provider: str = "*"
    region: str = "*"
    machine: str = "*"
    pool: str = "*"
    market: Market | None = None

    def applies(self, row: PriceRow, pool: str) -> bool:
        """Return whether the discount applies to a row that prices this pool."""
        pairs = (
            (row.provider, self.provider),
            (row.region, self.region),
            (row.machine, self.machine),
            (pool, self.pool),
        )
        matches = all(fnmatch(value.lower(), pattern.lower()) for value, pattern in pairs)
        return matches and self.market in (None, row.market)


MAX_HOURS_PER_MONTH = 744_000_000
"""A million machines in a month of 31 days."""


class Commitment(Record):
    """Prepaid machine-hours of each month (UTC), from reservations or savings plans.

    The hours are free until they are used up; then the price of the market applies. Shoestring does not see
    hours that others use, so declare only the hours that are for these runs.
    """

    name: str = Field(
        pattern=COMMITMENT_PATTERN,
        description="its use is counted under this name; a new name starts at zero",
    )
    pool: str = ""
    machine: str = Field("", description="instead of pool: the machine of a price list")
    provider: str = ""
    region: str = ""
    market: Market = Field(Market.ON_DEMAND, description="whose price applies after the hours are used up")
    hours_per_month: float = Field(
        gt=0,
        le=MAX_HOURS_PER_MONTH,
        description="of whole machines: two machines reserved all month are 1460",
    )
    from_day: date | None = None
    until_day: date | None = Field(None, description="the last day")
    source: str = Field(min_length=1)

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if bool(self.pool) == bool(self.machine):
            raise ValueError(
                f"commitment {self.name}: name a pool, or a machine with its provider and region"
            )
        if self.from_day and self.until_day and self.until_day < self.from_day:
            raise ValueError(
                f"commitment {self.name}: it ends on {self.until_day}, before it begins on {self.from_day}"
            )
        return self

    def covers(self, pool: Pool) -> bool:
        """Return whether the commitment is for this pool."""
        if self.pool:
            return self.pool == pool.name
        same_machine = bool(pool.machine) and self.machine.lower() == pool.machine.lower()
        same_provider = self.provider.lower() in ("", pool.provider.lower())
        return same_machine and same_provider and self.region in ("", pool.region)

    def inactive_reason(self, pool: Pool, has_quote: bool, today: date) -> str:
        """Return why the commitment is not used for a pool that it covers; an empty string if it is used."""
        if self.from_day and today < self.from_day:
            return f"it begins on {self.from_day}"
        if self.until_day and today > self.until_day:
            return f"it ended on {self.until_day}: the {self.market} price applies"
        if not has_quote:
            return (
                f"no {self.market} price of {pool.name} was accepted, "
                "so the price after the hours are used up is unknown"
            )
        return ""


class PriceList(Record):
    """The price settings of a world file."""

    prices: tuple[dict[str, Any], ...] = Field(
        (),
        description="rows of pool, market, usd_per_hour (on a cluster: of a whole node), as_of, source; "
        "instead of pool, a provider's machine, region and zone; an impossible price is rejected, "
        "with the reason",
    )
    catalogues: tuple[Annotated[CatalogueFile, BeforeValidator(_file_from_name)], ...] = Field(
        (), description="price lists, CSV or YAML; an impossible price is rejected, with the reason"
    )
    discounts: tuple[Discount, ...] = ()
    commitments: tuple[Commitment, ...] = ()
    rates: dict[str, ExchangeRate] = Field(
        {}, description="currency code -> dollars for one unit of it, with date and source"
    )
    max_age_days: dict[Market, int] = Field(
        {},
        description="market -> age in days above which rows are rejected; default for catalogues: "
        + ", ".join(f"{market} {days}" for market, days in CATALOGUE_DAYS.items()),
    )

    @field_validator("rates", mode="before")
    @classmethod
    def _names_currencies_in_capitals(cls, rates: Any) -> Any:
        """Return the rates by code as rows are read: in capitals. Refuse a code given twice, and dollars."""
        if not isinstance(rates, dict):
            return rates
        codes = [str(name).strip().upper() for name in rates]
        if doubled := sorted({code for code in codes if codes.count(code) > 1}):
            raise ValueError(f"rates named twice: {', '.join(doubled)}; keep one of each")
        if {"", "USD"} & {*codes}:
            raise ValueError("a rate is of a currency other than USD, by its code, such as EUR")
        return dict(zip(codes, rates.values(), strict=True))

    @model_validator(mode="after")
    def _has_unique_commitments(self) -> Self:
        names = [each.name for each in self.commitments]
        if duplicates := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"commitments named twice: {', '.join(duplicates)}")
        return self

    def max_days(self, row: PriceRow) -> int | None:
        """Return how old the row may be, in days; None for any age.

        By default, a price that a person gave a pool may have any age: keeping it current is up to that
        person.
        """
        return self.max_age_days.get(row.market, None if row.pool else CATALOGUE_DAYS[row.market])


def discounted_price(row: PriceRow, pool: str, discounts: Iterable[Discount]) -> Decimal:
    """Return the row's price for this pool after discounts, rounded up to the micro-dollar."""
    price = row.usd_per_hour
    for discount in discounts:
        if discount.applies(row, pool):
            price *= 1 - discount.share
    return price.quantize(MICRO, rounding=ROUND_CEILING)
