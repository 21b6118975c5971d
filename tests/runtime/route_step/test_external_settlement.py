"""External components: reserved, settled at Shoestring's next step, and adjusted to the pod's own times."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path

import pytest
from reaper_world import Queue
from runtime_world import MONEY, FakeCluster, SetClock, on_cluster, small_world

from shoestring.config.world import World
from shoestring.core.interfaces import PodLifetime
from shoestring.core.receipt import Receipt
from shoestring.core.types import Need
from shoestring.data.recipe import Recipe
from shoestring.data.run_records import open_run, read_record
from shoestring.routing.decision import Decision
from shoestring.runtime.admission.first_request import recipe_request
from shoestring.runtime.admission.stage_request import StageInputs
from shoestring.runtime.records.lifetimes import lifetime_of
from shoestring.runtime.records.overhead import overhead_timer
from shoestring.runtime.route_step.retry import EXIT_WAIT_S
from shoestring.runtime.route_step.route import route
from shoestring.runtime.settlement.reap import reap as sweep_world
from shoestring.runtime.settlement.settle import settle_run
from shoestring.spending.heartbeat import last_heartbeat
from shoestring.spending.ledger.ledger import Ledger
from shoestring.spending.lost_pods import settle_lost_pods
from shoestring.spending.meter import cost_usd

NEED = Need(stage="theirs", setup_s=20.0)
KNOWN = "ns?shoestring.dev/stage=theirs,shoestring.dev/run=r"


@pytest.fixture
def world(laptop: Path, tmp_path: Path) -> World:
    """A cluster that reports only the end of the component's pod."""
    return with_pod_lifetime(
        on_cluster(small_world(laptop, tmp_path, SetClock()))[0], PodLifetime(alive=False)
    )


def with_pod_lifetime(world: World, life: PodLifetime) -> World:
    """Return the world with this report of the component's pod."""
    return replace(world, cluster=FakeCluster(world.cluster.pools(), {KNOWN: life}))


@pytest.fixture
def decision(world: World, tmp_path: Path) -> Decision:
    """Route the component and return the decision; the component then runs without Shoestring."""
    request = recipe_request("r", recipe_in(tmp_path), (NEED,), MONEY, None, 7, metered=False)
    route(world, request, StageInputs(), str(tmp_path / "decision.json"), str(tmp_path / "page.md"))
    return Decision.model_validate_json((tmp_path / "decision.json").read_bytes())


def recipe_in(folder: Path) -> Recipe:
    (folder / "rows.csv").write_text("x,y\n1,1\n2,0\n3,1\n4,0\n")
    return Recipe.model_validate(
        {"name": "few", "source": {"rows": {"path": folder / "rows.csv"}}, "target": {"column": "y"}}
    )


def test_the_pod_of_an_external_component_is_found_by_the_engines_run_id(
    world: World, tmp_path: Path
) -> None:
    request = recipe_request(
        "r", recipe_in(tmp_path), (NEED,), MONEY, None, 7, metered=False, job_id="0d3f-job"
    )
    route(world, request, StageInputs(), str(tmp_path / "decision.json"), str(tmp_path / "page.md"))
    heartbeat = last_heartbeat(world.store, "r", "theirs-1")
    assert (
        heartbeat is not None
        and str(heartbeat.pod) == "ns?shoestring.dev/stage=theirs,pipeline/runid=0d3f-job"
    )


def price(decision: Decision, seconds: float) -> Decimal:
    assert decision.choice is not None
    return cost_usd(decision.choice.usd_per_hour, seconds)


def settled(world: World) -> tuple[Decimal, Receipt]:
    settle_run(world, "r")
    state = Ledger(world.store, world.clock, str(world.pod)).state("r")
    assert (state.closed, state.reservations) == (True, {})
    # The final state of the ledger: the settlement and its adjustment.
    return state.stages["theirs"].spent_usd, read_record(
        world.store, "runs/r/receipts/theirs-1.json", Receipt
    )


def test_an_external_component_is_charged_from_its_router_to_shoestrings_next_step(
    world: World, decision: Decision
) -> None:
    world.clock.sleep(12)
    with overhead_timer(world, open_run(world.store, "r"), "route-next"):
        world.clock.sleep(3)
    spent_usd, receipt = settled(world)
    assert (spent_usd, receipt.spent_usd, receipt.seconds) == (price(decision, 12), price(decision, 12), 12.0)
    assert (receipt.status, receipt.outcome) == ("done", None)


