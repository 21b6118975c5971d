"""Builds the price book of a world: one accepted quote for each pool and market.

A row that a person wrote in the world file and that cannot be parsed is an error of the file. In a catalogue
such a row is rejected. A row with an impossible price is rejected with a sentence, and the other rows are
used.

Of the rows that price a pool, the most specific one counts: the pool's own name, then its zone, then its
region, then neither. If a list prices zones of a pool that may be in any of them, the most expensive zone
counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
from functools import cache

from shoestring.config.tariffs import Tariffs
from shoestring.config.world import CommittedHours, PriceBook
from shoestring.core.errors import WorldError
from shoestring.core.types import Market, Pool, Quote, RejectedPrice
from shoestring.pricing.catalogues import PriceListing, default_catalogue
from shoestring.pricing.price_list import Commitment, PriceList, discounted_price
from shoestring.pricing.rows import PriceRow
from shoestring.pricing.validation import (
    MachineSize,
    date_error,
    regional_outliers,
    spot_error,
    validate_rows,
)


def build_price_book(
    listing: PriceListing, pools: Sequence[Pool], tariffs: Tariffs, today: date
) -> PriceBook:
    """Return the price book of these pools.

    Raises:
        WorldError: a row or a commitment names a pool that does not exist, or a catalogue is not a price
            list.
    """
    names = sorted(pool.name for pool in pools)
    for number, row in enumerate(listing.rows, 1):
        if row.pool and row.pool not in names:
            raise WorldError(f"price row {number} ({row.pool}): {_no_pool(row.pool, names)}")
    for commitment in listing.price_list.commitments:
        if commitment.pool and commitment.pool not in names:
            raise WorldError(f"commitment {commitment.name}: {_no_pool(commitment.pool, names)}")
    return validated_book(listing, pools, tariffs, today)


def _no_pool(name: str, names: Sequence[str]) -> str:
    return f"there is no pool called {name!r}; known: {', '.join(names)}"


def validated_book(listing: PriceListing, pools: Sequence[Pool], tariffs: Tariffs, today: date) -> PriceBook:
    """Return one quote for each pool and market, sorted, and the rejected rows.

    A row that names an unknown pool is rejected: on a cluster, pools come and go.

    Raises:
        WorldError: a catalogue is not a price list.
    """
    by_name = {pool.name: pool for pool in pools}
    found, rejected = _rows_for_pools(listing, pools)
    for row in listing.rows:
        if row.pool and row.pool not in by_name:
            rejected.append(_rejected(row, f"there is no pool called {row.pool} any more"))
    max_days = listing.price_list.max_days
    accepted, invalid = validate_rows(found, lambda row: _machine_size(row, by_name, pools), max_days, today)
    quotes = []
    for pool in pools:
        selected, spot = _select_rows(pool, [row for row in accepted if applies_to(row, pool)])
        quotes += [_quote(pool, row, listing.price_list) for row in selected]
        invalid += [each for each in spot if each not in invalid]
    assumed = tariffs.assumed_routes(tariffs.route_end(pool.provider, pool.region) for pool in pools)
    rejected += [RejectedPrice(row=f"transfer {route}", reason=reason) for route, reason in assumed.items()]
    committed, unused = committed_hours(listing.price_list.commitments, pools, quotes, today)
    ordered = tuple(sorted(quotes, key=lambda quote: (quote.pool, quote.market)))
    return PriceBook(ordered, (*rejected, *invalid, *unused), tariffs, committed)


def committed_hours(
    commitments: Sequence[Commitment], pools: Sequence[Pool], quotes: Sequence[Quote], today: date
) -> tuple[tuple[CommittedHours, ...], list[RejectedPrice]]:
    """Return the prepaid hours of each pool and market, from at most one commitment, and why others are not
    used.
    """
    quoted = {(quote.pool, quote.market) for quote in quotes}
    found: dict[tuple[str, Market], CommittedHours] = {}
    rejected = []
    for each in sorted(commitments, key=lambda each: each.name):
        covered = [pool for pool in pools if each.covers(pool)]
        if not covered:
            reason = f"it covers none of the pools: {each.pool or each.machine}"
            rejected.append(RejectedPrice(row=f"commitment {each.name}", reason=reason))
        for pool in covered:
            target = (pool.name, each.market)
            reason = each.inactive_reason(pool, target in quoted, today)
            if not reason and target in found:
                reason = (
                    f"{found[target].name} already covers it: declare one commitment with the hours of both"
                )
            if reason:
                row = f"commitment {each.name}, {pool.name} {each.market}"
                rejected.append(RejectedPrice(row=row, reason=reason))
            else:
                found[target] = CommittedHours(
                    name=each.name,
                    pool=pool.name,
                    market=each.market,
                    month=f"{today:%Y-%m}",
                    max_hours=each.hours_per_month,
                )
    return tuple(found[target] for target in sorted(found)), rejected


def current_price(listing: PriceListing, pool: Pool, market: Market, today: date) -> Decimal | None:
    """Return the current price of a pool after discounts, or None.

    The size of the pool's machine may be unknown, so only prices that no machine can have are rejected.
    """
    accepted = _accepted(listing, _rows_for_pools(listing, [pool])[0], today)
    row = next((row for row in _select_rows(pool, accepted)[0] if row.market is market), None)
    return discounted_price(row, pool.name, listing.price_list.discounts) if row else None


def charged_price(
    listing: PriceListing, pool: Pool, market: Market, today: date, min_usd: Decimal
) -> Decimal | None:
    """Return the price of a pool after discounts that a running attempt pays, or None if none can be read.

    A spot price at or above on-demand is no reason to place a stage there, but it is paid. A row that takes
    the place of a rejected one counts only from `min_usd` an hour on: it may be of another place or time.
    """
    found = [row for row in _rows_for_pools(listing, [pool])[0] if row.market is market]
    accepted, max_days = _accepted(listing, found, today), listing.price_list.max_days
    row = _most_specific(pool, accepted)
    if row is None:
        return None
    level = _specificity(pool, row), row.as_of
    rejected = [
        each for each in found if each not in accepted and not date_error(each, max_days(each), today)
    ]
    replaces = any((_specificity(pool, each), each.as_of) >= level for each in rejected)
    price = discounted_price(row, pool.name, listing.price_list.discounts)
    return None if replaces and price < min_usd else price


def _accepted(listing: PriceListing, rows: Sequence[PriceRow], today: date) -> list[PriceRow]:
    return validate_rows(rows, lambda row: MachineSize(None, None), listing.price_list.max_days, today)[0]


def _rows_for_pools(
    listing: PriceListing, pools: Sequence[Pool]
) -> tuple[list[PriceRow], list[RejectedPrice]]:
    """Return all rows that price one of these pools, and the rows of their machines that are rejected."""
    machines = frozenset(pool.machine.lower() for pool in pools if pool.machine)
    rows, rejected = list(listing.rows), []
    for catalogue in listing.catalogues:
        found, malformed = catalogue.rows_of(machines, listing.price_list.rates)
        outliers = regional_outliers(found)
        rows += [row for index, row in enumerate(found) if index not in outliers]
        rejected += malformed
        rejected += [
            _rejected(found[index], reason)
            for index, reason in outliers.items()
            if any(applies_to(found[index], pool) for pool in pools)
        ]
    return [row for row in rows if any(applies_to(row, pool) for pool in pools)], rejected


def _rejected(row: PriceRow, reason: str) -> RejectedPrice:
    return RejectedPrice(row=row.description, reason=reason)


def applies_to(row: PriceRow, pool: Pool) -> bool:
    """Return whether the row prices this pool."""
    if row.pool:
        return row.pool == pool.name
    same_machine = bool(pool.machine) and row.machine.lower() == pool.machine.lower()
    same_provider = not row.provider or not pool.provider or row.provider.lower() == pool.provider.lower()
    same_zone = not row.zone or not pool.zone or row.zone == pool.zone
    return same_machine and same_provider and row.region in ("", pool.region) and same_zone


def _machine_size(row: PriceRow, by_name: Mapping[str, Pool], pools: Sequence[Pool]) -> MachineSize:
    """Return the size of the machine that a row prices.

    For a catalogue's row, the row's own number of cores counts if it is larger: a pool may be a share of its
    machine, or declare less than the machine has. A list cannot declare less than the pool that it prices.
    """
    pool = by_name[row.pool] if row.pool else next(pool for pool in pools if applies_to(row, pool))
    cores = pool.cores if row.pool else max(row.cores or 0, pool.cores)
    name = (pool.provider, pool.machine) if row.pool else (row.provider or pool.provider, row.machine)
    return MachineSize(cores, pool.gpu_count, lowest_known_usd(*name))


@cache
def _known_prices() -> dict[tuple[str, str], Decimal]:
    """Return the lowest price of each machine in the price list of the package, on any market."""
    lowest: dict[tuple[str, str], Decimal] = {}
    for row in default_catalogue().read({})[0]:
        name = row.provider.lower(), row.machine.lower()
        lowest[name] = min(row.usd_per_hour, lowest.get(name, row.usd_per_hour))
    return lowest


def lowest_known_usd(provider: str, machine: str) -> Decimal | None:
    """Return the lowest hourly price of a machine in the list of the package; None: it is not in it."""
    return _known_prices().get((provider.lower(), machine.lower()))


def _select_rows(pool: Pool, rows: Sequence[PriceRow]) -> tuple[list[PriceRow], list[RejectedPrice]]:
    """Return the most specific row of each market, and the spot rows that are not below the pool's on-demand
    price.
    """
    on_demand = _most_specific(pool, [row for row in rows if row.market is Market.ON_DEMAND])
    selected, rejected = [on_demand] if on_demand else [], []
    for market in (Market.SPOT, Market.RESERVED):
        of_market = []
        for row in rows:
            is_spot = row.market is Market.SPOT
            error = spot_error(row, on_demand.usd_per_hour) if on_demand and is_spot else ""
            if row.market is market and error:
                rejected.append(_rejected(row, error))
            elif row.market is market:
                of_market.append(row)
        best = _most_specific(pool, of_market)
        selected += [best] if best else []
    return selected, rejected


def _most_specific(pool: Pool, rows: Sequence[PriceRow]) -> PriceRow | None:
    """Return the most specific row; of equals the newest, and of zones that the pool may be in the most
    expensive.
    """

    def rank(row: PriceRow) -> tuple[object, ...]:
        level = _specificity(pool, row)
        return (level, bool(row.provider), row.usd_per_hour if level == 1 else 0, row.as_of, row.usd_per_hour)

    return max(rows, key=rank, default=None)


def _specificity(pool: Pool, row: PriceRow) -> int:
    """Return how specific the row is: 4 pool, 3 the pool's zone, 2 region, 1 a zone the pool may be in, 0
    neither.
    """
    if row.pool:
        return 4
    if row.zone:
        return 3 if pool.zone else 1
    return 2 if row.region else 0


def _quote(pool: Pool, row: PriceRow, price_list: PriceList) -> Quote:
    price = discounted_price(row, pool.name, price_list.discounts)
    return Quote(
        pool=pool.name,
        market=row.market,
        usd_per_hour=price,
        list_usd_per_hour=None if price == row.usd_per_hour else row.usd_per_hour,
        as_of=row.as_of,
        source=row.source,
    )
