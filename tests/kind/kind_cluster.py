"""A kind cluster as the tests talk to it: plain `kind`, `docker` and `kubectl`."""

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

ROOT = Path(__file__).parents[2]
NAMESPACE = "shoestring"
# Of the authoring page's stage, as its NEED and its component call it.
OWN_IMAGE = "dedupe_rows:0.1.0"
# What a pod needs under the `restricted` Pod Security level.
POD_SECURITY = {"runAsNonRoot": True, "runAsUser": 8737, "seccompProfile": {"type": "RuntimeDefault"}}
SECURITY = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
CTR = ("ctr", "--namespace", "k8s.io", "images", "ls", "--quiet")


class CommandFailed(Exception):
    """A command ended with another code than 0; the message holds what it said."""


def run(*command: str, given: str | None = None, timeout_s: float = 300.0) -> str:
    """What a command printed. Raises CommandFailed with all it said."""
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=timeout_s)
    if done.returncode:
        raise CommandFailed(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


@dataclass(frozen=True)
class Packed:
    """Images of this machine, in one archive for all nodes that they go onto: layers that they share lie in it once."""

    ids: frozenset[str]
    archive: Path


def pack(archive: Path, images: Sequence[str]) -> Packed:
    ids = frozenset(run("docker", "image", "inspect", "--format", "{{.Id}}", *images).split())
    run("docker", "save", "--output", str(archive), *images, timeout_s=600)
    return Packed(ids, archive)


@dataclass(frozen=True)
class Kind:
    """One cluster, of tests/kind/cluster.yaml."""

    name: str

    @property
    def context(self) -> str:
        return f"kind-{self.name}"

    def node(self, name: str) -> str:
        """Of `control-plane`, `worker`, `worker2` or `worker3`."""
        return f"{self.name}-{name}"

    def kubectl(
        self, *arguments: str, given: str | None = None, namespace: str = NAMESPACE, timeout_s: float = 300.0
    ) -> str:
        return run(
            "kubectl",
            "--context",
            self.context,
            "--namespace",
            namespace,
            *arguments,
            given=given,
            timeout_s=timeout_s,
        )

    def get(self, *arguments: str, namespace: str = NAMESPACE) -> Any:
        """Objects as the API gives them."""
        return json.loads(self.kubectl("get", *arguments, "--output", "json", namespace=namespace))

    def apply(self, text: str, *arguments: str, namespace: str = NAMESPACE) -> None:
        self.kubectl(
            "apply",
            "--server-side",
            "--force-conflicts",
            "--filename",
            "-",
            *arguments,
            given=text,
            namespace=namespace,
        )

    def load(self, node: str, packed: Packed) -> None:
        """Onto a node.

        kind leaves out by itself what a node has, where the node image brings crictl; here every node image is asked.
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

    def said_by_pod(self, name: str, template: dict[str, Any]) -> str:
        """What a pod of this template prints; it is deleted. Raises CommandFailed when it does not end well within two minutes."""
        self.kubectl("delete", "pod", name, "--ignore-not-found")
        self.apply(
            yaml.safe_dump({"apiVersion": "v1", "kind": "Pod"} | template | {"metadata": {"name": name}})
        )
        try:
            self._end_of(name)
            return self.kubectl("logs", name)
        finally:
            self.kubectl("delete", "pod", name, "--wait=false")

    def _end_of(self, name: str) -> None:
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
    """A pod of the base image with the store's credentials, as restricted as a stage's."""
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
) -> Iterator[str]:
    """A pod in namespace default, as the World calls pods; deleted at the end."""
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
    kind.kubectl("create", "-f", "-", given=yaml.safe_dump(pod), namespace="default")
    try:
        yield f"default.{kind.get('pod', name, namespace='default')['metadata']['uid']}.{name}"
    finally:
        kind.kubectl("delete", "pod", name, "--now", "--ignore-not-found", namespace="default")


def rendered(overlay: str) -> str:
    return run("kubectl", "kustomize", str(ROOT / "manifests" / "overlays" / overlay))
