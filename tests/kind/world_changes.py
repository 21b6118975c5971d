"""Changes of a cluster's world: its files, which are restored, its nodes' pools, and a look of the reaper."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import yaml
from engine_scenarios.engine import Engine, StartedRun
from engine_scenarios.waiting import wait_for
from kind_cluster import Kind

POOL_LABEL = "shoestring.dev/pool"


def read_world_file(kind: Kind, name: str) -> str:
    text: str = kind.get("configmap", f"shoestring-{name}")["data"][f"{name}.yaml"]
    return text


def write_world_file(kind: Kind, name: str, text: str) -> None:
    changed = json.dumps({"data": {f"{name}.yaml": text}})
    kind.kubectl("patch", "configmap", f"shoestring-{name}", "--type", "merge", "--patch", changed)


@contextmanager
def restored_files(kind: Kind, *names: str) -> Iterator[list[dict[str, Any]]]:
    """Yield the content of these world files, which `write_world_file` may change, and restore them."""
    before = {name: read_world_file(kind, name) for name in names}
    try:
        yield [yaml.safe_load(text) for text in before.values()]
    finally:
        for name, text in before.items():
            write_world_file(kind, name, text)


def placed_pod(engine: Engine, run: StartedRun, stage: str) -> dict[str, Any]:
    """Wait for a pod of a stage that a node took, and return it."""

    def find() -> dict[str, Any] | None:
        return next((pod for pod in engine.pods(run, stage) if pod["spec"].get("nodeName")), None)

    return wait_for(find, f"a node for a pod of {stage} of {run.run_id}")


def pool_of(kind: Kind, engine: Engine, run: StartedRun, stage: str) -> str:
    """Return the pool of the node that took a pod of a stage."""
    labels: dict[str, str] = kind.get("node", placed_pod(engine, run, stage)["spec"]["nodeName"])["metadata"][
        "labels"
    ]
    return labels[POOL_LABEL]


def reap_now(kind: Kind) -> None:
    """Let a second reaper look and settle once, in a pod of its own, which mounts the world's files as they
    are now.
    """
    template = kind.get("deployment", "shoestring-reaper")["spec"]["template"]
    template["spec"]["restartPolicy"] = "Never"
    template["spec"]["containers"][0]["command"] = ["shoestring", "reap"]
    kind.pod_output(f"reap-{uuid4().hex[:8]}", template)
