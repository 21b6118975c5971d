"""Runs on Argo for the tests: the command that starts them, the history of their pods, and their records in
the store.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import yaml
from engine_scenarios.pod_history import PodHistory as PodHistory
from engine_scenarios.recipes import RAIN as RAIN
from engine_scenarios.recipes import write_recipe as write_recipe
from engine_scenarios.waiting import wait_for as wait_for
from kind_cluster import NAMESPACE, ROOT, Kind
from pod_times import lived_s

from shoestring.backends.local import WallClock
from shoestring.backends.s3.location import S3Location
from shoestring.backends.s3.store import open_s3_store
from shoestring.core.errors import NotInStore
from shoestring.core.interfaces import Store
from shoestring.pipelines.argo import compile_all
from shoestring.reporting.summary import RunSummary
from shoestring.routing.decision import Decision
from shoestring.routing.placement import RUN_LABEL as RUN_LABEL
from shoestring.routing.placement import STAGE_LABEL as STAGE_LABEL
from shoestring.spending.ledger.ledger import Ledger

POOL_LABEL = "shoestring.dev/pool"


@dataclass(frozen=True)
class EndedRun:
    """The result of a command that started or followed a run."""

    code: int
    out: str
    err: str

    @property
    def summary(self) -> RunSummary:
        return RunSummary.model_validate_json(self.out)

    @property
    def run_id(self) -> str:
        return self.summary.run_id


class StartedRun:
    """A run that a command started and follows."""

    def __init__(self, kind: Kind, *arguments: str) -> None:
        line = [sys.executable, "-m", "shoestring", "run", *arguments, "--on", kind.context, "--json"]
        self._process = subprocess.Popen(
            line, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self._process.stderr
        self._first_line = self._process.stderr.readline()
        self.run_id = self._first_line.split(" ")[0]

    def wait(self, timeout_s: float = 420.0) -> EndedRun:
        out, err = self._process.communicate(timeout=timeout_s)
        return EndedRun(self._process.returncode, out, self._first_line + err)


@contextmanager
def open_store(kind: Kind, scratch: Path) -> Iterator[Store]:
    """Open the store of the kind overlay from outside the cluster."""
    with forward_s3(kind) as location:
        yield open_s3_store(location, scratch, WallClock())


@contextmanager
def forward_s3(kind: Kind) -> Iterator[S3Location]:
    """Forward a port to the S3 server, yield its location, and set its credentials in this process's
    environment.
    """
    overlay = yaml.safe_load((ROOT / "manifests/overlays/kind/kustomization.yaml").read_text())
    os.environ |= dict(literal.split("=", 1) for literal in overlay["secretGenerator"][0]["literals"])
    line = [
        "kubectl",
        "--context",
        kind.context,
        "--namespace",
        NAMESPACE,
        "port-forward",
        "service/s3",
        ":8333",
    ]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        # Forwarding from 127.0.0.1:PORT -> 8333
        port = process.stdout.readline().split(" -> ")[0].rpartition(":")[2]
        try:
            yield S3Location(endpoint=f"127.0.0.1:{port}", bucket="shoestring", secure=False)
        finally:
            process.terminate()


def paid_and_lived_usd(
    store: Store, run_id: str, stage: str, *pods: dict[str, Any]
) -> tuple[Decimal, Decimal]:
    """Return what the ledger paid for a stage, and the cost of its pods' lifetimes, one pod per attempt."""
    choices = [decision(store, run_id, stage, attempt + 1).choice for attempt in range(len(pods))]
    if choices[0] and choices[0].cached:
        return Decimal(0), Decimal(0)
    paid_usd = Ledger(store, WallClock(), "test").state(run_id).stages[stage].spent_usd
    lived = [
        choice.usd_per_hour * Decimal(lived_s(pod)) / 3600
        for choice, pod in zip(choices, pods, strict=True)
        if choice
    ]
    return paid_usd, sum(lived, Decimal(0))


def decision(store: Store, run_id: str, stage: str, attempt: int = 1) -> Decision:
    return Decision.model_validate_json(
        store.fetch(f"runs/{run_id}/decisions/{stage}-{attempt}.json").read_bytes()
    )


def refusals_of(decision: Decision) -> list[str]:
    """Return why the stage is not elsewhere; a sentence on several formats is returned once."""
    return list(dict.fromkeys(refusal.sentence for refusal in decision.refusals))


def stage_pod(kind: Kind, run_id: str, stage: str) -> dict[str, Any]:
    """Wait for the pod of a stage until a node takes it."""

    def find() -> dict[str, Any] | None:
        found = kind.get("pods", "--selector", f"{RUN_LABEL}={run_id},{STAGE_LABEL}={stage}")["items"]
        return next((pod for pod in found if pod["spec"].get("nodeName")), None)

    return wait_for(find, f"the pod of {stage}")


def reap_now(kind: Kind) -> None:
    """Let a second reaper look and settle once, in a pod of its own, which mounts the world's files as they
    are now.
    """
    template = kind.get("deployment", "shoestring-reaper")["spec"]["template"]
    template["spec"]["restartPolicy"] = "Never"
    template["spec"]["containers"][0]["command"] = ["shoestring", "reap"]
    kind.pod_output(f"reap-{uuid4().hex[:8]}", template)


def compiled(folder: Path) -> dict[str, Any]:
    """Return the compiled WorkflowTemplate."""
    compile_all(folder)
    template: dict[str, Any] = yaml.safe_load((folder / "shoestring-train.yaml").read_text())
    return template


def node_pools(kind: Kind) -> dict[str, str]:
    return {
        node["metadata"]["name"]: node["metadata"]["labels"].get(POOL_LABEL, "")
        for node in kind.get("nodes")["items"]
    }


def read_world_file(kind: Kind, name: str) -> str:
    text: str = kind.get("configmap", f"shoestring-{name}")["data"][f"{name}.yaml"]
    return text


def write_world_file(kind: Kind, name: str, text: str) -> None:
    kind.kubectl(
        "patch",
        "configmap",
        f"shoestring-{name}",
        "--type",
        "merge",
        "--patch",
        json.dumps({"data": {f"{name}.yaml": text}}),
    )


@contextmanager
def restored_files(kind: Kind, *names: str) -> Iterator[list[dict[str, Any]]]:
    """Yield the content of these world files, which `write_world_file` may change, and restore them."""
    before = {name: read_world_file(kind, name) for name in names}
    try:
        yield [yaml.safe_load(text) for text in before.values()]
    finally:
        for name, text in before.items():
            write_world_file(kind, name, text)


def wait_for_decision(store: Store, run: StartedRun, stage: str, attempt: int = 1) -> Decision:
    def find() -> Decision | None:
        try:
            return decision(store, run.run_id, stage, attempt)
        except NotInStore:
            return None

    return wait_for(find, f"the decision on attempt {attempt} at {stage}", timeout_s=240.0)


def request_stop(kind: Kind, run: StartedRun) -> None:
    """Stop a run like `argo stop`: its pods are terminated, then the exit step runs."""
    kind.kubectl(
        "patch", "workflow", run.run_id, "--type", "merge", "--patch", '{"spec": {"shutdown": "Stop"}}'
    )


def end_run(kind: Kind, run: StartedRun) -> EndedRun:
    """Wait for a run that was requested to stop, and delete its Workflow."""
    ended = run.wait()
    kind.kubectl("delete", "workflow", run.run_id)
    return ended


def stop_run(kind: Kind, run: StartedRun) -> EndedRun:
    request_stop(kind, run)
    return end_run(kind, run)
