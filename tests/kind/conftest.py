"""One cluster for all tests of this folder."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from argo_runs import (
    RAIN,
    EndedRun,
    PodHistory,
    StartedRun,
    end_run,
    open_store,
    request_stop,
    watch_pods,
    write_recipe,
)
from authoring_page import write_block
from cluster_setup import CLUSTER, STAGE_IMAGES, ClusterSetup
from documented import blocks
from kind_cluster import OWN_IMAGE, Kind, run
from kind_documentation import Documentation

from shoestring.core.interfaces import Store

KEEP = os.environ.get("SHOESTRING_KIND_KEEP") == "1"


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
    return ClusterSetup(CLUSTER, executor, keep_existing=KEEP)


@pytest.fixture(scope="session")
def package(
    setup: ClusterSetup, documentation: Documentation, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """An author's package, as the authoring page describes it, and its image, which shares layers with
    Shoestring's images.

    It is made while the cluster is created.
    """
    folder = tmp_path_factory.mktemp("own")
    new = ("-m", "shoestring", "new", "dedupe", "--into", "dedupe-rows")
    run("env", "--chdir", str(folder), sys.executable, *new)
    package = folder / "dedupe-rows"
    for block in blocks():
        if block.text.startswith("# dedupe_rows/stage.py"):
            write_block(package, block.text)
    pipeline = package / "dedupe_rows" / "pipeline.py"
    pipeline.write_text(pipeline.read_text().replace("own_stage(stage)", 'own_stage(stage, by=["origin"])'))
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
    yield CLUSTER
    shutil.rmtree(folder)
    if not KEEP:
        run("kind", "delete", "cluster", "--name", CLUSTER.name)


@pytest.fixture(scope="session", autouse=True)
def other_nodes(kind: Kind, setup: ClusterSetup) -> list[Future[None]]:
    """The other nodes, which get their images while a first run goes on."""
    return setup.prepare_other_nodes()


@pytest.fixture(autouse=True)
def all_nodes(other_nodes: list[Future[None]]) -> None:
    """Make every test wait until all nodes are ready. Session fixtures with a run do not wait."""
    for node in other_nodes:
        node.result()


@pytest.fixture(scope="session")
def argo(kind: Kind, documentation: Documentation, tmp_path_factory: pytest.TempPathFactory) -> Kind:
    """The cluster, with the WorkflowTemplate."""
    folder = tmp_path_factory.mktemp("compiled")
    documentation.run(kind, folder, "shoestring compile --target argo")
    documentation.run(kind, folder, "kubectl --namespace shoestring apply --filename argo/shoestring-train")
    return kind


@pytest.fixture(scope="session")
def pods(argo: Kind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PodHistory]:
    with watch_pods(argo, tmp_path_factory.mktemp("watched") / "pods.json") as history:
        yield history


@pytest.fixture(scope="session")
def flights(
    argo: Kind, documentation: Documentation, pods: PodHistory, own_run: Future[EndedRun]
) -> EndedRun:
    """The documented run of flights, next to the run of the author's pipeline."""
    ended = StartedRun(argo, *documentation.run_arguments(argo, "shoestring run flights")).wait()
    assert ended.code == 0, ended.err
    return ended


@pytest.fixture(scope="session")
def own_run(
    argo: Kind,
    package: Path,
    documentation: Documentation,
    other_nodes: list[Future[None]],
    executor: ThreadPoolExecutor,
) -> Future[EndedRun]:
    """A run of the author's pipeline, as soon as all nodes are ready.

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
        for node in other_nodes:
            node.result()
        run("env", "--chdir", str(package), sys.executable, "-m", "shoestring", *compile_own)
        documentation.run(argo, package, "kubectl --namespace shoestring apply --filename argo/dedupe-rows")
        recipe, *arguments = documentation.run_arguments(argo, "shoestring run my.yaml")
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
