"""The offers of a decision as a table, one offer a row: for pages, reports and comparisons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from shoestring.routing.candidates import NONE, CachedOffer, Candidates, Ints, StageOffers, round_up
from shoestring.routing.offers.offer_costs import OfferBlock

PRICE_COLUMNS = (
    ("est", False, False),
    ("p95", False, True),
    ("min_est", True, False),
    ("min_p95", True, True),
)
"""The prefix of each pair of price columns, and whether it is for the fewest samples, and at P95."""


@dataclass(frozen=True, slots=True)
class OfferTable:
    """Offers as columns.

    `est_*` and `p95_*` are for all of a stage's work (an elastic stage: all its passes), `min_*` for the
    fewest samples worth starting for (a fixed stage: the same). `prior_ms` is the prediction of the
    throughput model before receipts, start-up and preemption are counted; `fixed_ms` is its part that does
    not grow with the samples. `exclusion` is an index into the stage's exclusions.
    """

    stage: Ints
    pool: Ints
    market: Ints
    reads: Ints
    writes: Ints
    cached: Ints
    exclusion: Ints
    usd_per_hour_micro: Ints
    samples: Ints
    min_samples: Ints
    prior_ms: Ints
    fixed_ms: Ints
    startup_ms: Ints
    read_ms: Ints
    write_ms: Ints
    loss_ms: Ints
    transfer_microusd: Ints
    storage_microusd: Ints
    est_ms: Ints
    p95_ms: Ints
    est_microusd: Ints
    p95_microusd: Ints
    min_est_ms: Ints
    min_p95_ms: Ints
    min_est_microusd: Ints
    min_p95_microusd: Ints


def stage_offer_table(candidates: Candidates, stage: int) -> OfferTable:
    """Return the offers of one stage, in the order of their numbers."""
    offers, targets = candidates.offers[stage], np.arange(len(candidates.pool))
    shape = (len(offers.reads), len(offers.writes), len(targets))
    # Offers are numbered by target first.
    columns = {
        name: np.broadcast_to(np.asarray(value, dtype=np.int64), shape).transpose(2, 0, 1).ravel()
        for name, value in _columns(candidates, stage).items()
    }
    if offers.cached:
        cached = _cached_row(candidates, offers, offers.cached, stage)
        columns = {name: np.append(values, cached.get(name, 0)) for name, values in columns.items()}
    return OfferTable(**columns)


def full_offer_table(candidates: Candidates) -> OfferTable:
    """Return the offers of all stages, in the order of their numbers."""
    parts = [stage_offer_table(candidates, stage) for stage in range(len(candidates.offers))]
    return OfferTable(
        *(np.concatenate([getattr(each, name) for each in parts]) for name in OfferTable.__slots__)
    )


def _columns(candidates: Candidates, stage: int) -> dict[str, Any]:
    """Return the columns, each broadcastable to [formats read, formats written, targets]."""
    offers = candidates.offers[stage]
    block = OfferBlock(candidates, stage, np.arange(len(candidates.pool)))
    fixed_us, fees = block.fixed_us(), block.fees_microusd()
    prices = {
        name: block.prices(fixed_us, fees, minimum=minimum, p95=p95) for name, minimum, p95 in PRICE_COLUMNS
    }
    work_us, scan_us = offers.work_us_by_machine[block.machine], offers.scan_us_by_format[list(offers.reads)]
    setup_and_fixed_us = fixed_us + block.setup_us
    columns: dict[str, Any] = {
        "stage": stage,
        "pool": candidates.pool,
        "market": candidates.market,
        "reads": np.array(offers.reads)[:, None, None],
        "writes": np.array(offers.writes)[None, :, None],
        "cached": 0,
        "exclusion": offers.exclusion,
        "usd_per_hour_micro": candidates.usd_per_hour_micro,
        "samples": offers.samples,
        "min_samples": offers.min_samples,
        "prior_ms": round_up((setup_and_fixed_us + work_us) / 1e3),
        "fixed_ms": round_up(setup_and_fixed_us / 1e3),
        "startup_ms": candidates.startup_ms,
        "read_ms": round_up((scan_us[:, None, None] + offers.take_us) / 1e3),
        "write_ms": round_up(offers.write_us_by_format[list(offers.writes)][None, :, None] / 1e3),
        "loss_ms": block.lost_ms(fixed_us),
        "transfer_microusd": block.transfer_microusd(),
        "storage_microusd": offers.storage_microusd_by_format[list(offers.writes)][None, :, None],
    }
    columns |= {f"{name}_ms": each.ms for name, each in prices.items()}
    return columns | {f"{name}_microusd": each.microusd for name, each in prices.items()}


def _cached_row(
    candidates: Candidates, offers: StageOffers, cached: CachedOffer, stage: int
) -> dict[str, int]:
    """Return the values of a cached result's row that are not 0."""
    return {
        "stage": stage,
        "pool": int(candidates.pool[cached.target]),
        "market": int(candidates.market[cached.target]),
        "reads": cached.reads,
        "writes": cached.writes,
        "cached": 1,
        "exclusion": NONE,
        "usd_per_hour_micro": int(candidates.usd_per_hour_micro[cached.target]),
        "samples": offers.samples,
        "min_samples": offers.samples,
    }
