"""One cluster for all tests of this folder."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from argo_runs import (
    RAIN,
    RUN_LABEL,
    EndedRun,
    PodHistory,
    StartedRun,
    end_run,
    open_store,
    request_stop,
    write_recipe,
)
from cluster_report import cluster_fault, describe_failure
from cluster_setup import SECOND_NODE, STAGE_IMAGES, TEST_CLUSTER, ClusterSetup
from engine_scenarios.own_package import OWN_IMAGE, write_package
from engine_scenarios.pod_history import watch_pods
from kind_cluster import NAMESPACE, Kind, run
from kind_documentation import Documentation

from shoestring.core.interfaces import Store

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
    """Make every test wait until all nodes are ready. Session fixtures with a run do not wait."""
    second_node.result()


@pytest.fixture(scope="session")
def argo(kind: Kind, documentation: Documentation, tmp_path_factory: pytest.TempPathFactory) -> Kind:
    """The cluster, with the WorkflowTemplate."""
    folder = tmp_path_factory.mktemp("compiled")
    documentation.run(kind, folder, "shoestring compile --target argo")
    documentation.run(kind, folder, "kubectl --namespace shoestring apply --filename argo/shoestring-train")
    return kind


@pytest.fixture(scope="session")
def pods(argo: Kind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PodHistory]:
    with watch_pods(argo.context, NAMESPACE, tmp_path_factory.mktemp("watched"), RUN_LABEL) as history:
        yield history


@pytest.fixture(scope="session")
def begun_own_run(request: pytest.FixtureRequest) -> Future[EndedRun] | None:
    """The run of the author's pipeline, if a selected test reads it."""
    if any("own_run" in getattr(item, "fixturenames", ()) for item in request.session.items):
        own_run: Future[EndedRun] = request.getfixturevalue("own_run")
        return own_run
    return None


@pytest.fixture(scope="session")
def flights(
    argo: Kind, documentation: Documentation, pods: PodHistory, begun_own_run: Future[EndedRun] | None
) -> EndedRun:
    """The documented run of flights, next to the run of the author's pipeline."""
    ended = StartedRun(argo, *documentation.run_arguments("shoestring run flights")).wait()
    assert ended.code == 0, ended.err
    return ended


@pytest.fixture(scope="session")
def own_run(
    argo: Kind,
    package: Path,
    documentation: Documentation,
    second_node: Future[None],
    executor: ThreadPoolExecutor,
) -> Future[EndedRun]:
    """A run of the author's pipeline, as soon as the second node is ready.

    It goes on next to the first run, which leaves the machine idle half of the time.
    """
    compile_own = (
        "compile",
        "--target",
        "argo",
        "--pipeline",
        "dedupe_rows.pipeline:pipeline",
        "--out",
        "argo",
    )

    def go() -> EndedRun:
        second_node.result()
        run("env", "--chdir", str(package), sys.executable, "-m", "shoestring", *compile_own)
        documentation.run(argo, package, "kubectl --namespace shoestring apply --filename argo/dedupe-rows")
        recipe, *arguments = documentation.run_arguments("shoestring run my.yaml")
        return StartedRun(argo, write_recipe(package, RAIN, recipe), *arguments).wait()

    return executor.submit(go)


@pytest.fixture(scope="session")
def stop_later(argo: Kind) -> Iterator[Callable[[StartedRun], None]]:
    """Request a run to stop without waiting; its end is checked after all tests."""
    stopping: list[StartedRun] = []

    def stop(started: StartedRun) -> None:
        request_stop(argo, started)
        stopping.append(started)

    yield stop
    for started in stopping:
        assert end_run(argo, started).code == 1


@pytest.fixture(scope="module")
def store(argo: Kind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    before = dict(os.environ)
    with open_store(argo, tmp_path_factory.mktemp("store")) as opened:
        yield opened
    os.environ.clear()
    os.environ |= before


@pytest.fixture(scope="module")
def rain(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of the recipe RAIN."""
    path = tmp_path_factory.mktemp("recipe") / "rain.yaml"
    path.write_text(RAIN)
    return str(path)
