"""The pods of stages, as a watch of the cluster's API saw them last: an engine may delete those of a run."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from shoestring.backends.kubernetes.pod_lifetime import item_of_pod
from shoestring.core.attempt_id import item_stage
from shoestring.routing.placement import STAGE_LABEL


class PodHistory:
    """The last state of the pods of all runs, from the files `pods-*.json` that a watch writes.

    `run_label`: the label with the engine's id of the run.
    """

    def __init__(self, folder: Path, run_label: str) -> None:
        self._folder, self._run_label = folder, run_label

    def of_run(self, run: str) -> list[dict[str, Any]]:
        """Return the pods of a run, route steps and exit steps included, in the order of their creation."""
        last: dict[str, dict[str, Any]] = {}
        for log in sorted(self._folder.glob("pods-*.json")):
            for pod in read_objects(log):
                if pod["metadata"]["labels"].get(self._run_label) == run:
                    last[pod["metadata"]["uid"]] = pod
        return sorted(last.values(), key=lambda pod: str(pod["metadata"]["creationTimestamp"]))

    def of_stage(self, run: str, stage: str) -> list[dict[str, Any]]:
        return [pod for pod in self.of_run(run) if stage_of(pod) == stage]


def stage_of(pod: dict[str, Any]) -> str:
    """Return the stage of a pod, or its route or exit step; in a loop, with its item."""
    return item_stage(pod["metadata"]["labels"][STAGE_LABEL], item_of_pod(pod))


def read_objects(log: Path) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects in a file, of which the last may be incomplete."""
    text, decoder, at = log.read_text(), json.JSONDecoder(), 0
    with suppress(json.JSONDecodeError):
        while (begin := text.find("{", at)) >= 0:
            found, at = decoder.raw_decode(text, begin)
            yield found


class PodWatch:
    """`kubectl get pods --watch`, started again when the server ends it, which it does after some 30 min."""

    def __init__(self, context: str, namespace: str, folder: Path) -> None:
        where = ("--context", context, "--namespace", namespace)
        self._line = ["kubectl", *where, "get", "pods", "--selector", STAGE_LABEL]
        self._folder, self._stopped = folder, threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._process:
            self._process.terminate()
        self._thread.join(10)

    def _follow(self) -> None:
        number = 0
        while not self._stopped.is_set():
            with (self._folder / f"pods-{number:04d}.json").open("wb") as out:
                self._process = subprocess.Popen([*self._line, "--watch", "--output", "json"], stdout=out)
                if self._stopped.is_set():
                    self._process.terminate()
                self._process.wait()
            number += 1
            self._stopped.wait(1.0)


@contextmanager
def watch_pods(context: str, namespace: str, folder: Path, run_label: str) -> Iterator[PodHistory]:
    """Record all pods of runs meanwhile, in a folder."""
    watch = PodWatch(context, namespace, folder)
    watch.start()
    try:
        yield PodHistory(folder, run_label)
    finally:
        watch.stop()
