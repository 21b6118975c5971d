"""How this buyer buys: the catalogues that are read, discounts on what they list, exchange rates, and how old a price may be."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from decimal import ROUND_CEILING, Decimal
from fnmatch import fnmatch
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from shoestring.model import Market, Noun
from shoestring.money import MICRO
from shoestring.pricing.rows import PriceRow, Rate

DEFAULT_CATALOGUE = "default"
CATALOGUE_DAYS = {Market.SPOT: 92, Market.ON_DEMAND: 366, Market.RESERVED: 366}
"""How old a row of a catalogue may be, where nothing is declared. Spot prices move by the month, list prices by the year."""


class CatalogueFile(Noun):
    """A price list by somebody else. Columns of ours name date and source in each row; those of others have to be told here."""

    file: str = Field(min_length=1, description=f"its path from the world file; {DEFAULT_CATALOGUE}: the list that comes with the package")
    provider: str = Field("", description="of all its rows, where they do not say")
    as_of: date | None = Field(None, description="of all its rows, where they do not say")
    source: str = Field("", description="of all its rows, where they do not say; else the file's name")


def _by_name(value: Any) -> Any:
    return {"file": value} if isinstance(value, str) else value


class Discount(Noun):
    """A share off the list price. Names are patterns (`p5*`); what is left out is any. All that fit count, one after the other."""

    share: Decimal = Field(gt=0, lt=1, description="of the list price that is not paid: 0.2 is 20% off")
    provider: str = "*"
    region: str = "*"
    machine: str = "*"
    pool: str = "*"
    market: Market | None = None

    def fits(self, row: PriceRow, pool: str) -> bool:
        pairs = ((row.provider, self.provider), (row.region, self.region), (row.machine, self.machine), (pool, self.pool))
        named = all(fnmatch(value.lower(), pattern.lower()) for value, pattern in pairs)
        return named and self.market in (None, row.market)


class PriceList(Noun):
    """What a person writes of prices."""

    prices: tuple[dict[str, Any], ...] = Field(
        (),
        description="rows of pool, market, usd_per_hour (on a cluster: of a whole node), as_of, source; instead of pool, a provider's "
        "machine, region and zone; a row that cannot be true is set aside, with the reason",
    )
    catalogues: tuple[Annotated[CatalogueFile, BeforeValidator(_by_name)], ...] = Field(
        (), description="price lists, CSV or YAML; a row that cannot be true is set aside, with the reason"
    )
    discounts: tuple[Discount, ...] = ()
    rates: dict[str, Rate] = Field({}, description="dollars for one unit of another currency, by its code, with date and source")
    max_age_days: dict[Market, int] = Field(
        {},
        description="rows older than this are set aside, by market; of catalogues' rows, without it: "
        + ", ".join(f"{market} {days}" for market, days in CATALOGUE_DAYS.items()),
    )

    def most_days(self, row: PriceRow) -> int | None:
        """How old the row may be; None: as old as it likes. A price that a person gave a pool is theirs to renew."""
        return self.max_age_days.get(row.market, None if row.pool else CATALOGUE_DAYS[row.market])


def discounted(row: PriceRow, pool: str, discounts: Iterable[Discount]) -> Decimal:
    """The row's price for this pool, rounded up to the micro-dollar."""
    price = row.usd_per_hour
    for discount in discounts:
        if discount.fits(row, pool):
            price *= 1 - discount.share
    return price.quantize(MICRO, rounding=ROUND_CEILING)
