"""Engine time: learned from the pods of earlier runs, and taken off the deadline for every step to come."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from shoestring.backends.memory import MemoryStore
from shoestring.config.engines import ASSUMED_STEP_S, PLACE_SHARE, Engine
from shoestring.core import store_layout
from shoestring.core.record import record_bytes
from shoestring.runtime.records.engine_times import EngineSample, engine_times

NOW = datetime(2026, 11, 2, 12, tzinfo=UTC)
POD_S = 8.0


def put_sample(
    store: MemoryStore,
    slot: int,
    steps_s: tuple[float, ...],
    at: datetime = NOW,
    engine: Engine = "argo",
    pods_s: tuple[float, ...] = (1.5, 2.0),
) -> None:
    sample = EngineSample(
        engine=engine,
        measured_at=at,
        steps_s=steps_s,
        places_s=tuple(each / 4 for each in steps_s),
        pods_s=pods_s,
    )
    store.put(store_layout.engine_samples(engine, f"{slot:02d}.json"), record_bytes(sample))


@pytest.mark.parametrize("engine", ASSUMED_STEP_S)
def test_before_anything_is_measured_a_step_is_assumed(engine: Engine) -> None:
    times, notes = engine_times(MemoryStore(), engine, POD_S, NOW)
    assert (times.step_s, times.place_s, times.pod_s) == (
        ASSUMED_STEP_S[engine],
        PLACE_SHARE * ASSUMED_STEP_S[engine],
        POD_S,
    )
    assert times.measured_steps == 0 and notes == ()
    assert "assumed" in times.source


def test_the_p95_of_what_was_measured_counts_and_only_on_its_engine() -> None:
    store = MemoryStore()
    for slot in range(10):
        put_sample(store, slot, (10.0 + slot, 10.5 + slot))
    times, _ = engine_times(store, "argo", POD_S, NOW)
    assert (times.step_s, times.measured_steps) == (19.0, 20)
    assert times.place_s == 19.0 / 4
    assert times.pod_s == 2.0
    assert engine_times(store, "kubeflow", POD_S, NOW)[0].measured_steps == 0


@pytest.mark.parametrize(
    ("assumed_s", "pods", "held_s"),
    [(8.0, 1, 8.0), (8.0, 19, 8.0), (8.0, 20, 2.5), (2.0, 1, 3.0), (2.0, 19, 3.0), (2.0, 20, 2.5)],
)
def test_a_pod_without_a_stage_is_held_at_its_assumed_seconds_at_least_until_20_were_measured(
    assumed_s: float, pods: int, held_s: float
) -> None:
    store = MemoryStore()
    put_sample(store, 0, (), pods_s=(*[2.5] * (pods - 1), 3.0))
    assert engine_times(store, "argo", assumed_s, NOW)[0].pod_s == held_s
    put_sample(store, 0, (10.0,), pods_s=(*[2.5] * (pods - 1), 3.0))
    assert engine_times(store, "argo", assumed_s, NOW)[0].pod_s == held_s


def test_a_step_that_waited_for_something_else_does_not_count() -> None:
    store = MemoryStore()
    put_sample(store, 0, (10.0, 11.0, 12.0))
    put_sample(store, 1, (10.0, 900.0, 12.0))
    times, _ = engine_times(store, "argo", POD_S, NOW)
    assert (times.step_s, times.measured_steps) == (12.0, 5)


def test_a_running_run_does_not_learn_from_runs_that_ended_after_it_began() -> None:
    store = MemoryStore()
    put_sample(store, 0, (10.0,))
    put_sample(store, 1, (15.0,), NOW + timedelta(seconds=1))
    assert engine_times(store, "argo", POD_S, NOW)[0].step_s == 10.0
    assert engine_times(store, "argo", POD_S, NOW + timedelta(seconds=1))[0].step_s == 15.0


def test_an_unreadable_sample_is_noted_and_changes_nothing() -> None:
    store = MemoryStore()
    put_sample(store, 0, (10.0,))
    store.put(store_layout.engine_samples("argo", "01.json"), b"{")
    times, (note,) = engine_times(store, "argo", POD_S, NOW)
    assert times.step_s == 10.0
    assert "1 of 2 records were skipped" in note


def test_steps_to_come_cost_a_step_each_and_the_current_one_what_is_left_of_it() -> None:
    times, _ = engine_times(MemoryStore(), "kubeflow", POD_S, NOW)
    step_s = ASSUMED_STEP_S["kubeflow"]
    assert [times.left_s(steps) for steps in (1, 2, 4)] == [
        PLACE_SHARE * step_s,
        PLACE_SHARE * step_s + step_s,
        PLACE_SHARE * step_s + 3 * step_s,
    ]
