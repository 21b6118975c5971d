"""The scenarios on Argo Workflows, several at a time: most of their time goes by waiting for pods."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from argo_runs import EndedRun, PodHistory
from engine_scenarios.argo_engine import ArgoEngine
from engine_scenarios.engine import Place
from engine_scenarios.scenarios import SCENARIOS
from kind_cluster import NAMESPACE, Kind
from stopped_supervisor import silent_then_past_its_deadline

pytestmark = pytest.mark.kind
NIGHTLY = {"main_job", "refusal", "own_stage", "branches", "pod_deleted", "terminated_and_resumed"}
"""They would take the suite beyond 15 minutes, and other tests of this folder cover most of what they do."""
SMOKE = {"main_job", "pod_deleted", "silent_then_past_its_deadline"}
ON_ARGO = {scenario.__name__: scenario for scenario in (*SCENARIOS, silent_then_past_its_deadline)}
AT_ONCE = 2
"""As many as there are nodes for stages without a GPU. A third run finds no room on them: its stage goes to
the node with GPUs, which has no images, or its deadline passes.
"""


def marks(name: str) -> list[pytest.MarkDecorator]:
    sets = ((NIGHTLY, pytest.mark.nightly), (SMOKE, pytest.mark.smoke))
    return [mark for names, mark in sets if name in names]


@pytest.fixture(scope="module")
def engine(
    argo: Kind,
    pods: PodHistory,
    begun_own_run: Future[EndedRun] | None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ArgoEngine]:
    if begun_own_run:
        begun_own_run.result()  # It uses the same WorkflowTemplate, which the driver deletes at its end.
    engine = ArgoEngine(Place(argo.context, NAMESPACE), pods, tmp_path_factory.mktemp("engine"))
    yield engine
    engine.clean_up()


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, engine: ArgoEngine, package: Path
) -> Iterator[dict[str, Future[None]]]:
    """The selected scenarios, which begin at once."""
    selected = {item.name.partition("[")[2].rstrip("]") for item in request.session.items}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {
            name: pool.submit(scenario, engine, package)
            for name, scenario in ON_ARGO.items()
            if name in selected
        }


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks(name)) for name in ON_ARGO])
def test_on_argo(outcomes: dict[str, Future[None]], engine: ArgoEngine, package: Path, name: str) -> None:
    # A test that fails for a reason of the cluster's runs again, without its first outcome.
    if outcome := outcomes.pop(name, None):
        outcome.result()
    else:
        ON_ARGO[name](engine, package)
