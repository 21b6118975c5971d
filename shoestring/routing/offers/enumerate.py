"""Every offer for every remaining stage: stages x pools x markets x (format read, format written)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from itertools import chain, repeat
from operator import attrgetter, itemgetter, mul
from typing import Any

import numpy as np

from shoestring.config.tariffs import Tariffs, Volumes
from shoestring.core.record import Record
from shoestring.core.types import Market, MarketTerms, NodeCapacity, Pool
from shoestring.pricing.throughput import PoolArrays
from shoestring.routing.candidates import (
    MOST_MICRO,
    NONE,
    PPB,
    Cached,
    Candidates,
    Floats,
    Ints,
    Lies,
    RefusalCode,
    StageOffers,
    number_of,
    up,
)
from shoestring.routing.dag import FIRST_SOURCE, build_dag
from shoestring.routing.question import Question
from shoestring.routing.offers.factors import REASONS, Cost, Fleet, Input, coded, policed, stage_memory_gb
from shoestring.routing.policy.preferences import BY_POLICY, kind_of

WHERE = frozenset({"name", "node_pool", "startup_s", "region", "markets", "capacity"})
"""What a pool says of the place where it is. All else it says of its machines, and decides how long work takes on them."""

MACHINE = itemgetter(*sorted(set(Pool.model_fields) - WHERE))
NAME, PREEMPTIONS = attrgetter("name"), attrgetter("preemptions_per_hour")

MARKETS = tuple(sorted(Market))
MARKET_NUMBER = {id(market): number for number, market in enumerate(MARKETS)}
"""By identity: hashing a member of an enumeration is slow."""

MICRO_PER_USD = Decimal("1E6")


def candidates(question: Question) -> Candidates:
    """What every offer is made of. Its order is that of names, whatever the order asked in."""
    lies = tuple(
        (written, storage_class)
        for written in sorted(speed.format for speed in question.speeds)
        for storage_class in question.tariffs.all_storage_classes
    )
    fleet, shape = _fleet(question), build_dag(question.needs, question.upstream)
    left = {
        FIRST_SOURCE: Input(
            (number_of(lies, question.reads_format, question.reads_storage_class),),
            question.row_bytes,
            question.data_region,
        )
    }
    for place, each in enumerate(question.upstream):
        left[FIRST_SOURCE - 1 - place] = Input(
            (number_of(lies, each.format, each.storage_class),), each.row_bytes, question.tariffs.store_region
        )
    costs, offers, cached = list[Cost](), list[StageOffers](), dict[int, Cached]()
    written = [tuple(range(len(lies))) if need.writes_bytes_per_row else (NONE,) for need in question.needs]
    for stage, need in enumerate(question.needs):
        inputs = tuple(left[source] for source in shape.sources[stage]) or (
            Input((NONE,), 0, question.tariffs.store_region),
        )
        costs.append(Cost(question, need, fleet, inputs))
        if there := _cached(question, fleet, lies, stage, cached.get(stage - 1), costs[stage]):
            cached[stage], written[stage] = there, _beside(there, written[stage], lies)
        if need.writes_bytes_per_row:
            leaves = sorted({*written[stage], *([there.writes] if there else [])})
            left[stage] = Input(tuple(leaves), need.writes_bytes_per_row, question.tariffs.store_region)
    for stage, cost in enumerate(costs):
        earlier_gb: Volumes = {}
        for other in shape.not_after(stage):
            earlier_gb = costs[other].transferred_gb(written[other], earlier_gb)
        # By the time of a later stage there may be room again.
        offers.append(
            cost.offers(written[stage], earlier_gb, now=not stage).model_copy(
                update={"cached": cached.get(stage)}
            )
        )
    return Candidates(
        stages=tuple(need.stage for need in question.needs),
        pools=fleet.names,
        markets=fleet.markets,
        regions=fleet.regions,
        formats=tuple(written for written, _ in lies),
        tiers=tuple(storage_class for _, storage_class in lies) if question.tariffs.storage_classes else (),
        pool=fleet.pool,
        market=fleet.market,
        region=fleet.region,
        machine=fleet.machine,
        usd_per_hour_micro=fleet.price,
        startup_ms=fleet.startup_ms,
        preemptions_ppb=fleet.preemptions_ppb,
        free_ms=fleet.free_ms,
        offers=tuple(offers),
    )


def apply_policy_again(question: Question, candidates: Candidates) -> Candidates:
    """The same offers with the exclusions of this question's policy instead of another's. Prices stay, and so does a cached outcome."""
    by_name = {pool.name: pool for pool in question.pools}
    pools = [by_name[name] for name in candidates.pools]
    offers = []
    for need, before in zip(question.needs, candidates.offers, strict=True):
        workload_class = question.active_policy.workload_class(kind_of(need, stage_memory_gb(need, question.rows)))
        kept = policed(workload_class, pools, candidates.markets, candidates.pool, candidates.market)
        lasting = np.array(
            [*(NONE if each in BY_POLICY else REASONS.index(each) for each in before.exclusions), NONE]
        )[before.exclusion]
        reasons, exclusion = coded(np.where(lasting != NONE, lasting, kept))
        offers.append(before.model_copy(update={"exclusions": reasons, "exclusion": exclusion}))
    return candidates.model_copy(update={"offers": tuple(offers)})


def _columns(nouns: Iterable[Record], *fields: str) -> list[list[Any]]:
    """Fields of many nouns, each as a list, in one pass: they lie far apart in memory, and meeting them takes most of the time."""
    flat = list(chain.from_iterable(map(itemgetter(*fields), map(vars, nouns))))
    return [flat[place :: len(fields)] for place in range(len(fields))]


def _fleet(question: Question) -> Fleet:
    """Pools x the markets they declare or are quoted on, by name; arrays from here on."""
    pools = tuple(sorted(question.pools, key=NAME))
    names, places, startup_s, terms, rooms = _columns(pools, "name", "region", "startup_s", "markets", "capacity")
    markets, price, rate = _markets(question, names, terms)
    offered = ~np.isnan(rate)
    slots = np.flatnonzero(offered | (price > 0))
    pool, market = np.divmod(slots, max(len(markets), 1))
    regions, region = _regions(question.tariffs, pools, places)
    machines, machine = _machines(question, pools)
    no_terms, no_price = REASONS.index(RefusalCode.MARKET_NOT_DECLARED), REASONS.index(RefusalCode.NO_PRICE)
    return Fleet(
        pools=pools,
        names=tuple(names),
        markets=markets,
        regions=tuple(regions),
        machines=machines,
        kinds=PoolArrays.from_pools(machines),
        memory_gb=np.array([each.memory_gb for each in machines]),
        pool=pool,
        market=market,
        region=region[pool],
        machine=machine[pool],
        price=price[slots],
        startup_ms=up(np.array(startup_s, dtype=np.float64) * 1e3)[pool],
        preemptions_ppb=up(np.nan_to_num(rate[slots]) * PPB),
        free_ms=_free_ms(question, names, markets, pool, market),
        exclusion=np.where(~offered[slots], no_terms, np.where(price[slots] > 0, NONE, no_price)),
        shortage=_shortages(question, pools, rooms, markets, pool, market),
    )


def _markets(
    question: Question, names: list[str], terms: list[dict[Market, MarketTerms]]
) -> tuple[tuple[Market, ...], Ints, Floats]:
    """All markets; of each pool on each, micro-dollars an hour (0: no price), and preemptions an hour (NaN: it does not declare it)."""
    number = dict(zip(names, range(len(names)), strict=True))
    of_pool, on_market, usd_per_hour = _columns(question.quotes, "pool", "market", "usd_per_hour")
    quoted = np.fromiter(map(number.get, of_pool, repeat(NONE)), np.int64)
    quoted_on, declared_on = _numbers(on_market)[quoted != NONE], _numbers(chain.from_iterable(terms))
    met = np.flatnonzero(np.bincount(np.append(quoted_on, declared_on)))
    price: Ints = np.zeros(len(names) * len(met), dtype=np.int64)
    # Of six places, as all dollars are.
    micro = np.fromiter(map(int, map(mul, usd_per_hour, repeat(MICRO_PER_USD))), np.int64)
    price[quoted[quoted != NONE] * len(met) + np.searchsorted(met, quoted_on)] = micro[quoted != NONE]
    rate: Floats = np.full(len(price), np.nan)
    declared = np.repeat(np.arange(len(names)), np.fromiter(map(len, terms), np.int64))
    declared_rate = np.fromiter(map(PREEMPTIONS, chain.from_iterable(map(dict.values, terms))), np.float64)
    rate[declared * len(met) + np.searchsorted(met, declared_on)] = declared_rate
    return tuple(MARKETS[each] for each in met.tolist()), price, rate


def _numbers(markets: Iterable[Market]) -> Ints:
    """Places in MARKETS."""
    return np.fromiter(map(MARKET_NUMBER.__getitem__, map(id, markets)), np.int64)


def _regions(tariffs: Tariffs, pools: Sequence[Pool], said: list[str]) -> tuple[list[str], Ints]:
    """What pools' regions are called in routes, and which one is each pool's."""
    places = [tariffs.route_end(each.provider, each.region) for each in pools] if tariffs.store_provider else said
    regions = sorted(set(places))
    in_region = {name: place for place, name in enumerate(regions)}
    return regions, np.fromiter(map(in_region.__getitem__, places), np.int64)


def _free_ms(
    question: Question, names: Sequence[str], markets: Sequence[str], pool: Ints, market: Ints
) -> Ints:
    """By slot, for how long it is paid for; empty where nothing is."""
    left_ms = {
        (each.pool, each.market): min(each.left_ms, MOST_MICRO) for each in question.commitments if each.left_ms
    }
    if not left_ms:
        return np.zeros(0, dtype=np.int64)
    places = zip(pool.tolist(), market.tolist(), strict=True)
    return np.array(
        [left_ms.get((names[place], markets[column]), 0) for place, column in places], dtype=np.int64
    )


def _machines(question: Question, pools: Sequence[Pool]) -> tuple[tuple[Pool, ...], Ints]:
    """One pool of each kind of machine, and the kind of each pool. What receipts taught of a pool makes it a kind of its own."""
    taught = {each.pool for each in question.learned if each.pool}
    said: Iterable[object] = map(MACHINE, map(vars, pools))
    if taught:
        said = (
            (each, pool.name if pool.name in taught else "") for each, pool in zip(said, pools, strict=True)
        )
    kinds: dict[object, int] = {}
    kind = np.array([kinds.setdefault(each, len(kinds)) for each in said], dtype=np.int64)
    _, first = np.unique(kind, return_index=True)
    return tuple(pools[place] for place in first.tolist()), kind


def _is_full(room: NodeCapacity) -> bool:
    """Is there no room for a pod now, nor a node that could be added? A later one may find room there."""
    return not room.free_shares and room.nodes >= room.max_nodes


def _shortages(
    question: Question,
    pools: Sequence[Pool],
    rooms: Sequence[NodeCapacity | None],
    markets: Sequence[str],
    pool: Ints,
    market: Ints,
) -> Ints:
    """By slot: no room now, or a node pool that took no pod in time a moment ago; -1 where neither is known."""
    full = np.array([room is not None and _is_full(room) for room in rooms], dtype=np.bool_)[pool]
    short = np.where(full, REASONS.index(RefusalCode.NO_CAPACITY), NONE)
    for found in question.stockouts:
        if found.market in markets:
            out = np.array(
                [(each.node_pool or each.name) == found.node_pool for each in pools], dtype=np.bool_
            )
            short[out[pool] & (market == markets.index(found.market))] = REASONS.index(RefusalCode.STOCK_OUT)
    return short


def _beside(there: Cached, written: tuple[int, ...], lies: Lies) -> tuple[int, ...]:
    """Without other storage classes for the format that the result is there in: made anew it is the same bytes, which stay where they
    lie."""
    same = lies[there.writes][0] if there.writes >= 0 else None
    return tuple(
        number for number in written if number == there.writes or number < 0 or lies[number][0] is not same
    )


def _cached(
    question: Question, fleet: Fleet, lies: Lies, stage: int, before: Cached | None, cost: Cost
) -> Cached | None:
    """The outcome that is there already, on the priced slot with room where a pod's start is cheapest; None if there is none.

    Its start is all that such a pod takes: where a node has to be made for it, that is waited for and paid. A later stage's is found only
    where what it reads is cached, too (`before`): nothing else is ever cheaper there.
    """
    writes_data = question.needs[stage].writes_bytes_per_row > 0
    if stage:
        if before is None or stage > len(question.cached_later_stages):
            return None
        kept = question.cached_later_stages[stage - 1]
        writes = number_of(lies, kept.format if writes_data else None, kept.storage_class)
        return Cached(slot=before.slot, reads=before.writes, writes=writes)
    able = np.flatnonzero((fleet.exclusion == NONE) & (fleet.shortage == NONE))
    if not question.cached_outcome or not able.size:
        return None
    price = fleet.price[able].astype(np.float64)
    slot = int(able[np.lexsort((price, price * fleet.startup_ms[able]))[0]])
    writes = number_of(lies, question.cached_format if writes_data else None, question.cached_storage_class)
    return Cached(slot=slot, reads=next(iter(cost.ways)), writes=writes)
