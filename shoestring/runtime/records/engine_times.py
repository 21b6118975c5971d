"""Engine time, measured: what an engine took between the stages of earlier runs.

learned/engines/ENGINE/SLOT.json is what one run's start took. Its account chooses the slot, so a new sample
replaces one at random. A write reads nothing, and concurrent writes do no harm.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from itertools import pairwise
from math import ceil
from statistics import median

from pydantic import AwareDatetime

from shoestring.config.engines import Engine, EngineTimes, assumed_times
from shoestring.core import store_layout
from shoestring.core.errors import DataError, StoreError
from shoestring.core.interfaces import Store
from shoestring.core.receipt import Receipt
from shoestring.core.record import StoredRecord, digest, record_bytes
from shoestring.data.run_records import Run, RunStart, read_record, read_records
from shoestring.routing.analysis.engine_step import step_between
from shoestring.routing.decision import Decision

SLOTS = 16
"""Starts that are remembered of each engine. A run of four stages has three steps."""

OUTLIER = 2.0
"""A step longer than this multiple of the median did not wait for the engine: a node was started, a queue was
full, or someone stopped the machine."""

P95 = 0.95

MIN_PODS = 20
"""Pods without a stage from which on their P95 alone is held for the next ones. The P95 of fewer is their
highest, and a few may all have been quick: so the assumed seconds are held as well, where they are more."""


class EngineSample(StoredRecord):
    """The seconds of one start of a run: its steps, the parts of them after the decision, and its pods
    that ran no stage."""

    engine: Engine
    measured_at: AwareDatetime
    steps_s: tuple[float, ...]
    places_s: tuple[float, ...]
    pods_s: tuple[float, ...]


def engine_times(
    store: Store, engine: Engine, assumed_pod_s: float, until: datetime
) -> tuple[EngineTimes, tuple[str, ...]]:
    """Return the times of an engine: measured in this store until a moment, or assumed; and notes on
    unreadable samples. `assumed_pod_s`: of a pod that runs no stage, until MIN_PODS were measured.
    """
    keys = list(store.list(store_layout.engine_samples(engine)))
    found, notes = read_records(store, keys, EngineSample)
    samples = [sample for sample in found if sample.measured_at <= until]
    steps_s = usual([each for sample in samples for each in sample.steps_s])
    pods_s = usual([each for sample in samples for each in sample.pods_s])
    assumed = assumed_times(engine, held_pod_s(pods_s, assumed_pod_s))
    if not steps_s:
        return assumed, notes
    places_s = usual([each for sample in samples for each in sample.places_s])
    step_s = high(steps_s)
    times = assumed.model_copy(
        update={
            "step_s": step_s,
            "place_s": min(step_s, high(places_s)),
            "measured_steps": len(steps_s),
        }
    )
    return times, notes


def usual(seconds: list[float]) -> list[float]:
    """Return the seconds in order, without the outliers."""
    return sorted(each for each in seconds if each <= OUTLIER * median(seconds))


def high(seconds: list[float]) -> float:
    """Return the P95 of ordered seconds: the smallest that at least 95% do not exceed."""
    return seconds[ceil(P95 * len(seconds)) - 1]


def held_pod_s(pods_s: list[float], assumed_s: float) -> float:
    """Return the seconds to hold for a pod that runs no stage, where these were measured, in order."""
    if len(pods_s) < MIN_PODS:
        return max([assumed_s, *pods_s])
    return high(pods_s)


def record_engine_times(store: Store, run: Run, start: RunStart, pods_s: Iterable[float]) -> list[str]:
    """Write what a start took, once it has ended; return a message if that is not possible, since its
    account is closed without it.
    """
    if start.engine is None:
        return []
    try:
        sample = engine_sample(store, run, start, start.engine, tuple(round(each, 3) for each in pods_s))
        if sample.steps_s or sample.pods_s:
            slot = int(digest(start.account.encode()), 16) % SLOTS
            store.put(store_layout.engine_samples(start.engine, f"{slot:02d}.json"), record_bytes(sample))
    except (DataError, StoreError) as error:
        return [f"{start.account}: what the engine took is not recorded: {error}"]
    return []


def engine_sample(
    store: Store, run: Run, start: RunStart, engine: Engine, pods_s: tuple[float, ...]
) -> EngineSample:
    """Return what a start took, by its receipts and decisions. Raises DataError and StoreError."""
    keys = list(store.list(store_layout.receipts(run.run_id)))
    receipts, _ = read_records(store, keys, Receipt)
    own = [each for each in receipts if each.started_at >= start.started_at]
    own.sort(key=lambda each: each.started_at)
    steps = [
        step
        for before, after in pairwise(own)
        if (step := step_between(before, after, read_record(store, after.decision_key, Decision).question))
    ]
    return EngineSample(
        engine=engine,
        measured_at=own[-1].finished_at if own else start.started_at,
        steps_s=tuple(step.step_s for step in steps),
        places_s=tuple(step.place_s for step in steps),
        pods_s=pods_s,
    )
