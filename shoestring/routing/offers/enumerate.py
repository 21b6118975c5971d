"""The offers of every remaining stage: targets (pools x markets) x (format read, format written)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from itertools import chain, repeat
from operator import attrgetter, itemgetter, mul
from typing import Any

import numpy as np

from shoestring.config.tariff_costs import Volumes
from shoestring.config.tariffs import Tariffs
from shoestring.core.record import Record
from shoestring.core.types import Market, MarketTerms, NodeCapacity, Pool
from shoestring.pricing.throughput import PoolArrays
from shoestring.routing.candidates import (
    MAX_ESTIMATE,
    NONE,
    PPB,
    REFUSAL_CODES,
    CachedOffer,
    Candidates,
    Floats,
    Ints,
    RefusalCode,
    StageOffers,
    StoredFormats,
    round_up,
    stored_format_index,
)
from shoestring.routing.dag import FIRST_SOURCE, Dag, build_dag
from shoestring.routing.offers.cached_offer import cached_offer, without_other_classes
from shoestring.routing.offers.factors import Fleet, InputDataset, StageFactors
from shoestring.routing.offers.reading import writable_formats
from shoestring.routing.question import Question

NOT_OF_MACHINE = frozenset({"name", "node_pool", "startup_s", "region", "markets", "capacity"})
"""Fields of a pool that do not describe its machines. All others decide how long work takes on them."""

MACHINE = itemgetter(*sorted(set(Pool.model_fields) - NOT_OF_MACHINE))
NAME, PREEMPTIONS = attrgetter("name"), attrgetter("preemptions_per_hour")

MARKETS = tuple(sorted(Market))
MARKET_NUMBER = {id(market): number for number, market in enumerate(MARKETS)}
"""Keyed by identity, because hashing a member of an enumeration is slow."""

MICRO_PER_USD = Decimal("1E6")


def enumerate_offers(question: Question) -> Candidates:
    """Return all offers of all stages of the question, as cost factors, ordered by name."""
    tariffs, dag = question.tariffs, build_dag(question.needs, question.upstream)
    formats = tuple(
        (written, storage_class)
        for written in sorted(speed.format for speed in question.speeds)
        for storage_class in tariffs.all_storage_classes
    )
    fleet = _fleet(question)
    factors, written, cached = _stages(question, dag, fleet, formats)
    offers = list[StageOffers]()
    for stage, each in enumerate(factors):
        earlier_gb: Volumes = {}
        for other in dag.not_after(stage):
            earlier_gb = factors[other].max_transferred_gb(written[other], earlier_gb)
        # Only the current stage starts now: a later one may find capacity again.
        found = each.offers(written[stage], earlier_gb, now=not stage)
        need = question.needs[stage]
        rounds = -(-need.items // max(1, need.at_once or need.items))
        loop = {"items": need.items, "rounds": rounds}
        offers.append(found.model_copy(update={"cached": cached.get(stage)} | loop))
    return Candidates(
        stages=tuple(need.stage for need in question.needs),
        pools=fleet.names,
        markets=fleet.markets,
        regions=fleet.regions,
        formats=tuple(written for written, _ in formats),
        storage_classes=tuple(each for _, each in formats) if tariffs.storage_classes else (),
        pool=fleet.pool,
        market=fleet.market,
        region=fleet.region,
        machine=fleet.machine,
        usd_per_hour_micro=fleet.usd_per_hour_micro,
        startup_ms=fleet.startup_ms,
        preemptions_ppb=fleet.preemptions_ppb,
        prepaid_ms=fleet.prepaid_ms,
        offers=tuple(offers),
    )


def _stages(
    question: Question, dag: Dag, fleet: Fleet, formats: StoredFormats
) -> tuple[list[StageFactors], list[tuple[int, ...]], dict[int, CachedOffer]]:
    """Return, by stage, its factors, the formats that it may write, and its cached result if any."""
    store_region = question.tariffs.store_region
    first = stored_format_index(formats, question.reads_format, question.reads_storage_class)
    datasets = {FIRST_SOURCE: InputDataset((first,), question.row_bytes, question.data_region)}
    for index, each in enumerate(question.upstream):
        stored = stored_format_index(formats, each.format, each.storage_class)
        datasets[FIRST_SOURCE - 1 - index] = InputDataset((stored,), each.row_bytes, store_region)
    factors, cached = list[StageFactors](), dict[int, CachedOffer]()
    written = [writable_formats(question, dag, formats, stage) for stage in range(len(question.needs))]
    for stage, need in enumerate(question.needs):
        inputs = tuple(datasets[source] for source in dag.sources[stage]) or (
            InputDataset((NONE,), 0, store_region),
        )
        factors.append(StageFactors(question, need, fleet, inputs))
        if found := cached_offer(question, fleet, formats, stage, cached.get(stage - 1), factors[stage]):
            cached[stage], written[stage] = found, without_other_classes(found, written[stage], formats)
        if need.writes_bytes_per_row:
            leaves = sorted({*written[stage], *([found.writes] if found else [])})
            datasets[stage] = InputDataset(tuple(leaves), need.writes_bytes_per_row, store_region)
    return factors, written, cached


def _columns(records: Iterable[Record], *fields: str) -> list[list[Any]]:
    """Return fields of many records, each as a list.

    One pass reads all fields: the records are scattered in memory, and fetching them takes most of the time.
    """
    flat = list(chain.from_iterable(map(itemgetter(*fields), map(vars, records))))
    return [flat[index :: len(fields)] for index in range(len(fields))]


def _fleet(question: Question) -> Fleet:
    """Return the targets: each pool on each market that it declares or has a price for."""
    pools = tuple(sorted(question.pools, key=NAME))
    fields = ("name", "region", "startup_s", "markets", "capacity")
    names, regions_of, startup_s, terms, capacities = _columns(pools, *fields)
    markets, price, rate = _market_prices(question, names, terms)
    declared = ~np.isnan(rate)
    targets = np.flatnonzero(declared | (price > 0))
    pool, market = np.divmod(targets, max(len(markets), 1))
    regions, region = _regions(question.tariffs, pools, regions_of)
    machines, machine = _machines(question, pools)
    undeclared, no_price = map(REFUSAL_CODES.index, (RefusalCode.MARKET_NOT_DECLARED, RefusalCode.NO_PRICE))
    return Fleet(
        pools=pools,
        names=tuple(names),
        markets=markets,
        regions=tuple(regions),
        machines=machines,
        machine_arrays=PoolArrays.from_pools(machines),
        memory_gb=np.array([each.memory_gb for each in machines]),
        pool=pool,
        market=market,
        region=region[pool],
        machine=machine[pool],
        usd_per_hour_micro=price[targets],
        startup_ms=round_up(np.array(startup_s, dtype=np.float64) * 1e3)[pool],
        preemptions_ppb=round_up(np.nan_to_num(rate[targets]) * PPB),
        prepaid_ms=_prepaid_ms(question, names, markets, pool, market),
        exclusion=np.where(~declared[targets], undeclared, np.where(price[targets] > 0, NONE, no_price)),
        shortage=_shortages(question, pools, capacities, markets, pool, market),
    )


def _market_prices(
    question: Question, names: list[str], terms: list[dict[Market, MarketTerms]]
) -> tuple[tuple[Market, ...], Ints, Floats]:
    """Return all markets; and for each pool on each market its price in micro-dollars an hour (0: none) and
    its preemptions an hour (NaN: the pool does not declare the market)."""
    number = dict(zip(names, range(len(names)), strict=True))
    of_pool, on_market, usd_per_hour = _columns(question.quotes, "pool", "market", "usd_per_hour")
    quoted = np.fromiter(map(number.get, of_pool, repeat(NONE)), np.int64)
    known = quoted != NONE
    quoted_on, declared_on = _numbers(on_market)[known], _numbers(chain.from_iterable(terms))
    present = np.flatnonzero(np.bincount(np.append(quoted_on, declared_on)))
    price: Ints = np.zeros(len(names) * len(present), dtype=np.int64)
    # A quote has at most six decimal places, as every amount of dollars has.
    micro = np.fromiter(map(int, map(mul, usd_per_hour, repeat(MICRO_PER_USD))), np.int64)
    price[quoted[known] * len(present) + np.searchsorted(present, quoted_on)] = micro[known]
    rate: Floats = np.full(len(price), np.nan)
    declared = np.repeat(np.arange(len(names)), np.fromiter(map(len, terms), np.int64))
    declared_rate = np.fromiter(map(PREEMPTIONS, chain.from_iterable(map(dict.values, terms))), np.float64)
    rate[declared * len(present) + np.searchsorted(present, declared_on)] = declared_rate
    return tuple(MARKETS[each] for each in present.tolist()), price, rate


def _numbers(markets: Iterable[Market]) -> Ints:
    """Return the indices of markets in MARKETS."""
    return np.fromiter(map(MARKET_NUMBER.__getitem__, map(id, markets)), np.int64)


def _regions(tariffs: Tariffs, pools: Sequence[Pool], regions_of: list[str]) -> tuple[list[str], Ints]:
    """Return the names of the pools' regions in egress routes, and the index of each pool's region."""
    if tariffs.store_provider:
        regions_of = [tariffs.route_end(each.provider, each.region) for each in pools]
    regions = sorted(set(regions_of))
    number = {name: index for index, name in enumerate(regions)}
    return regions, np.fromiter(map(number.__getitem__, regions_of), np.int64)


def _prepaid_ms(
    question: Question, names: Sequence[str], markets: Sequence[str], pool: Ints, market: Ints
) -> Ints:
    """Return, by target, the time that a commitment covers; empty where there are no commitments."""
    left_ms = {
        (each.pool, each.market): min(each.left_ms, MAX_ESTIMATE)
        for each in question.commitments
        if each.left_ms
    }
    if not left_ms:
        return np.zeros(0, dtype=np.int64)
    targets = zip(pool.tolist(), market.tolist(), strict=True)
    return np.array([left_ms.get((names[p], markets[m]), 0) for p, m in targets], dtype=np.int64)


def _machines(question: Question, pools: Sequence[Pool]) -> tuple[tuple[Pool, ...], Ints]:
    """Return one pool of each kind of machine, and the kind of each pool.

    A pool whose own speed was learned from receipts is a kind of its own.
    """
    learned = {each.pool for each in question.learned if each.pool}
    keys: Iterable[object] = map(MACHINE, map(vars, pools))
    if learned:
        keys = (
            (key, pool.name if pool.name in learned else "") for key, pool in zip(keys, pools, strict=True)
        )
    kinds: dict[object, int] = {}
    kind = np.array([kinds.setdefault(each, len(kinds)) for each in keys], dtype=np.int64)
    _, first = np.unique(kind, return_index=True)
    return tuple(pools[index] for index in first.tolist()), kind


def _is_full(capacity: NodeCapacity) -> bool:
    """Return whether no pod fits now and no node can be added."""
    return not capacity.free_shares and capacity.nodes >= capacity.max_nodes


def _shortages(
    question: Question,
    pools: Sequence[Pool],
    capacities: Sequence[NodeCapacity | None],
    markets: Sequence[str],
    pool: Ints,
    market: Ints,
) -> Ints:
    """Return, by target, the index in REFUSAL_CODES of a lack of capacity or a recent stock-out, or -1.

    A pod that exists is short of nothing where it is, and cannot be anywhere else.
    """
    if pod := question.existing_pod:
        is_there = np.array([each.name == pod.pool for each in pools], dtype=np.bool_)[pool]
        is_there &= market == (markets.index(pod.market) if pod.market in markets else NONE)
        return np.where(is_there, NONE, REFUSAL_CODES.index(RefusalCode.POD_ELSEWHERE))
    full = np.array([each is not None and _is_full(each) for each in capacities], dtype=np.bool_)[pool]
    short = np.where(full, REFUSAL_CODES.index(RefusalCode.NO_CAPACITY), NONE)
    for stockout in question.stockouts:
        if stockout.market in markets:
            out = np.array(
                [(each.node_pool or each.name) == stockout.node_pool for each in pools], dtype=np.bool_
            )
            at = out[pool] & (market == markets.index(stockout.market))
            short[at] = REFUSAL_CODES.index(RefusalCode.STOCK_OUT)
    return short
