"""External components that a retry of another branch leaves open, and pods that no attempt pays for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from external_world import JOB, THEIRS, ExternalRun, choice_of, external_run, recipe_in
from runtime_world import INGEST, FakeCluster, run_request

from shoestring.core.interfaces import PodLifetime
from shoestring.core.pod_ref import ClusterPod
from shoestring.core.receipt import Receipt
from shoestring.data.run_records import open_run, read_record
from shoestring.runtime.admission.stage_request import StageInputs
from shoestring.runtime.records.overhead import overhead_reservation
from shoestring.runtime.route_step.external_components import settle_external
from shoestring.runtime.route_step.route import decide_and_reserve
from shoestring.runtime.settlement.settle import settle_run
from shoestring.runtime.supervisor.attempt import Attempt
from shoestring.runtime.supervisor.supervisor import write_heartbeat
from shoestring.spending.heartbeat import last_heartbeat
from shoestring.spending.meter import cost_usd

THEIRS_FIRST = THEIRS.model_copy(update={"after": ()})
OTHER = INGEST[0].model_copy(update={"after": ()})
DECIDED_AGAIN_S = 70
"""After this time a router that is run again decides again."""


@pytest.fixture
def external(laptop: Path, tmp_path: Path) -> ExternalRun:
    return external_run(laptop, tmp_path)


def lose_component(external: ExternalRun) -> None:
    """Route the other branch, an external component whose pod is lost."""
    external.route((OTHER,))
    pod = external.start_pod("other-pod", OTHER.stage)
    external.world.clock.sleep(5)
    external.queue.fail(pod, "")


def lose_supervised(external: ExternalRun) -> None:
    """Route the other branch, a stage with a supervisor whose pod is lost."""
    run = open_run(external.world.store, "r")
    decision, key = decide_and_reserve(
        external.world, run, run_request(recipe_in(external.folder), "r", (OTHER,)), StageInputs()
    )
    world = replace(external.world, pod=ClusterPod("ns", "8", str(decision.question.attempt_id)))
    now_s, p95_usd = world.clock.monotonic_s(), choice_of(decision).p95_usd
    write_heartbeat(Attempt(world, run, decision, key, {}, now_s, p95_usd), "running")
    world.clock.sleep(5)
    assert isinstance(world.cluster, FakeCluster)
    world.cluster.lifetimes[str(world.pod)] = PodLifetime(alive=False, finished_at=world.clock.now())


def settle_early(external: ExternalRun) -> None:
    """Settle the component while its pod runs, and leave the account open."""
    run = open_run(external.world.store, "r")
    settle_external(external.world, run, run.start)


@pytest.mark.parametrize("lose", [lose_component, lose_supervised])
def test_a_retry_leaves_the_component_of_another_branch_open_and_metered(
    external: ExternalRun, lose: Callable[[ExternalRun], None]
) -> None:
    external.route((THEIRS_FIRST, OTHER))
    external.start_pod("first")
    lose(external)
    external.world.clock.sleep(DECIDED_AGAIN_S)
    lose(external)
    assert set(external.state.settled_usd) == {"ingest-1"}
    assert {"theirs-1", "ingest-2"} <= external.state.reservations.keys()
    reserved_usd = external.reserved_usd
    (said,) = external.run_to_end()
    assert said.startswith("first was ended (theirs-1 of r): it cost $")
    assert external.reserved_usd > reserved_usd
    assert external.settle().cause == "money" and external.state.closed


def test_a_retry_settles_the_earlier_attempt_of_its_own_component(external: ExternalRun) -> None:
    external.route()
    external.queue.fail(external.start_pod("first"), "")
    external.world.clock.sleep(DECIDED_AGAIN_S)
    external.route()
    assert set(external.state.settled_usd) == {"theirs-1"} and "theirs-2" in external.state.reservations


@pytest.mark.parametrize("settle", [settle_early, ExternalRun.settle])
def test_a_pod_whose_attempts_are_all_settled_is_ended_at_the_next_look(
    external: ExternalRun, settle: Callable[[ExternalRun], object]
) -> None:
    external.route()
    external.start_pod("first")
    assert external.run(10) == []
    settle(external)
    (said,) = external.watch.look()
    settled_usd = external.receipt().spent_usd
    assert settled_usd > 0 and said == (
        f"first was ended (theirs-1 of r): theirs-1 was settled at ${settled_usd}, and no open attempt pays "
        "for it: run r again to get a new attempt"
    )
    assert external.queue.ended == {JOB: "Unpaid"} and external.watch.look() == []


def test_a_pod_with_its_own_open_attempt_is_not_ended_for_a_settled_one_before_it(
    external: ExternalRun,
) -> None:
    external.route()
    external.queue.fail(external.start_pod("first"), "")
    external.world.clock.sleep(DECIDED_AGAIN_S)
    external.route()
    external.start_pod("second")
    assert external.run(20) == [] and external.queue.ended == {}
    settle_early(external)
    assert "theirs-2 was settled at $" in external.watch.look()[0]


def test_a_pod_of_a_component_that_was_never_routed_is_not_ended(external: ExternalRun) -> None:
    external.route((OTHER, THEIRS))
    external.start_pod("first")
    assert external.run(20) == [] and external.queue.ended == {}


def test_only_a_running_pod_is_unpaid(external: ExternalRun) -> None:
    external.route()
    external.queue.fail(external.start_pod("first"), "")
    for name in ("second", "third", "fourth"):
        external.start_pod(name)
    settle_early(external)
    first, second, third, fourth = external.queue.pods()
    pods = (first, replace(second, ending=True), replace(third, pending=True), fourth)
    assert [each.pod.ref.name for each in external.watch.reader.read(pods).unpaid] == ["fourth"]


def test_an_open_account_pays_for_a_pod_that_was_settled_early_up_to_its_end(external: ExternalRun) -> None:
    choice = choice_of(external.route())
    external.start_pod("first")
    external.run(10)
    settle_early(external)
    external.world.clock.sleep(15)
    external.run(5)
    (ended,) = external.queue.failed
    lived = ended.lifetime
    assert lived.started_at and lived.finished_at
    external.settle()
    lived_s = (lived.finished_at - lived.started_at).total_seconds()
    assert external.state.settled_usd["theirs-1"] == cost_usd(choice.usd_per_hour, lived_s) and lived_s == 25


@pytest.mark.parametrize("is_listed_last", [False, True])
def test_a_new_start_with_an_open_attempt_is_not_ended_for_the_settled_one_of_the_start_before(
    external: ExternalRun, is_listed_last: bool
) -> None:
    external.route()
    external.start_pod("old")
    assert external.run(5) == []
    external.settle()
    assert external.state.closed
    external.world.clock.sleep(DECIDED_AGAIN_S)
    external.route()
    assert external.run(5) == []
    new = external.start_pod("new")
    if not is_listed_last:
        external.queue.running = [new, *external.queue.running[:-1]]
    assert external.run(20) == [] and external.queue.ended == {}
    assert [each.name for each in external.watch.reader.read(external.queue.pods()).external] == ["theirs-2"]


def test_a_pod_of_an_earlier_start_is_ended_although_the_newest_start_has_not_routed_its_stage(
    external: ExternalRun,
) -> None:
    external.route()
    external.start_pod("old")
    external.settle()
    external.route((OTHER, THEIRS))
    assert external.state.settled_usd == {}
    (said,) = external.watch.look()
    assert "theirs-1 was settled at $" in said


def test_a_stage_with_a_supervisor_that_has_settled_is_left_to_end_itself(external: ExternalRun) -> None:
    external.route((THEIRS_FIRST, OTHER))
    lose_supervised(external)
    external.world.clock.sleep(DECIDED_AGAIN_S)
    settle_run(external.world, "r")
    assert "ingest-1" in external.state.settled_usd
    external.start_pod("other-pod", OTHER.stage)
    assert external.run(10) == [] and external.queue.ended == {}


def test_a_pod_that_retry_makes_after_the_run_has_ended_is_metered_and_booked_in_the_next_start(
    external: ExternalRun,
) -> None:
    choice = external.route().choice
    external.queue.fail(external.start_pod("first"), "Error")
    assert external.settle().status == "failed" and external.state.closed
    external.world.clock.sleep(600)
    pod = external.start_pod("retried")
    began_at = external.world.clock.now()
    assert external.run(10) == []
    run = open_run(external.world.store, "r")
    assert [each.account for each in run.starts] == ["r", "r.2"]
    assert external.state.reservations.keys() == {"theirs-2", overhead_reservation(run.start)}
    first, again = (last_heartbeat(external.world.store, "r", name) for name in ("theirs-1", "theirs-2"))
    assert first and again and again.pod == first.pod
    external.world.clock.sleep(20)
    external.queue.fail(pod, "")
    settle_run(external.world, "r")
    receipt = read_record(external.world.store, "runs/r/receipts/theirs-2.json", Receipt)
    assert (receipt.status, receipt.started_at) == ("done", began_at)
    assert choice and receipt.spent_usd == cost_usd(choice.usd_per_hour, 30) and external.state.closed


def test_a_retried_pod_without_money_is_ended_with_the_command_that_continues_the_run(
    external: ExternalRun,
) -> None:
    external.route()
    external.start_pod("first")
    external.run_to_end()
    assert external.settle().cause == "money" and external.state.closed
    external.world.clock.sleep(600)
    external.start_pod("retried")
    (said,) = external.watch.look()
    assert said.startswith("retried was ended (theirs-1 of r): a budget of $0.010000 is too small")
    assert said.endswith("`shoestring upload --run --run-id r --budget USD`")
    assert external.queue.ended == {JOB: "Unpaid"}
