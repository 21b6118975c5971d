"""The requirements of the scenarios on a Kubeflow, checked before the first one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from uuid import uuid4

from commands import shoestring
from engine_scenarios.kubeflow_engine import KubeflowServer
from engine_scenarios.own_package import own_image
from engine_scenarios.waiting import wait_for

from shoestring.backends.s3.location import CREDENTIAL_VARIABLES, CREDENTIALS_SECRET
from shoestring.config.world import IMAGES, REGISTRY, WORLD_FILES
from shoestring.core.errors import ShoestringError
from shoestring.pipelines.kfp_client import connect

RIGHTS = (
    ("get", "configmaps"),
    ("get", "secrets"),
    ("get", "services"),
    ("get", "deployments"),
    ("get", "pods"),
    ("list", "pods"),
    ("watch", "pods"),
    ("create", "pods"),
    ("delete", "pods"),
    ("create", "pods/portforward"),
)
"""Of the user of the suite, in the namespace. Pods are created to see whether nodes can pull the images."""

PULL_TIMEOUT_S = 300.0


def missing(server: KubeflowServer, *, probe_images: bool = True) -> list[str]:
    """Return a sentence for each thing that the suite needs and does not find."""
    if shutil.which(server.place.tool) is None:
        return ["kubectl is not installed on this machine"]
    found = [*missing_server(server), *missing_objects(server), *missing_rights(server)]
    found += [*missing_reaper(server), *missing_pools(server)]
    return [*found, *(missing_images(server) if probe_images else ())]


def report(server: KubeflowServer, sentences: list[str]) -> str:
    """Return one message with everything that is missing."""
    place = f"namespace {server.place.namespace} of {server.place.context}, with {server.host}"
    return "\n- ".join([f"{place}, cannot run the suite yet; {len(sentences)} missing:", *sentences])


def missing_server(server: KubeflowServer) -> Iterator[str]:
    try:
        connect(server.kfp)
    except ShoestringError as error:
        yield f"the API server: {error}"


def missing_objects(server: KubeflowServer) -> Iterator[str]:
    for name in WORLD_FILES:
        if server.place.try_kubectl("get", "configmap", f"shoestring-{name}").code:
            yield f"ConfigMap shoestring-{name}: apply manifests/overlays/kubeflow"
    secret = server.place.try_kubectl("get", "secret", CREDENTIALS_SECRET, "--output", "json")
    keys = (json.loads(secret.out).get("data") or {}) if secret.code == 0 else {}
    if lacking := [name for name in CREDENTIAL_VARIABLES if name not in keys]:
        yield (
            f"Secret shoestring-s3 with {' and '.join(lacking)}: kubectl create secret generic shoestring-s3 "
            "--from-literal=AWS_ACCESS_KEY_ID=... --from-literal=AWS_SECRET_ACCESS_KEY=..."
        )


def missing_rights(server: KubeflowServer) -> Iterator[str]:
    for verb, what in RIGHTS:
        if server.place.try_kubectl("auth", "can-i", verb, what).code:
            yield f"the right to {verb} {what}, for you"
    # Only an administrator may ask for an account; where nobody may, the runs themselves show it.
    account = f"--as=system:serviceaccount:{server.place.namespace}:pipeline-runner"
    if server.place.try_kubectl("auth", "can-i", "get", "pods", account).out.strip() == "no":
        yield "the right to get pods, for pipeline-runner: apply manifests/overlays/kubeflow"


def missing_reaper(server: KubeflowServer) -> Iterator[str]:
    found = server.place.try_kubectl("get", "deployment", "shoestring-reaper", "--output", "json")
    if found.code or not json.loads(found.out).get("status", {}).get("readyReplicas"):
        yield "a ready pod of deployment/shoestring-reaper: read its log"


def missing_pools(server: KubeflowServer) -> Iterator[str]:
    planned = shoestring("plan", "flights", "--engine", "kubeflow", *server.place.options)
    if planned.code:
        reason = (planned.err.strip() or planned.out.strip()).splitlines()
        yield f"a priced node pool on which the flights recipe fits its budget: {' '.join(reason[-3:])}"


def missing_images(server: KubeflowServer) -> Iterator[str]:
    """Let a pod on any node pull each image."""
    registry = server.registry
    published = [IMAGES[name].replace(REGISTRY, registry or REGISTRY) for name in ("base", "train")]
    for image in (*published, own_image(registry)):
        if reason := pull_problem(server, image):
            yield f"the image {image} ({reason})"


def pull_problem(server: KubeflowServer, image: str) -> str:
    """Return why a pod with this image does not start; empty: it starts."""
    name = f"shoestring-pull-{uuid4().hex[:6]}"
    container = {"name": "main", "image": image, "command": ["true"], "imagePullPolicy": "IfNotPresent"}
    spec = {
        "restartPolicy": "Never",
        "containers": [container],
        "securityContext": {"runAsNonRoot": True, "runAsUser": 8737},
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    made = server.place.try_kubectl("create", "--filename", "-", stdin=json.dumps(pod))
    if made.code:
        return made.err.strip() or "no pod can be created"

    def find() -> str | None:
        status = json.loads(server.place.kubectl("get", "pod", name, "--output", "json"))["status"]
        states = [each["state"] for each in status.get("containerStatuses", [])]
        waits = [state["waiting"]["reason"] for state in states if "waiting" in state]
        problems = [reason for reason in waits if "Pull" in reason or "Image" in reason]
        return problems[0] if problems else "" if status.get("phase") == "Succeeded" else None

    try:
        return wait_for(find, f"a pod with the image {image}", timeout_s=PULL_TIMEOUT_S)
    except AssertionError as late:
        return str(late)
    finally:
        server.place.try_kubectl("delete", "pod", name, "--wait=false", "--ignore-not-found")
