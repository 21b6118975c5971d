"""The overhead of a run: the costs of its router pods and of the exit step are settled with it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from runtime_world import INGEST, SetClock, begin, run_request, small_world

from shoestring.backends.local import LocalCluster
from shoestring.config.world import World
from shoestring.core.errors import NotAllowed
from shoestring.core.pod_ref import PodRef
from shoestring.core.record import record_bytes
from shoestring.core.types import Pool
from shoestring.data.run_records import open_run
from shoestring.runtime.admission.admit import admit
from shoestring.runtime.records.overhead import OverheadTime, overhead_timer, overhead_times
from shoestring.runtime.settlement.settle import exit_step, settle_start
from shoestring.spending.ledger.ledger import Ledger


@pytest.fixture
def world(laptop: Path, tmp_path: Path) -> World:
    return small_world(laptop, tmp_path, SetClock())


def test_overhead_is_settled_at_the_cost_of_its_pods(world: World, flights_slice: Path) -> None:
    began = begin(world, run_request(flights_slice, needs=INGEST))
    took_s = {"route-ingest": 1.25, "settle": 0.5}
    for name, seconds in took_s.items():
        pod = OverheadTime(
            name=name,
            pod=PodRef.parse(f"host.{name}.1"),
            usd_per_hour=Decimal("0.036"),
            allowance_s=3.0,
            started_at=world.clock.now(),
            finished_at=world.clock.now() + timedelta(seconds=seconds),
        )
        world.store.put(f"runs/r/overhead/1/{name}.json", record_bytes(pod))
    settle_start(world, began.run, began.run.start)
    assert began.ledger.state(began.account).settled_usd["overhead-1"] == Decimal("0.000018")


def test_an_overhead_pod_with_an_unknown_end_is_charged_its_allowance(
    world: World, flights_slice: Path
) -> None:
    began = begin(world, run_request(flights_slice, needs=INGEST))
    begun = OverheadTime(
        name="settle",
        pod=PodRef.parse("a.1.1"),
        usd_per_hour=Decimal("0.036"),
        allowance_s=began.run.start.overhead_pod_s,
        started_at=world.clock.now(),
        finished_at=None,
    )
    world.store.put("runs/r/overhead/1/settle.json", record_bytes(begun))
    world.clock.sleep(1000)
    settle_start(world, began.run, began.run.start)
    assert (
        began.ledger.state(began.account).settled_usd["overhead-1"]
        == Decimal("0.036") * Decimal(str(began.run.start.overhead_pod_s)) / 3600
    )


def test_overhead_beyond_its_reservation_is_recorded_up_to_the_cap(world: World, flights_slice: Path) -> None:
    began = begin(world, run_request(flights_slice, needs=INGEST))
    with overhead_timer(world, began.run, "route-ingest"):
        world.clock.sleep(10_000)
    sentences = settle_start(world, began.run, began.run.start)
    state = began.ledger.state(began.account)
    assert (state.settled_usd["overhead-1"], state.left_usd) == (began.run.start.budget_usd, 0)
    assert (
        "overhead-1 is recorded at $0.010000" in sentences[-1] and "the cap allows no more" in sentences[-1]
    )


def test_the_exit_step_is_charged_to_the_overhead(world: World, flights_slice: Path) -> None:
    began = begin(world, run_request(flights_slice, needs=INGEST))
    exit_step(world, open_run(world.store, "r"))
    assert any("/settle." in key for key in world.store.list("runs/r/overhead/1/"))
    assert began.ledger.state(began.account).settled_usd["overhead-1"] > 0


class ClusterWithoutNodeRights(LocalCluster):
    """A cluster that lets no process read its nodes."""

    def pools(self) -> tuple[Pool, ...]:
        raise NotAllowed("no right to list nodes")


def test_the_exit_step_needs_no_right_to_read_nodes(world: World, flights_slice: Path) -> None:
    run = admit(world, run_request(flights_slice, needs=INGEST))
    exit_step(replace(world, cluster=ClusterWithoutNodeRights(())), open_run(world.store, "r"))
    (pod,) = overhead_times(world, run, run.start)
    assert pod.usd_per_hour > 0
    assert Ledger(world.store, world.clock).state("r").closed
