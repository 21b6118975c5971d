"""The price book: parsed once, at the door, and distrusted there.

A row that says nothing (a field missing, a price that is no number) is an error of the file. A row that says something nobody
would sell at is set aside with a sentence, and the rest of the book is used.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from shoestring.errors import WorldError
from shoestring.model import Market, Pool, Quarantined, Quote
from shoestring.money import usd
from shoestring.seams import PriceBook
from shoestring.tariffs import Tariffs

FIELDS = ("pool", "market", "usd_per_hour", "as_of", "source")

# Catalogs write 700.0 for "unknown" beside a TPU machine of 44 cores at 2.70. The dearest list prices of 2026 are about
# $14 for a GPU-hour and $0.15 for a core-hour; several times that is no price.
BELIEVABLE_USD_PER_CORE_HOUR = Decimal("2.50")
BELIEVABLE_USD_PER_GPU_HOUR = Decimal("100")


def parse_book(rows: Sequence[Mapping[str, Any]], pools: Sequence[Pool], tariffs: Tariffs) -> PriceBook:
    """Price rows (pool, market, usd_per_hour, as_of, source) of these pools as a book.

    Raises:
        WorldError: a row is malformed or names a pool that is not there.
    """
    quotes, names = parse_rows(rows), sorted(pool.name for pool in pools)
    for number, quote in enumerate(quotes, 1):
        if quote.pool not in names:
            raise WorldError(f"price row {number} ({quote.pool}): there is no pool called {quote.pool!r}; there is: {', '.join(names)}")
    return believed(quotes, pools, tariffs)


def parse_rows(rows: Sequence[Mapping[str, Any]]) -> tuple[Quote, ...]:
    """Price rows as quotes that nobody has doubted yet. Raises WorldError: a row is malformed."""
    return tuple(_parse(number, row) for number, row in enumerate(rows, 1))


def believed(quotes: Sequence[Quote], pools: Sequence[Pool], tariffs: Tariffs) -> PriceBook:
    """One quote a pool and market, the newest, sorted; what cannot be believed of these machines in quarantine."""
    by_name = {pool.name: pool for pool in pools}
    kept, quarantined = [], []
    for quote, why in zip(quotes, _doubts(quotes, by_name), strict=True):
        if why:
            quarantined.append(
                Quarantined(row=f"{quote.pool} {quote.market} ${quote.usd_per_hour} ({quote.as_of}, {quote.source})", why=why)
            )
        else:
            kept.append(quote)
    newest = {(quote.pool, quote.market): quote for quote in sorted(kept, key=lambda quote: (quote.as_of, quote.source))}
    return PriceBook(tuple(newest[key] for key in sorted(newest)), tuple(quarantined), tariffs)


def _parse(number: int, row: Mapping[str, Any]) -> Quote:
    place = f"price row {number} ({row.get('pool', 'no pool')})"
    if missing := [field for field in FIELDS if row.get(field) in (None, "")]:
        raise WorldError(f"{place}: no {', '.join(missing)}; a row has {', '.join(FIELDS)}")
    if unknown := sorted(set(row) - set(FIELDS)):
        raise WorldError(f"{place}: unknown field {', '.join(map(str, unknown))}; a row has {', '.join(FIELDS)}")
    try:
        market = Market(row["market"])
    except ValueError:
        raise WorldError(f"{place}: {row['market']!r} is not a market; there is: {', '.join(Market)}") from None
    return Quote(
        pool=str(row["pool"]),
        market=market,
        usd_per_hour=_price(place, row["usd_per_hour"]),
        as_of=_day(place, row["as_of"]),
        source=str(row["source"]),
    )


def _price(place: str, value: object) -> Decimal:
    try:
        return usd(value)
    except ValueError as error:
        raise WorldError(f"{place}: usd_per_hour: {error}") from None


def _day(place: str, value: object) -> date:
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, date):
        return value
    try:
        return date.fromisoformat(str(value))
    except ValueError:
        raise WorldError(f"{place}: as_of: {value!r} is not a day: write it like 2026-07-30") from None


def _doubts(quotes: Sequence[Quote], pools: Mapping[str, Pool]) -> list[str]:
    """Why each quote is not believed; empty when it is."""
    prices: dict[tuple[str, Market], set[Decimal]] = defaultdict(set)
    for quote in quotes:
        prices[quote.pool, quote.market].add(quote.usd_per_hour)
    doubts = [_doubt(quote, pools.get(quote.pool), prices[quote.pool, quote.market]) for quote in quotes]
    on_demand = {
        quote.pool: quote.usd_per_hour for quote, why in zip(quotes, doubts, strict=True) if quote.market is Market.ON_DEMAND and not why
    }
    for index, quote in enumerate(quotes):
        ceiling_usd = on_demand.get(quote.pool)
        if quote.market is Market.SPOT and not doubts[index] and ceiling_usd is not None and quote.usd_per_hour >= ceiling_usd:
            doubts[index] = f"spot at ${quote.usd_per_hour} an hour is not below on-demand at ${ceiling_usd}"
    return doubts


def _doubt(quote: Quote, pool: Pool | None, same_offer_usd: set[Decimal]) -> str:
    price = quote.usd_per_hour
    if pool is None:
        return f"there is no pool called {quote.pool} now"
    if price <= 0:
        return f"${price} an hour is not a price: nobody gives {quote.pool} away"
    if len(same_offer_usd) > 1:
        return f"rows for {quote.pool} {quote.market} disagree: {', '.join(f'${each}' for each in sorted(same_offer_usd))}; keep one"
    ceiling_usd = pool.cores * BELIEVABLE_USD_PER_CORE_HOUR + pool.gpu_count * BELIEVABLE_USD_PER_GPU_HOUR
    if price > ceiling_usd:
        return f"${price} an hour is a placeholder, not a price: {pool.cores} cores and {pool.gpu_count} GPUs cost less than ${ceiling_usd}"
    return ""
