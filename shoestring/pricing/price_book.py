"""The price book: parsed once, at the door, and distrusted there.

A row that a person wrote and that says nothing (a field missing, a price that is no number) is an error of the file; in somebody
else's list it is set aside. A row that says something nobody would sell at is set aside with a sentence, and the rest is used.

Of the rows that price a pool, the one that says most wins: the pool's own name, then its zone, then its region, then neither. A list
that prices zones of a pool that may be in any of them prices it at the dearest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from shoestring.config.tariffs import Tariffs
from shoestring.config.world import CommittedHours, PriceBook
from shoestring.core.errors import WorldError
from shoestring.core.record import record_bytes
from shoestring.core.types import Market, Pool, Quote, RejectedPrice
from shoestring.pricing.catalogues import Catalogue
from shoestring.pricing.price_list import CatalogueFile, Commitment, PriceList, discounted_price
from shoestring.pricing.rows import PriceRow, parse_rows
from shoestring.pricing.validation import MachineSize, regional_outliers, spot_error, validate_rows


@dataclass(frozen=True, slots=True)
class PriceListing:
    """A file of prices as it was read, with the lists that it names: parsed, and not doubted yet."""

    rows: tuple[PriceRow, ...]
    terms: PriceList
    catalogues: tuple[Catalogue, ...] = ()

    @property
    def bytes(self) -> bytes:
        """All that it says, for a digest."""
        return record_bytes(self.terms) + b"".join(catalogue.text.encode() for catalogue in self.catalogues)


def read_listing(file: PriceList, opened: Callable[[CatalogueFile], Catalogue]) -> PriceListing:
    """The rows of a file, and its lists as `opened` gives them. Raises WorldError: a row is malformed, a list cannot be read."""
    terms = PriceList.model_validate({name: getattr(file, name) for name in PriceList.model_fields})
    return PriceListing(
        parse_rows(file.prices, file.rates), terms, tuple(opened(catalogue) for catalogue in file.catalogues)
    )


def build_price_book(listing: PriceListing, pools: Sequence[Pool], tariffs: Tariffs, today: date) -> PriceBook:
    """A listing as the book of these pools. Raises WorldError: a row names a pool that is not there, or a list is none."""
    names = sorted(pool.name for pool in pools)
    for number, row in enumerate(listing.rows, 1):
        if row.pool and row.pool not in names:
            raise WorldError(
                f"price row {number} ({row.pool}): there is no pool called {row.pool!r}; there is: {', '.join(names)}"
            )
    for each in listing.price_list.commitments:
        if each.pool and each.pool not in names:
            raise WorldError(
                f"commitment {each.name}: there is no pool called {each.pool!r}; there is: {', '.join(names)}"
            )
    return validated_book(listing, pools, tariffs, today)


def validated_book(listing: PriceListing, pools: Sequence[Pool], tariffs: Tariffs, today: date) -> PriceBook:
    """One quote a pool and market, sorted; what cannot be believed of these machines in quarantine. Raises WorldError."""
    by_name = {pool.name: pool for pool in pools}
    found, doubted = _rows_for_pools(listing, pools)
    gone = [row for row in listing.rows if row.pool and row.pool not in by_name]
    doubted += [RejectedPrice(row=row.description, reason=f"there is no pool called {row.pool} now") for row in gone]
    kept, unbelieved = validate_rows(found, lambda row: _machine_size(row, by_name, pools), listing.price_list.most_days, today)
    quotes = []
    for pool in pools:
        of_pool, beside = _select_rows(pool, [row for row in kept if applies_to(row, pool)])
        quotes += [_quote(pool, row, listing.price_list) for row in of_pool]
        unbelieved += [each for each in beside if each not in unbelieved]
    unnamed = tariffs.assumed_routes(tariffs.route_end(pool.provider, pool.region) for pool in pools)
    doubted += [RejectedPrice(row=f"moving bytes {route}", reason=why) for route, why in unnamed.items()]
    committed, unsure = _committed(listing.price_list.commitments, pools, quotes, today)
    ordered = tuple(sorted(quotes, key=lambda quote: (quote.pool, quote.market)))
    return PriceBook(ordered, (*doubted, *unbelieved, *unsure), tariffs, committed)


def _committed(
    commitments: Sequence[Commitment], pools: Sequence[Pool], quotes: Sequence[Quote], today: date
) -> tuple[tuple[CommittedHours, ...], list[RejectedPrice]]:
    """What is paid for already of each pool and market, by one commitment at most; and why others are not used."""
    quoted = {(quote.pool, quote.market) for quote in quotes}
    found: dict[tuple[str, Market], CommittedHours] = {}
    doubted = []
    for each in sorted(commitments, key=lambda each: each.name):
        covered = [pool for pool in pools if each.covers(pool)]
        if not covered:
            why = f"it covers none of the pools that there are: {each.pool or each.machine}"
            doubted.append(RejectedPrice(row=f"commitment {each.name}", reason=why))
        for pool in covered:
            place = (pool.name, each.market)
            why = each.doubt(pool, place in quoted, today)
            if place in found:
                why = (
                    why
                    or f"{found[place].name} covers it already: declare one commitment with the hours of both"
                )
            if why:
                doubted.append(RejectedPrice(row=f"commitment {each.name}, {pool.name} {each.market}", reason=why))
            else:
                month = f"{today:%Y-%m}"
                found[place] = CommittedHours(
                    name=each.name,
                    pool=pool.name,
                    market=each.market,
                    month=month,
                    max_hours=each.hours_per_month,
                )
    return tuple(found[place] for place in sorted(found)), doubted


def current_price(listing: PriceListing, pool: Pool, market: Market, today: date) -> Decimal | None:
    """What a listing asks for a pool whose machine is not known, before discounts: what cannot be true of any machine is not believed."""
    found, _ = _rows_for_pools(listing, [pool])
    kept, _ = validate_rows(found, lambda row: MachineSize(None, None), listing.price_list.most_days, today)
    best = next((row for row in _select_rows(pool, kept)[0] if row.market is market), None)
    return best.usd_per_hour if best else None


def _rows_for_pools(listing: PriceListing, pools: Sequence[Pool]) -> tuple[list[PriceRow], list[RejectedPrice]]:
    """All rows that speak of one of these pools, and those of their machines that cannot be read."""
    machines = {pool.machine.lower() for pool in pools if pool.machine}
    rows, doubted = list(listing.rows), []
    for catalogue in listing.catalogues:
        found, bad = catalogue.read(listing.price_list.rates, lambda machine: machine.lower() in machines)
        odd = regional_outliers(found)
        rows += [row for index, row in enumerate(found) if index not in odd]
        doubted += bad
        doubted += [
            RejectedPrice(row=found[index].said, reason=why)
            for index, why in odd.items()
            if any(applies_to(found[index], pool) for pool in pools)
        ]
    return [row for row in rows if any(applies_to(row, pool) for pool in pools)], doubted


def applies_to(row: PriceRow, pool: Pool) -> bool:
    """Does the row speak of this pool?"""
    if row.pool:
        return row.pool == pool.name
    same = bool(pool.machine) and row.machine.lower() == pool.machine.lower()
    sold = not row.provider or not pool.provider or row.provider.lower() == pool.provider.lower()
    return (
        same
        and sold
        and row.region in ("", pool.region)
        and (not row.zone or not pool.zone or row.zone == pool.zone)
    )


def _machine_size(row: PriceRow, by_name: Mapping[str, Pool], pools: Sequence[Pool]) -> MachineSize:
    """A pool of ours is known; it may be a share of its machine, or declare less than the machine has, so a list says more of that."""
    if row.pool:
        pool = by_name[row.pool]
        return MachineSize(pool.cores, pool.gpu_count)
    pool = next(pool for pool in pools if applies_to(row, pool))
    return MachineSize(row.cores or pool.cores, pool.gpu_count)


def _select_rows(pool: Pool, rows: Sequence[PriceRow]) -> tuple[list[PriceRow], list[RejectedPrice]]:
    """The row of each market that says most of the pool; and the spot rows that are not below the pool's on-demand price."""
    on_demand = _most_specific(pool, [row for row in rows if row.market is Market.ON_DEMAND])
    found, doubted = [on_demand] if on_demand else [], []
    for market in (Market.SPOT, Market.RESERVED):
        of_market = []
        for row in rows:
            why = spot_error(row, on_demand.usd_per_hour) if on_demand and row.market is Market.SPOT else ""
            if row.market is market and why:
                doubted.append(RejectedPrice(row=row.description, reason=why))
            elif row.market is market:
                of_market.append(row)
        best = _most_specific(pool, of_market)
        found += [best] if best else []
    return found, doubted


def _most_specific(pool: Pool, rows: Sequence[PriceRow]) -> PriceRow | None:
    """What says most; of equals the newest, and of zones that the pool may be in, the dearest."""

    def rank(row: PriceRow) -> tuple[object, ...]:
        says = (
            4
            if row.pool
            else 3
            if row.zone and pool.zone
            else 2
            if row.region and not row.zone
            else 1
            if row.zone
            else 0
        )
        return (says, bool(row.provider), row.usd_per_hour if says == 1 else 0, row.as_of, row.usd_per_hour)

    return max(rows, key=rank, default=None)


def _quote(pool: Pool, row: PriceRow, terms: PriceList) -> Quote:
    price = discounted_price(row, pool.name, terms.discounts)
    return Quote(
        pool=pool.name,
        market=row.market,
        usd_per_hour=price,
        list_usd_per_hour=None if price == row.usd_per_hour else row.usd_per_hour,
        as_of=row.as_of,
        source=row.source,
    )
