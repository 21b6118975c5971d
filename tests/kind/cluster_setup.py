"""The kind clusters of the tests and of `make cluster`: nodes, images, Argo Workflows, and the kind overlay.

python tests/kind/cluster_setup.py up|down
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import yaml
from kind_cluster import ROOT, CommandFailed, Kind, PackedImages, pack_images, render_overlay, run

from shoestring.config.world import IMAGES
from shoestring.pipelines.argo import workflow_template
from shoestring.pipelines.train import train_pipeline

CLUSTER, TEST_CLUSTER = Kind("shoestring"), Kind("shoestring-tests")
# The nodes that run stages, the cheapest first, and the node of the control plane and the reaper. The GPUs of
# the third only exist as a number, and are expensive: the tests run nothing there, and load no images.
FIRST_NODE, SECOND_NODE, GPU_NODE, CONTROL_PLANE = "worker2", "worker", "worker3", "control-plane"
STAGE_IMAGES, REAPER_IMAGES = (IMAGES["base"], IMAGES["train"]), (IMAGES["base"],)
TOOLS = ("docker", "kind", "kubectl")


class ClusterSetup:
    """The steps to a cluster that runs stages. Steps that do not depend on each other run side by side.

    `keep_existing`: use a cluster of this name that exists, instead of creating it again.
    """

    def __init__(self, cluster: Kind, executor: ThreadPoolExecutor, *, keep_existing: bool = False) -> None:
        self.cluster, self._executor = cluster, executor
        self._created: Future[str] | None = None
        if not (keep_existing and cluster.name in run("kind", "get", "clusters").split()):
            script = str(ROOT / "tests/kind/create_cluster.sh")
            self._created = executor.submit(run, script, cluster.name, timeout_s=600)
        self._stage_images: Future[PackedImages] | None = None
        self._reaper_images: Future[PackedImages] | None = None

    def pack(self, folder: Path, stage_images: Sequence[str]) -> None:
        """Begin to pack the images of stages and of the reaper into archives below `folder` (about 2 GB)."""
        self._stage_images = self._executor.submit(pack_images, folder / "stages.tar", stage_images)
        self._reaper_images = self._executor.submit(pack_images, folder / "reaper.tar", REAPER_IMAGES)

    def prepare_first_node(self) -> None:
        """Wait until one node can run stages, with Argo and the kind overlay, whose reaper is on the node of
        the control plane. Raises CommandFailed.
        """
        assert self._stage_images and self._reaper_images
        if self._created:
            self._created.result()
        # A router's pod may go to any node, and would wait for its image on a node without it.
        self.cluster.kubectl("cordon", self.cluster.node(SECOND_NODE))
        steps: list[Future[object]] = [
            self._executor.submit(self.cluster.load, FIRST_NODE, self._stage_images.result()),
            self._executor.submit(self.cluster.load, CONTROL_PLANE, self._reaper_images.result()),
        ]
        if self._created:
            script = str(ROOT / "tests/kind/install_argo.sh")
            steps.append(self._executor.submit(run, script, self.cluster.name, timeout_s=600))
        # Before the overlay: a pod that does not find its image is retried at growing intervals.
        for step in steps:
            step.result()
        self.cluster.apply(render_overlay("kind"))
        try:
            self.cluster.kubectl("rollout", "status", "deployment/s3", "--timeout", "120s")
        except CommandFailed as failed:
            raise CommandFailed(f"{failed}\n{self.cluster.kubectl('describe', 'pods')}") from None

    def prepare_node(self, node: str) -> Future[None]:
        """Begin to load the images onto another node of stages; return what to wait for."""
        assert self._stage_images
        stage_images = self._stage_images

        def load() -> None:
            self.cluster.load(node, stage_images.result())
            self.cluster.kubectl("uncordon", self.cluster.node(node))

        return self._executor.submit(load)


def create() -> None:
    """Create the cluster, with the WorkflowTemplate of the training pipeline, and print the next command."""
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        raise SystemExit(f"make cluster needs {', '.join(TOOLS)}; missing: {', '.join(missing)}")
    print(
        "creating the kind cluster shoestring: 4 nodes, Argo Workflows and an S3 server; this takes minutes"
    )
    folder = Path(tempfile.mkdtemp(prefix="shoestring-images-"))
    try:
        with ThreadPoolExecutor() as executor:
            setup = ClusterSetup(CLUSTER, executor)
            setup.pack(folder, STAGE_IMAGES)
            setup.prepare_first_node()
            for node in (SECOND_NODE, GPU_NODE):
                setup.prepare_node(node).result()
        CLUSTER.apply(yaml.safe_dump(workflow_template(train_pipeline)))
    except CommandFailed as failed:
        raise SystemExit(str(failed)) from None
    finally:
        shutil.rmtree(folder)
    print(
        f"the cluster is ready (kubectl --context {CLUSTER.context}); next:\n\n"
        f"    .venv/bin/shoestring run flights --budget 0.05 --deadline 900 --on {CLUSTER.context}\n\n"
        "`make cluster-down` deletes the cluster"
    )


def delete() -> None:
    run("kind", "delete", "cluster", "--name", CLUSTER.name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=("up", "down"))
    {"up": create, "down": delete}[parser.parse_args().action]()


if __name__ == "__main__":
    main()
