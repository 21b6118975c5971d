"""The scenarios on Argo Workflows, several at a time: most of their time goes by waiting for pods."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import pytest
from ended_with_notice import ended_with_notice
from engine_scenarios.argo_engine import ArgoEngine
from engine_scenarios.retries import check_stage_retried, failed_run
from engine_scenarios.scenarios import SCENARIOS
from lost_item import lost_item
from refused_branch import refused_branch
from stopped_supervisor import silent_then_past_its_deadline

pytestmark = pytest.mark.kind


def retried_with_an_exit_step(engine: ArgoEngine, package: Path) -> None:
    """Where the exit step runs again, it and the reaper close the run's second start."""
    run = failed_run(engine, "stage")
    engine.change_to_retry(run.engine_id, runs_exit_step=True)
    check_stage_retried(engine, run)


NIGHTLY = {"branches", "loops", "pod_deleted", "terminated_and_resumed"}
"""Each takes minutes, of which `make kind` has 25, and other scenarios cover most of what they do."""
SMOKE = {"main_job", "pod_deleted", "silent_then_past_its_deadline"}
OF_ARGO = (
    *SCENARIOS,
    silent_then_past_its_deadline,
    ended_with_notice,
    refused_branch,
    lost_item,
    retried_with_an_exit_step,
)
ON_ARGO = {scenario.__name__: scenario for scenario in OF_ARGO}
AT_ONCE = 2
"""As many as there are nodes for stages without a GPU. A third run finds no room on them: its stage goes to
the node with GPUs, which has no images, or its deadline passes.
"""
ALONE = {"loops", "lost_item"}
"""Each has two stages at once, and begins when all others have ended."""


def marks(name: str) -> list[pytest.MarkDecorator]:
    sets = ((NIGHTLY, pytest.mark.nightly), (SMOKE, pytest.mark.smoke))
    return [mark for names, mark in sets if name in names]


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, engine: ArgoEngine, package: Path, second_node: Future[None]
) -> Iterator[dict[str, Future[None]]]:
    """The selected scenarios. The first one begins at once, the others when the second node is ready."""
    selected = {item.name.partition("[")[2].rstrip("]") for item in request.session.items}
    first, *others = sorted((name for name in ON_ARGO if name in selected), key=ALONE.__contains__)

    def go(name: str, earlier: list[Future[None]]) -> None:
        second_node.result()
        wait(earlier)
        ON_ARGO[name](engine, package)

    pool = ThreadPoolExecutor(AT_ONCE)
    begun = {first: pool.submit(ON_ARGO[first], engine, package)}
    for name in others:
        # A thread never waits for one that begins after it.
        begun[name] = pool.submit(go, name, [*begun.values()] if name in ALONE else [])
    yield begun
    # Where the suite is interrupted, those that have not begun do not begin.
    pool.shutdown(wait=False, cancel_futures=True)


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks(name)) for name in ON_ARGO])
def test_on_argo(outcomes: dict[str, Future[None]], engine: ArgoEngine, package: Path, name: str) -> None:
    # A test that fails for a reason of the cluster's runs again, without its first outcome.
    if outcome := outcomes.pop(name, None):
        outcome.result()
    else:
        ON_ARGO[name](engine, package)
