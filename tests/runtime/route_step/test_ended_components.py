"""The next router settles an external component that is done, so its stage has what that leaves."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from runtime_world import MONEY, FakeCluster, SetClock, on_cluster, small_world

from shoestring.backends.local import LocalCluster
from shoestring.backends.local_tasks import LOCAL_TASKS_VARIABLE, LocalTask, LocalTasks
from shoestring.config.world import World
from shoestring.core.errors import NotAllowed
from shoestring.core.interfaces import PodLifetime
from shoestring.core.pod_ref import LabelledPod, PodRef
from shoestring.core.receipt import Receipt
from shoestring.core.record import record_bytes
from shoestring.core.types import Need
from shoestring.data.recipe import Recipe
from shoestring.data.run_records import read_record
from shoestring.routing.decision import Decision
from shoestring.runtime.admission.first_request import recipe_request
from shoestring.runtime.admission.stage_request import StageInputs
from shoestring.runtime.records.world_ledger import world_ledger
from shoestring.runtime.route_step.retry import EXIT_WAIT_S
from shoestring.runtime.route_step.route import route
from shoestring.runtime.settlement.settle import settle_run
from shoestring.spending.meter import cost_usd

THEIRS = "ns?shoestring.dev/stage=theirs,shoestring.dev/run=r"


class UnlistedPods(FakeCluster):
    """A cluster whose router may not list pods."""

    def lifetime(self, pod: PodRef) -> PodLifetime:
        if isinstance(pod, LabelledPod):
            raise NotAllowed("pods cannot be listed")
        return super().lifetime(pod)


def route_stage(world: World, folder: Path, stage: str) -> Decision:
    (folder / "rows.csv").write_text("x,y\n1,1\n2,0\n3,1\n4,0\n")
    recipe = Recipe.model_validate(
        {"name": "few", "source": {"rows": {"path": folder / "rows.csv"}}, "target": {"column": "y"}}
    )
    need = Need(stage=stage, setup_s=20.0)
    request = recipe_request("r", recipe, (need,), MONEY, None, 7, metered=False)
    path = folder / f"{stage}.json"
    route(world, request, StageInputs(), str(path), str(folder / "page.md"))
    return Decision.model_validate_json(path.read_bytes())


@pytest.fixture
def world(laptop: Path, tmp_path: Path) -> World:
    return on_cluster(small_world(laptop, tmp_path, SetClock()))[0]


def life(world: World, *, ran_s: float = 8.0, **found: object) -> PodLifetime:
    """Return the lifetime of a pod that began now and succeeded after this time."""
    began: datetime = world.clock.now()
    ended = {"alive": False, "started_at": began, "finished_at": began + timedelta(seconds=ran_s)}
    return PodLifetime(**(ended | found))  # type: ignore[arg-type]


def test_the_money_that_a_component_leaves_is_there_for_the_next_stage(world: World, tmp_path: Path) -> None:
    theirs = route_stage(world, tmp_path, "theirs")
    assert theirs.choice is not None
    cluster = FakeCluster(world.cluster.pools(), {THEIRS: life(world)})
    world.clock.sleep(30)
    following = route_stage(replace(world, cluster=cluster), tmp_path, "following")
    state = world_ledger(world).state("r")
    spent_usd = cost_usd(theirs.choice.usd_per_hour, 8.0)
    assert state.settled_usd["theirs-1"] == spent_usd < theirs.choice.p95_usd
    assert following.question.spent_usd == spent_usd
    receipt = read_record(world.store, "runs/r/receipts/theirs-1.json", Receipt)
    assert (receipt.status, receipt.seconds, receipt.spent_usd) == ("done", 8.0, spent_usd)


@pytest.mark.parametrize(
    "found", [{"reason": "Error, exit code 3"}, {"alive": True, "finished_at": None}, {"finished_at": None}]
)
def test_one_that_failed_or_may_still_run_keeps_its_reservation(
    world: World, tmp_path: Path, found: dict[str, object]
) -> None:
    route_stage(world, tmp_path, "theirs")
    cluster = FakeCluster(world.cluster.pools(), {THEIRS: life(world, **found)})
    world.clock.sleep(30)
    route_stage(replace(world, cluster=cluster), tmp_path, "following")
    assert {"theirs-1", "following-1"} < world_ledger(world).state("r").reservations.keys()


def test_a_router_that_may_not_list_pods_leaves_it_to_the_exit_step(world: World, tmp_path: Path) -> None:
    route_stage(world, tmp_path, "theirs")
    blind = replace(world, cluster=UnlistedPods(world.cluster.pools()))
    route_stage(blind, tmp_path, "following")
    assert {"theirs-1", "following-1"} < world_ledger(world).state("r").reservations.keys()


@pytest.mark.parametrize("runs_s", [5.0, None])
def test_on_one_machine_a_component_is_booked_at_the_times_that_its_launcher_reports(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs_s: float | None
) -> None:
    """One that still runs, beside the step that asks, keeps its reservation."""
    laptop = replace(world, cluster=LocalCluster(world.cluster.pools()))
    theirs = route_stage(laptop, tmp_path, "theirs")
    assert theirs.choice is not None
    began = world.clock.now()
    ended = None if runs_s is None else began + timedelta(seconds=runs_s)
    tasks = LocalTasks(tasks={"shoestring.dev/stage=theirs": LocalTask(started_at=began, finished_at=ended)})
    (file := tmp_path / "tasks.json").write_bytes(record_bytes(tasks))
    monkeypatch.setenv(LOCAL_TASKS_VARIABLE, str(file))
    world.clock.sleep(12)
    route_stage(laptop, tmp_path, "following")
    state = world_ledger(world).state("r")
    if runs_s is None:
        assert {"theirs-1", "following-1"} < state.reservations.keys()
    else:
        assert state.settled_usd["theirs-1"] == cost_usd(theirs.choice.usd_per_hour, runs_s)


def test_the_exit_step_waits_until_the_cluster_says_when_a_component_that_was_ended_stopped(
    world: World, tmp_path: Path
) -> None:
    theirs = route_stage(world, tmp_path, "theirs")
    assert theirs.choice is not None
    began, reason = world.clock.now(), "OutOfMoney: it cost $0.1"
    cluster = EndTold(world, began + timedelta(seconds=40), life(world, finished_at=None, reason=reason))
    world.clock.sleep(50)
    settle_run(replace(world, cluster=cluster), "r")
    assert world.clock.now() - began < timedelta(seconds=50 + EXIT_WAIT_S)
    receipt = read_record(world.store, "runs/r/receipts/theirs-1.json", Receipt)
    assert (receipt.seconds, receipt.cause) == (40.0, "money")
    assert world_ledger(world).state("r").stages["theirs"].spent_usd == cost_usd(
        theirs.choice.usd_per_hour, 40.0
    )


class EndTold(FakeCluster):
    """A cluster that tells three seconds from now when the pod of the component ended."""

    def __init__(self, world: World, ended: datetime, before: PodLifetime) -> None:
        super().__init__(world.cluster.pools())
        self.clock, self.ended, self.before = world.clock, ended, before
        self.told_at = world.clock.now() + timedelta(seconds=53)

    def lifetime(self, pod: PodRef) -> PodLifetime:
        if not isinstance(pod, LabelledPod):
            return super().lifetime(pod)
        has_told = self.clock.now() >= self.told_at
        return replace(self.before, finished_at=self.ended if has_told else None)
