"""How this buyer buys: the catalogues that are read, discounts on what they list, exchange rates, and how old a price may be."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from decimal import ROUND_CEILING, Decimal
from fnmatch import fnmatch
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, model_validator

from shoestring.core.money import MICRO
from shoestring.core.record import Record
from shoestring.core.types import Market, Pool
from shoestring.pricing.rows import ExchangeRate, PriceRow

DEFAULT_CATALOGUE = "default"
COMMITMENT_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
CATALOGUE_DAYS = {Market.SPOT: 92, Market.ON_DEMAND: 366, Market.RESERVED: 366}
"""How old a row of a catalogue may be, where nothing is declared. Spot prices move by the month, list prices by the year."""


class CatalogueFile(Record):
    """A price list by somebody else. Columns of ours name date and source in each row; those of others have to be told here."""

    file: str = Field(
        min_length=1,
        description=f"its path from the world file; {DEFAULT_CATALOGUE}: the list that comes with the package",
    )
    provider: str = Field("", description="of all its rows, where they do not say")
    as_of: date | None = Field(None, description="of all its rows, where they do not say")
    source: str = Field("", description="of all its rows, where they do not say; else the file's name")


def _file_from_name(value: Any) -> Any:
    return {"file": value} if isinstance(value, str) else value


class Discount(Record):
    """A share off the list price. Names are patterns (`p5*`); what is left out is any. All that fit count, one after the other."""

    share: Decimal = Field(gt=0, lt=1, description="of the list price that is not paid: 0.2 is 20% off")
    provider: str = "*"
    region: str = "*"
    machine: str = "*"
    pool: str = "*"
    market: Market | None = None

    def fits(self, row: PriceRow, pool: str) -> bool:
        pairs = (
            (row.provider, self.provider),
            (row.region, self.region),
            (row.machine, self.machine),
            (pool, self.pool),
        )
        named = all(fnmatch(value.lower(), pattern.lower()) for value, pattern in pairs)
        return named and self.market in (None, row.market)


class Commitment(Record):
    """Machine-hours that are paid for already, each month (UTC): reservations, savings plans. They are free until they are used up, then
    the market's own price holds. Hours that others use of it are not known: declare those that are for these runs."""

    name: str = Field(
        pattern=COMMITMENT_PATTERN, description="what its use is kept under; another name begins anew"
    )
    pool: str = ""
    machine: str = Field("", description="instead of pool: of a price list's row")
    provider: str = ""
    region: str = ""
    market: Market = Field(Market.ON_DEMAND, description="whose price holds when they are used up")
    hours_per_month: float = Field(
        gt=0, description="of whole machines: two that are reserved all month are 1460"
    )
    from_day: date | None = None
    until_day: date | None = Field(None, description="the last day")
    source: str = Field(min_length=1)

    @model_validator(mode="after")
    def _names_something(self) -> Self:
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
        if self.pool:
            return self.pool == pool.name
        same = bool(pool.machine) and self.machine.lower() == pool.machine.lower()
        return (
            same and self.provider.lower() in ("", pool.provider.lower()) and self.region in ("", pool.region)
        )

    def doubt(self, pool: Pool, quoted: bool, today: date) -> str:
        """Why nothing of it is free on a pool that it covers; empty: it is."""
        if self.from_day and today < self.from_day:
            return f"it begins on {self.from_day}"
        if self.until_day and today > self.until_day:
            return f"it ended on {self.until_day}: the {self.market} price holds"
        if not quoted:
            return f"no {self.market} price of {pool.name} is believed, so nobody knows what it costs when the hours are used up"
        return ""


class PriceList(Record):
    """What a person writes of prices."""

    prices: tuple[dict[str, Any], ...] = Field(
        (),
        description="rows of pool, market, usd_per_hour (on a cluster: of a whole node), as_of, source; instead of pool, a provider's "
        "machine, region and zone; a row that cannot be true is set aside, with the reason",
    )
    catalogues: tuple[Annotated[CatalogueFile, BeforeValidator(_file_from_name)], ...] = Field(
        (), description="price lists, CSV or YAML; a row that cannot be true is set aside, with the reason"
    )
    discounts: tuple[Discount, ...] = ()
    commitments: tuple[Commitment, ...] = ()
    rates: dict[str, ExchangeRate] = Field(
        {}, description="dollars for one unit of another currency, by its code, with date and source"
    )
    max_age_days: dict[Market, int] = Field(
        {},
        description="rows older than this are set aside, by market; of catalogues' rows, without it: "
        + ", ".join(f"{market} {days}" for market, days in CATALOGUE_DAYS.items()),
    )

    @model_validator(mode="after")
    def _committed_once(self) -> Self:
        names = [each.name for each in self.commitments]
        if doubled := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"commitments named twice: {', '.join(doubled)}")
        return self

    def most_days(self, row: PriceRow) -> int | None:
        """How old the row may be; None: as old as it likes. A price that a person gave a pool is theirs to renew."""
        return self.max_age_days.get(row.market, None if row.pool else CATALOGUE_DAYS[row.market])


def discounted_price(row: PriceRow, pool: str, discounts: Iterable[Discount]) -> Decimal:
    """The row's price for this pool, rounded up to the micro-dollar."""
    price = row.usd_per_hour
    for discount in discounts:
        if discount.fits(row, pool):
            price *= 1 - discount.share
    return price.quantize(MICRO, rounding=ROUND_CEILING)
