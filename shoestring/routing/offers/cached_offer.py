"""The cached result of a stage, as one free offer."""

from __future__ import annotations

import numpy as np

from shoestring.routing.candidates import (
    NONE,
    REFUSAL_CODES,
    CachedOffer,
    RefusalCode,
    StoredFormats,
    stored_format_index,
)
from shoestring.routing.offers.factors import Fleet, StageFactors
from shoestring.routing.question import Question

NO_CAPACITY = REFUSAL_CODES.index(RefusalCode.NO_CAPACITY)


def without_other_classes(
    cached: CachedOffer, written: tuple[int, ...], formats: StoredFormats
) -> tuple[int, ...]:
    """Return the formats to write without other storage classes of the cached result's format.

    Computing the result again gives the same bytes, and these stay on the storage class they are on.
    """
    same = formats[cached.writes][0] if cached.writes >= 0 else None
    return tuple(
        each for each in written if each == cached.writes or each < 0 or formats[each][0] is not same
    )


def cached_offer(
    question: Question,
    fleet: Fleet,
    formats: StoredFormats,
    stage: int,
    before: CachedOffer | None,
    factors: StageFactors,
) -> CachedOffer | None:
    """Return the cached result of a stage as an offer; None: it is not cached.

    A later stage is looked up only where the stage before it is cached, too (`before`), because nothing can
    be cheaper there.
    """
    writes_data = question.needs[stage].writes_bytes_per_row > 0
    if stage:
        if before is None or stage > len(question.cached_later_stages):
            return None
        later = question.cached_later_stages[stage - 1]
        writes = stored_format_index(formats, later.format if writes_data else None, later.storage_class)
        return CachedOffer(target=before.target, reads=before.writes, writes=writes)
    target = _place(fleet)
    if not question.cached_outcome or target is None:
        return None
    written = question.cached_format if writes_data else None
    writes = stored_format_index(formats, written, question.cached_storage_class)
    return CachedOffer(target=target, reads=next(iter(factors.combinations)), writes=writes)


def _place(fleet: Fleet) -> int | None:
    """Return the target that a pod with a cached result goes to; None: there is none.

    Of the pools without GPUs it is the one where a pod starts at the lowest cost: start-up is all that such a
    pod takes, including the wait for a new node. Where they are full, it waits for a place on one. It is
    placed on GPUs only if no other pool has a price and nodes.
    """
    has_gpus = np.array([each.gpu_count > 0 for each in fleet.pools], dtype=np.bool_)[fleet.pool]
    has_nodes = np.array([each.capacity is None or each.capacity.nodes > 0 for each in fleet.pools], np.bool_)
    is_full = fleet.shortage == NO_CAPACITY
    usable = (fleet.exclusion == NONE) & ((fleet.shortage == NONE) | (is_full & has_nodes[fleet.pool]))
    price = fleet.usd_per_hour_micro.astype(np.float64)
    order = np.lexsort((price, price * fleet.startup_ms, is_full, has_gpus, ~usable))
    return int(order[0]) if usable.any() else None
