"""One cluster for all tests of this folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml
from authored import BLOCK, PAGE, put
from kind_cluster import OWN_IMAGE, ROOT, CommandFailed, Kind, rendered, run
from on_argo import RAIN, Going, compiled, end, store_of, tell_to_stop

from shoestring.rules import IMAGES
from shoestring.seams import Store

STAGES = (IMAGES["base"], IMAGES["train"], OWN_IMAGE)
# The first run goes on the cheapest pool; the sweeper runs beside the control plane, and on worker3, whose GPUs are dear numbers, nothing.
FIRST, LATER = "worker2", {"control-plane": (IMAGES["base"],), "worker": STAGES}


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An author's, as the authoring page has it, and its image: that goes onto the nodes with ours, whose layers it shares."""
    folder = tmp_path_factory.mktemp("own")
    run("env", "--chdir", str(folder), sys.executable, "-m", "shoestring", "new", "dedupe", "--into", "dedupe-rows")
    made = folder / "dedupe-rows"
    for _, said in BLOCK.findall(PAGE):
        if said.startswith("# dedupe_rows/stage.py"):
            put(made, said)
    pipeline = made / "dedupe_rows" / "pipeline.py"
    pipeline.write_text(pipeline.read_text().replace("own(stage)", 'own(stage, by=["origin"])'))
    run("docker", "build", "--quiet", "--tag", OWN_IMAGE, str(made))
    return made


@pytest.fixture(scope="session")
def side_by_side() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool


@pytest.fixture(scope="session")
def kind(package: Path, side_by_side: ThreadPoolExecutor) -> Iterator[Kind]:
    """A fresh cluster with Argo, the kind overlay and the images; SHOESTRING_KIND_KEEP=1 takes the one that is there, and leaves it."""
    cluster, keep = Kind("shoestring"), os.environ.get("SHOESTRING_KIND_KEEP") == "1"
    is_fresh = not (keep and cluster.name in run("kind", "get", "clusters").split())
    if is_fresh:
        run(str(ROOT / "tests/kind/up.sh"), cluster.name, timeout_s=600)
    steps = [side_by_side.submit(cluster.load, FIRST, STAGES)]
    steps += [side_by_side.submit(run, str(ROOT / "tests/kind/argo.sh"), cluster.name, timeout_s=600)] if is_fresh else []
    # Before the overlay: a pod that finds no image waits longer and longer for it.
    for step in steps:
        step.result()
    cluster.apply(rendered("kind"))
    try:
        cluster.kubectl("rollout", "status", "deployment/s3", "--timeout", "120s")
    except CommandFailed as failed:
        raise CommandFailed(f"{failed}\n{cluster.kubectl('describe', 'pods')}") from None
    yield cluster
    if not keep:
        run("kind", "delete", "cluster", "--name", cluster.name)


@pytest.fixture(scope="session", autouse=True)
def on_their_way(kind: Kind, side_by_side: ThreadPoolExecutor) -> list[Future[None]]:
    """The images to the other nodes, while a first run goes."""
    return [side_by_side.submit(kind.load, *each) for each in LATER.items()]


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
