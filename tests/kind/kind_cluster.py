"""A kind cluster, through plain `kind`, `docker` and `kubectl`."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from shoestring.config.world import IMAGES
from shoestring.core.pod_ref import ClusterPod

ROOT = Path(__file__).parents[2]
NAMESPACE = "shoestring"
# The settings of a pod that the `restricted` Pod Security level requires.
POD_SECURITY = {"runAsNonRoot": True, "runAsUser": 8737, "seccompProfile": {"type": "RuntimeDefault"}}
SECURITY = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
CTR = ("ctr", "--namespace", "k8s.io", "images", "ls", "--quiet")


class CommandFailed(Exception):
    """A command ended with an exit code other than 0. The message contains its output."""


def run(*command: str, stdin: str | None = None, timeout_s: float = 300.0) -> str:
    """Return what a command printed. Raises CommandFailed with all of its output."""
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout_s)
    if done.returncode:
        raise CommandFailed(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


@dataclass(frozen=True)
class PackedImages:
    """Images in one archive for all nodes that get them: layers that they share are in it once."""

    ids: frozenset[str]
    archive: Path


def pack_images(archive: Path, images: Sequence[str]) -> PackedImages:
    ids = frozenset(run("docker", "image", "inspect", "--format", "{{.Id}}", *images).split())
    run("docker", "save", "--output", str(archive), *images, timeout_s=600)
    return PackedImages(ids, archive)


@dataclass(frozen=True)
class Kind:
    """One cluster, with the nodes of tests/kind/cluster.yaml."""

    name: str

    @property
    def context(self) -> str:
        return f"kind-{self.name}"

    def node(self, name: str) -> str:
        """Return the full name of `control-plane`, `worker`, `worker2` or `worker3`."""
        return f"{self.name}-{name}"

    def kubectl(
        self, *arguments: str, stdin: str | None = None, namespace: str = NAMESPACE, timeout_s: float = 300.0
    ) -> str:
        return run(
            "kubectl",
            "--context",
            self.context,
            "--namespace",
            namespace,
            *arguments,
            stdin=stdin,
            timeout_s=timeout_s,
        )

    def get(self, *arguments: str, namespace: str = NAMESPACE) -> Any:
        """Return objects as the API's JSON."""
        return json.loads(self.kubectl("get", *arguments, "--output", "json", namespace=namespace))

    def apply(self, text: str, *arguments: str, namespace: str = NAMESPACE) -> None:
        self.kubectl(
            "apply",
            "--server-side",
            "--force-conflicts",
            "--filename",
            "-",
            *arguments,
            stdin=text,
            namespace=namespace,
        )

    def load(self, node: str, packed: PackedImages) -> None:
        """Load images onto a node, unless it has them.

        kind skips images that a node has only if the node image contains crictl; this check works with every
        node image.
        """
        if not packed.ids <= {*run("docker", "exec", self.node(node), *CTR).split()}:
            run(
                "kind",
                "load",
                "image-archive",
                "--name",
                self.name,
                "--nodes",
                self.node(node),
                str(packed.archive),
                timeout_s=600,
            )

    def pod_output(self, name: str, template: dict[str, Any]) -> str:
        """Run a pod of this template, delete it and return its log. Raises CommandFailed unless it succeeds
        within 2 minutes.
        """
        self.kubectl("delete", "pod", name, "--ignore-not-found")
        self.apply(
            yaml.safe_dump({"apiVersion": "v1", "kind": "Pod"} | template | {"metadata": {"name": name}})
        )
        try:
            self._wait_for_success(name)
            return self.kubectl("logs", name)
        finally:
            self.kubectl("delete", "pod", name, "--wait=false")

    def _wait_for_success(self, name: str) -> None:
        for _ in range(120):
            phase = self.get("pod", name)["status"].get("phase")
            if phase == "Succeeded":
                return
            if phase == "Failed":
                break
            time.sleep(1)
        raise CommandFailed(
            f"pod {name} is {phase}\n{self.kubectl('describe', 'pod', name)}\n{self.kubectl('logs', name)}"
        )


def base_pod(*command: str, account: str = "default") -> dict[str, Any]:
    """Return a pod of the base image with the store's credentials and the restrictions of a stage."""
    container = {
        "name": "main",
        "image": IMAGES["base"],
        "imagePullPolicy": "Never",
        "command": list(command),
        "envFrom": [{"secretRef": {"name": "shoestring-s3"}}],
        "securityContext": SECURITY,
        "volumeMounts": [{"name": "scratch", "mountPath": "/tmp"}],
    }
    spec = {
        "restartPolicy": "Never",
        "serviceAccountName": account,
        "securityContext": POD_SECURITY,
        "containers": [container],
        "volumes": [{"name": "scratch", "emptyDir": {}}],
    }
    return {"spec": spec}


@contextmanager
def a_pod(
    kind: Kind, name: str, command: str = "sleep 600", *, cpu: str = "0", memory: str = "64Mi", **spec: Any
) -> Iterator[ClusterPod]:
    """Run a pod in namespace default, yield its reference, and delete it."""
    resources = {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": memory}}
    container = {
        "name": "main",
        "image": IMAGES["base"],
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", command],
        "resources": resources,
        "securityContext": SECURITY,
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"restartPolicy": "Never", "containers": [container]} | spec,
    }
    kind.kubectl("delete", "pod", name, "--ignore-not-found", "--now", namespace="default")
    kind.kubectl("create", "-f", "-", stdin=yaml.safe_dump(pod), namespace="default")
    try:
        yield ClusterPod("default", kind.get("pod", name, namespace="default")["metadata"]["uid"], name)
    finally:
        kind.kubectl("delete", "pod", name, "--now", "--ignore-not-found", namespace="default")


def render_overlay(overlay: str) -> str:
    return run("kubectl", "kustomize", str(ROOT / "manifests" / "overlays" / overlay))
