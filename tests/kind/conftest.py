"""One cluster for all tests of this folder."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml
from authored import BLOCK, PAGE, put
from kind_cluster import OWN_IMAGE, ROOT, CommandFailed, Kind, Packed, pack, rendered, run
from on_argo import RAIN, Ended, Going, Pods, compiled, end, recipe, store_of, tell_to_stop, watched

from shoestring.config.world import IMAGES
from shoestring.core.interfaces import Store

CLUSTER, KEEP = Kind("shoestring"), os.environ.get("SHOESTRING_KIND_KEEP") == "1"
# What stages and the author's own run in, and what the sweeper does.
STAGES, SWEEPER = (IMAGES["base"], IMAGES["train"], OWN_IMAGE), (IMAGES["base"],)
# The first run goes on the cheapest pool; the sweeper runs beside the control plane, and on worker3, whose GPUs are dear numbers, nothing.
FIRST, SECOND, PLANE = "worker2", "worker", "control-plane"
Packing = dict[tuple[str, ...], Future[Packed]]


@pytest.fixture(scope="session")
def side_by_side() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool


@pytest.fixture(scope="session")
def fresh(side_by_side: ThreadPoolExecutor) -> Future[str] | None:
    """A fresh cluster in the making; None: SHOESTRING_KIND_KEEP=1, and there is one."""
    if KEEP and CLUSTER.name in run("kind", "get", "clusters").split():
        return None
    return side_by_side.submit(run, str(ROOT / "tests/kind/up.sh"), CLUSTER.name, timeout_s=600)


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An author's, as the authoring page has it, and its image: that goes onto the nodes with ours, whose layers it shares."""
    folder = tmp_path_factory.mktemp("own")
    run(
        "env",
        "--chdir",
        str(folder),
        sys.executable,
        "-m",
        "shoestring",
        "new",
        "dedupe",
        "--into",
        "dedupe-rows",
    )
    made = folder / "dedupe-rows"
    for _, said in BLOCK.findall(PAGE):
        if said.startswith("# dedupe_rows/stage.py"):
            put(made, said)
    pipeline = made / "dedupe_rows" / "pipeline.py"
    pipeline.write_text(pipeline.read_text().replace("own(stage)", 'own(stage, by=["origin"])'))
    run("docker", "build", "--quiet", "--tag", OWN_IMAGE, str(made))
    return made


@pytest.fixture(scope="session")
def packing(
    package: Path, side_by_side: ThreadPoolExecutor, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Packing]:
    """The archives, in the making while the cluster is; two gigabytes that nobody wants to keep."""
    folder = tmp_path_factory.mktemp("images")
    yield {
        images: side_by_side.submit(pack, folder / f"{len(images)}.tar", images)
        for images in (STAGES, SWEEPER)
    }
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def kind(fresh: Future[str] | None, packing: Packing, side_by_side: ThreadPoolExecutor) -> Iterator[Kind]:
    """The cluster with Argo, the kind overlay and the images; with SHOESTRING_KIND_KEEP=1 it is left there."""
    if fresh:
        fresh.result()
    # A router's pod goes to any node, and would wait for its image there.
    CLUSTER.kubectl("cordon", CLUSTER.node(SECOND))
    steps: list[Future[object]] = [side_by_side.submit(CLUSTER.load, FIRST, packing[STAGES].result())]
    steps += (
        [side_by_side.submit(run, str(ROOT / "tests/kind/argo.sh"), CLUSTER.name, timeout_s=600)]
        if fresh
        else []
    )
    # Before the overlay: a pod that finds no image waits longer and longer for it.
    for step in steps:
        step.result()
    CLUSTER.apply(rendered("kind"))
    try:
        CLUSTER.kubectl("rollout", "status", "deployment/s3", "--timeout", "120s")
    except CommandFailed as failed:
        raise CommandFailed(f"{failed}\n{CLUSTER.kubectl('describe', 'pods')}") from None
    yield CLUSTER
    if not KEEP:
        run("kind", "delete", "cluster", "--name", CLUSTER.name)


@pytest.fixture(scope="session", autouse=True)
def on_their_way(kind: Kind, packing: Packing, side_by_side: ThreadPoolExecutor) -> list[Future[None]]:
    """The images to the other nodes, while a first run goes."""

    def second() -> None:
        kind.load(SECOND, packing[STAGES].result())
        kind.kubectl("uncordon", kind.node(SECOND))

    return [side_by_side.submit(second), side_by_side.submit(kind.load, PLANE, packing[SWEEPER].result())]


@pytest.fixture(autouse=True)
def everywhere(on_their_way: list[Future[None]]) -> None:
    """Every test finds every node ready; a module's own run, which comes before, does not wait for it."""
    for each in on_their_way:
        each.result()


@pytest.fixture(scope="session")
def argo(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Kind:
    """The cluster, with the WorkflowTemplate."""
    kind.apply(yaml.safe_dump(compiled(tmp_path_factory.mktemp("compiled"))))
    return kind


@pytest.fixture(scope="session")
def pods(argo: Kind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pods]:
    with watched(argo, tmp_path_factory.mktemp("watched") / "pods.json") as seen:
        yield seen


@pytest.fixture(scope="session")
def own_run(
    argo: Kind,
    package: Path,
    on_their_way: list[Future[None]],
    side_by_side: ThreadPoolExecutor,
    tmp_path_factory: pytest.TempPathFactory,
) -> Future[Ended]:
    """Of the author's pipeline, as soon as every node is ready: beside the first run, which leaves the machine idle half of its time."""
    folder = tmp_path_factory.mktemp("own-run")
    compiling = (
        "compile",
        "--target",
        "argo",
        "--pipeline",
        "dedupe_rows.pipeline:pipeline",
        "--out",
        str(folder),
    )

    def go() -> Ended:
        for each in on_their_way:
            each.result()
        run("env", "--chdir", str(package), sys.executable, "-m", "shoestring", *compiling)
        argo.apply((folder / "dedupe-rows.yaml").read_text())
        return Going(argo, recipe(folder, RAIN), "--template", "dedupe-rows").end()

    return side_by_side.submit(go)


@pytest.fixture(scope="session")
def leave(argo: Kind) -> Iterator[Callable[[Going], None]]:
    """Tell a run to stop, and go on: how it ends is seen when all tests are over."""
    left: list[Going] = []

    def tell(going: Going) -> None:
        tell_to_stop(argo, going)
        left.append(going)

    yield tell
    for going in left:
        assert end(argo, going).code == 1


@pytest.fixture(scope="module")
def store(argo: Kind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    before = dict(os.environ)
    with store_of(argo, tmp_path_factory.mktemp("store")) as opened:
        yield opened
    os.environ.clear()
    os.environ |= before


@pytest.fixture(scope="module")
def rain(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("recipe") / "rain.yaml"
    path.write_text(RAIN)
    return str(path)