def test_an_external_component_is_never_settled_above_its_reservation(
    world: World, decision: Decision
) -> None:
    assert decision.choice is not None
    world.clock.sleep(86400)
    assert settled(world)[0] == decision.choice.p95_usd


def test_an_external_component_is_adjusted_to_the_pod_times_that_the_cluster_reports(
    world: World, decision: Decision
) -> None:
    began = world.clock.now() + timedelta(seconds=5)
    world.clock.sleep(30)
    lifetime = PodLifetime(alive=False, started_at=began, finished_at=began + timedelta(seconds=7))
    assert settled(with_pod_lifetime(world, lifetime))[0] == price(decision, 7)


@pytest.mark.parametrize("reason", ["", "Error, exit code 3"])
def test_the_seconds_of_an_external_component_are_its_pods_own_and_not_the_wait_for_the_next_step(
    world: World, decision: Decision, reason: str
) -> None:
    began = world.clock.now() + timedelta(seconds=20)
    world.clock.sleep(50.7)
    ended = began + timedelta(seconds=25)
    lifetime = PodLifetime(alive=False, started_at=began, finished_at=ended, reason=reason)
    spent_usd, receipt = settled(with_pod_lifetime(world, lifetime))
    assert (receipt.seconds, receipt.started_at, receipt.finished_at) == (25.0, began, ended)
    assert decision.choice is not None
    assert receipt.spent_usd == spent_usd == min(price(decision, 25), decision.choice.p95_usd)


@pytest.mark.parametrize("clock_s", [0, 60])
def test_a_component_whose_pod_outlives_the_exit_step_is_charged_until_now_by_the_clusters_clock(
    world: World, decision: Decision, clock_s: int
) -> None:
    assert decision.choice is not None
    began = world.clock.now() + timedelta(seconds=20)
    world.clock.sleep(120)
    asked_at = world.clock.now() + timedelta(seconds=clock_s) if clock_s else None
    reason = "OutOfMoney: it cost $0.1"
    lifetime = PodLifetime(alive=False, started_at=began, reason=reason, asked_at=asked_at)
    spent_usd, receipt = settled(with_pod_lifetime(world, lifetime))
    assert spent_usd == receipt.spent_usd == price(decision, receipt.seconds) > decision.choice.p95_usd
    assert receipt.cause == "money"
    assert receipt.seconds == pytest.approx(100.0 + (clock_s or EXIT_WAIT_S))


def test_the_receipt_has_the_reason_that_the_cluster_reports_for_the_end_of_the_pod(
    world: World, decision: Decision
) -> None:
    world.clock.sleep(10)
    _, receipt = settled(with_pod_lifetime(world, PodLifetime(alive=False, reason="Error, exit code 3")))
    assert (receipt.status, receipt.cause, receipt.reason) == ("failed", "code", "Error, exit code 3")


def test_an_external_component_is_not_treated_as_dead_before_the_end_of_its_run(
    world: World, decision: Decision
) -> None:
    world.clock.sleep(3600)
    ledger = Ledger(world.store, world.clock, str(world.pod))
    assert (
        settle_lost_pods(ledger, world.store, partial(lifetime_of, world), "r", "r", exclude={"overhead-1"})
        == []
    )
    assert str(decision.question.attempt_id) in ledger.state("r").reservations


@pytest.mark.parametrize("is_alive", [True, False])
def test_the_run_stays_open_while_the_pod_of_an_external_component_is_alive(
    world: World, decision: Decision, is_alive: bool
) -> None:
    world.clock.sleep(10 * world.policy.abandoned_after_s)
    sweep_world(with_pod_lifetime(world, PodLifetime(alive=is_alive)), Queue())
    state = Ledger(world.store, world.clock, str(world.pod)).state("r")
    assert (str(decision.question.attempt_id) in state.reservations, state.closed) == (is_alive, not is_alive)


def test_the_result_of_an_external_component_is_not_looked_up_in_the_cache(decision: Decision) -> None:
    assert decision.question.digests["cache"] == ""
    assert decision.choice is not None
    assert not decision.choice.cached
