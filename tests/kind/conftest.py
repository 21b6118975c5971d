"""One cluster for all tests of this folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
import yaml
from authored import BLOCK, PAGE, put
from kind_cluster import OWN_IMAGE, ROOT, CommandFailed, Kind, rendered, run
from on_argo import RAIN, compiled, store_of

from shoestring.rules import IMAGES
from shoestring.seams import Store

# The sweeper runs beside the control plane; worker3's GPUs are dear numbers, on which nothing runs.
IMAGES_ON = {("worker", "worker2"): (IMAGES["base"], IMAGES["train"], OWN_IMAGE), ("control-plane",): (IMAGES["base"],)}


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
def kind(package: Path) -> Iterator[Kind]:
    """A fresh cluster with Argo, the kind overlay and the images; SHOESTRING_KIND_KEEP=1 takes the one that is there, and leaves it."""
    cluster, keep = Kind("shoestring"), os.environ.get("SHOESTRING_KIND_KEEP") == "1"
    scripts, steps = ROOT / "tests" / "kind", [partial(cluster.load, *each) for each in IMAGES_ON.items()]
    if not (keep and cluster.name in run("kind", "get", "clusters").split()):
        run(str(scripts / "up.sh"), cluster.name, timeout_s=600)
        steps.append(partial(run, str(scripts / "argo.sh"), cluster.name, timeout_s=600))
    # Before the overlay: a pod that finds no image waits longer and longer for it.
    with ThreadPoolExecutor() as side_by_side:
        for step in [side_by_side.submit(each) for each in steps]:
            step.result()
    cluster.apply(rendered("kind"))
    try:
        cluster.kubectl("rollout", "status", "deployment/s3", "--timeout", "120s")
    except CommandFailed as failed:
        raise CommandFailed(f"{failed}\n{cluster.kubectl('describe', 'pods')}") from None
    yield cluster
    if not keep:
        run("kind", "delete", "cluster", "--name", cluster.name)


@pytest.fixture(scope="session")
def argo(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Kind:
    """The cluster, with the WorkflowTemplate."""
    kind.apply(yaml.safe_dump(compiled(tmp_path_factory.mktemp("compiled"))))
    return kind


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
