"""External components that a retry of another branch leaves open."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from external_world import THEIRS, ExternalRun, choice_of, external_run, recipe_in
from runtime_world import INGEST, FakeCluster, run_request

from shoestring.core.interfaces import PodLifetime
from shoestring.core.pod_ref import ClusterPod
from shoestring.data.run_records import open_run
from shoestring.runtime.admission.stage_request import StageInputs
from shoestring.runtime.route_step.route import decide_and_reserve
from shoestring.runtime.supervisor.attempt import Attempt
from shoestring.runtime.supervisor.supervisor import write_heartbeat

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
