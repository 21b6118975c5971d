"""Runs on Argo as the tests see them: the command that starts them, their pods while they are there, and what is in the store."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from kind_cluster import ROOT, Kind

from shoestring.reporting.summary import Summary
from shoestring.routing.decision import Decision
from shoestring.seams import Store

RUN_LABEL, STAGE_LABEL = "shoestring.dev/run", "shoestring.dev/stage"

Found = TypeVar("Found")


@dataclass(frozen=True)
class Ended:
    """A command that started a run, or followed it."""

    code: int
    out: str
    err: str

    @property
    def summary(self) -> Summary:
        return Summary.model_validate_json(self.out)


class Going:
    """A run that was started and is being followed."""

    def __init__(self, kind: Kind, *arguments: str) -> None:
        line = [sys.executable, "-m", "shoestring", "run", *arguments, "--on", kind.context, "--json"]
        self._process = subprocess.Popen(line, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self._process.stderr
        self.first = self._process.stderr.readline()
        self.run_id = self.first.split(" ")[0]

    def end(self, timeout_s: float = 420.0) -> Ended:
        out, err = self._process.communicate(timeout=timeout_s)
        return Ended(self._process.returncode, out, self.first + err)


class Pods:
    """The pods of a run as they last were: Argo deletes them when it is over."""

    def __init__(self) -> None:
        self.last: dict[str, dict[str, Any]] = {}

    def of_stage(self, stage: str) -> list[dict[str, Any]]:
        found = [pod for pod in self.last.values() if pod["metadata"]["labels"][STAGE_LABEL] == stage]
        return sorted(found, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))


@contextmanager
def watched(kind: Kind, folder: Path) -> Iterator[Pods]:
    """All pods of runs that are there meanwhile; to be read at the end."""
    pods, told = Pods(), folder / "pods.json"
    line = ["kubectl", "--context", kind.context, "--namespace", "shoestring", "get", "pods", "--selector", RUN_LABEL]
    with told.open("w") as out, subprocess.Popen([*line, "--watch", "--output", "json"], stdout=out) as process:
        try:
            yield pods
        finally:
            process.terminate()
    text, decoder = told.read_text().lstrip(), json.JSONDecoder()
    while text:
        pod, end = decoder.raw_decode(text)
        pods.last[pod["metadata"]["uid"]] = pod
        text = text[end:].lstrip()


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def lived_s(pod: dict[str, Any]) -> float:
    """From when a node took it until its last container ended."""
    status = pod["status"]
    taken = next(each["lastTransitionTime"] for each in status["conditions"] if each["type"] == "PodScheduled")
    ended = [each["state"]["terminated"]["finishedAt"] for each in status["containerStatuses"]]
    return (max(map(moment, ended)) - moment(taken)).total_seconds()


def decision(store: Store, run_id: str, stage: str, attempt: int = 1) -> Decision:
    return Decision.model_validate_json(store.fetch(f"runs/{run_id}/decisions/{stage}-{attempt}.json").read_bytes())


def soon(look: Callable[[], Found | None], what: str, timeout_s: float = 120.0) -> Found:
    """What `look` finds, as soon as it does."""
    end_s = time.monotonic() + timeout_s
    while (found := look()) is None:
        assert time.monotonic() < end_s, f"not within {timeout_s} s: {what}"
        time.sleep(0.5)
    return found
