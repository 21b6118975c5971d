"""One cluster for all tests of this folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from cluster_report import cluster_fault, describe_failure
from cluster_setup import SECOND_NODE, STAGE_IMAGES, TEST_CLUSTER, ClusterSetup
from engine_scenarios.engine import Place
from engine_scenarios.own_package import OWN_IMAGE, write_package
from engine_scenarios.pod_history import watch_pods
from kind_cluster import NAMESPACE, Kind, run
from kind_documentation import Documentation, DocumentedArgo

from shoestring.routing.placement import RUN_LABEL

KEEP = os.environ.get("SHOESTRING_KIND_KEEP") == "1"
FAILURES = pytest.StashKey[list[str]]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let a test that fails for a reason of the cluster's own run a second time."""

    def failed_by_the_cluster(error: BaseException) -> bool:
        return bool(cluster_fault(TEST_CLUSTER, error))

    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.flaky(reruns=1, condition=failed_by_the_cluster))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember the state of the cluster after each failure."""
    report = yield
    if report.failed:
        failures = item.config.stash.setdefault(FAILURES, [])
        failures.append(describe_failure(TEST_CLUSTER, item.name, report.longreprtext))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if failures := config.stash.get(FAILURES, None):
        terminalreporter.section("the cluster after the failed tests")
        terminalreporter.write_line("\n".join(failures))


@pytest.fixture(scope="session")
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool


@pytest.fixture(scope="session")
def documentation(tmp_path_factory: pytest.TempPathFactory) -> Documentation:
    return Documentation(tmp_path_factory.mktemp("kubeconfig") / "config")


@pytest.fixture(scope="session")
def setup(executor: ThreadPoolExecutor) -> ClusterSetup:
    """The cluster while it is created; with SHOESTRING_KIND_KEEP=1, an existing cluster is used."""
    return ClusterSetup(TEST_CLUSTER, executor, keep_existing=KEEP)


@pytest.fixture(scope="session")
def package(
    setup: ClusterSetup, documentation: Documentation, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """An author's package, as the authoring page describes it, and its image, which shares layers with
    Shoestring's images.

    It is made while the cluster is created.
    """
    package = write_package(tmp_path_factory.mktemp("own"))
    documentation.run(None, package, "docker build --tag dedupe_rows")
    return package


@pytest.fixture(scope="session")
def kind(setup: ClusterSetup, package: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kind]:
    """The cluster with Argo, the kind overlay and one node with images; SHOESTRING_KIND_KEEP=1 leaves it
    after the tests.
    """
    folder = tmp_path_factory.mktemp("images")
    setup.pack(folder, (*STAGE_IMAGES, OWN_IMAGE))
    setup.prepare_first_node()
    yield TEST_CLUSTER
    shutil.rmtree(folder)
    if not KEEP:
        run("kind", "delete", "cluster", "--name", TEST_CLUSTER.name)


@pytest.fixture(scope="session", autouse=True)
def second_node(kind: Kind, setup: ClusterSetup) -> Future[None]:
    """The second node of stages, which gets its images while a first run goes on."""
    return setup.prepare_node(SECOND_NODE)


@pytest.fixture(autouse=True)
def all_nodes(second_node: Future[None]) -> None:
    """Make every test wait until all nodes are ready. The first scenario does not wait."""
    second_node.result()


@pytest.fixture(scope="session")
def argo(kind: Kind, documentation: Documentation, tmp_path_factory: pytest.TempPathFactory) -> Kind:
    """The cluster, with the WorkflowTemplates of the training and of the prediction."""
    folder = tmp_path_factory.mktemp("compiled")
    documentation.run(kind, folder, "shoestring compile --target argo")
    for name in ("shoestring-train", "shoestring-predict"):
        documentation.run(kind, folder, f"kubectl --namespace shoestring apply --filename argo/{name}")
    return kind


@pytest.fixture(scope="session")
def engine(
    argo: Kind, documentation: Documentation, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DocumentedArgo]:
    """The driver; it deletes at the end what it made on the cluster."""
    place, watched = Place(argo.context, NAMESPACE), tmp_path_factory.mktemp("watched")
    with watch_pods(place.context, place.namespace, watched, RUN_LABEL) as history:
        engine = DocumentedArgo(place, history, tmp_path_factory.mktemp("engine"), documentation)
        yield engine
        engine.clean_up()
