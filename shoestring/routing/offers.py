"""Every offer for every remaining stage: stages x pools x markets x (format read, format written)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from shoestring.model import Format, Need
from shoestring.money import microusd
from shoestring.routing.cost import NONE, Cost, Input, Slot, needed_gb, sample_range, shortage
from shoestring.routing.decision import Candidates, Question, Reason
from shoestring.routing.preferences import BY_POLICY, kept_off, kind_of

NAMES = ("stages", "pools", "markets", "formats")


def candidates(question: Question) -> Candidates:
    """Price everything. Rows are sorted by stage, pool, market, format read, format written, whatever the order asked in."""
    formats = tuple(sorted(speed.format for speed in question.speeds))
    slots = _slots(question)
    # By the time of a later stage there may be room again.
    later = [replace(slot, shortage=None) for slot in slots]
    given = Input((_number(formats, question.reads_format),), question.row_bytes, question.data_region)
    blocks: list[dict[str, Any]] = []
    for stage, need in enumerate(question.needs):
        writes = tuple(range(len(formats))) if need.writes_bytes_per_row else (NONE,)
        blocks.append(Cost(question, need, later if stage else slots, given, writes).columns(stage))
        left = set(writes)
        if stage == 0 and question.cached_outcome and (row := _cached(question, need, slots, formats, given)):
            blocks.append(row)
            left.add(row["writes"][0])
        if need.writes_bytes_per_row:
            given = Input(tuple(sorted(left)), need.writes_bytes_per_row, question.tariffs.store_region)
    columns = {name: tuple(np.concatenate([block[name] for block in blocks]).tolist()) for name in blocks[0]}
    names = {
        "stages": tuple(need.stage for need in question.needs),
        "pools": tuple(sorted({slot.pool.name for slot in slots})),
        "markets": tuple(sorted({slot.market for slot in slots})),
        "formats": formats,
    }
    return Candidates.model_validate(names | columns)


def objected_anew(question: Question, candidates: Candidates) -> Candidates:
    """The same offers with the objections of this question's policy instead of another's. Prices stay, and so does a cached outcome."""
    pools, found = {pool.name: pool for pool in question.pools}, list(candidates.objection)
    kinds = [kind_of(need, needed_gb(need, question.rows)) for need in question.needs]
    known: dict[tuple[int, int, int], Reason | Literal[""]] = {}
    for row, key in enumerate(zip(candidates.stage, candidates.pool, candidates.market, strict=True)):
        if candidates.cached[row] or (found[row] and found[row] not in BY_POLICY):
            continue
        if key not in known:
            stage, pool, market = key
            tier = question.in_force.tier(kinds[stage])
            known[key] = kept_off(tier, pools[candidates.pools[pool]], candidates.markets[market]) or ""
        found[row] = known[key]
    return candidates.model_copy(update={"objection": tuple(found)})


def _number(formats: tuple[Format, ...], name: Format | None) -> int:
    return NONE if name is None else formats.index(name)


def _slots(question: Question) -> list[Slot]:
    """Pools x the markets they declare or are quoted on, by name."""
    prices = {(quote.pool, quote.market): microusd(quote.usd_per_hour) for quote in question.quotes}
    pools = {pool.name: pool for pool in question.pools}
    declared = {(pool.name, market) for pool in question.pools for market in pool.markets}
    pairs = sorted(declared | {(name, market) for name, market in prices if name in pools})
    names, markets = sorted({name for name, _ in pairs}), sorted({market for _, market in pairs})
    slots = []
    for name, market in pairs:
        price = prices.get((name, market), 0)
        objection = Reason.NO_TERMS if (name, market) not in declared else None if price else Reason.NO_PRICE
        short = shortage(question, pools[name], market)
        slots.append(Slot(pools[name], market, names.index(name), markets.index(market), price, objection, short))
    return slots


def _cached(question: Question, need: Need, slots: Sequence[Slot], formats: tuple[Format, ...], given: Input) -> dict[str, Any] | None:
    """The outcome that is there already, as a free row on the priced pool with room where a pod's start is cheapest; None if there is none.

    Its start is all that such a pod takes: where a node has to be made for it, that is waited for and paid.
    """
    priced = [slot for slot in slots if slot.objection is None and slot.shortage is None]
    if not priced:
        return None
    slot = min(priced, key=lambda slot: (slot.price * slot.pool.startup_s, slot.price))
    _, most = sample_range(need, question.rows)
    return {name: [0] for name in Candidates.model_fields if name not in NAMES} | {
        "pool": [slot.pool_number],
        "market": [slot.market_number],
        "reads": [given.formats[0]],
        "writes": [_number(formats, question.cached_format) if need.writes_bytes_per_row else NONE],
        "cached": [1],
        "objection": [""],
        "usd_per_hour_micro": [slot.price],
        "samples": [most],
        "least_samples": [most],
    }
