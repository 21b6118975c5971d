"""The interface of an engine for the scenarios: to start a run, to read its state and its pods, to delete a
pod, and to terminate or retry the run.

A driver does this as its user does: by shoestring's commands, kubectl, and the engine's own API.
"""

from __future__ import annotations

import json
import re
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from commands import Ran, shoestring, start_shoestring
from engine_scenarios.pod_history import PodHistory
from engine_scenarios.waiting import wait_for

from shoestring.core.interfaces import Store
from shoestring.reporting.summary import RunSummary
from shoestring.runtime.open_world import open_world_on

RUN_TIMEOUT_S = 1500.0
State = Literal["running", "succeeded", "failed"]
Feature = Literal["recurring", "artifacts", "own exit steps"]


@dataclass(frozen=True)
class Pipeline:
    """An author's pipeline: MODULE:NAME, as Python imports it from `folder`, and the name that it has."""

    reference: str
    folder: Path
    name: str


@dataclass(frozen=True)
class Job:
    """The request of a run. `pipeline`: None for the training pipeline; `budget_usd`: empty for the
    recipe's.
    """

    recipe: str
    pipeline: Pipeline | None = None
    budget_usd: str = ""


@dataclass(frozen=True)
class EndedRun:
    """The end of the command that started and followed a run. `summary`: None if the run has no records."""

    code: int
    summary: RunSummary | None
    err: str

    def done(self) -> RunSummary:
        """Return the summary of a run that must have succeeded."""
        assert self.summary is not None and self.code == 0, self.err
        return self.summary

    def not_done(self) -> RunSummary:
        """Return the summary of a run that must not have succeeded."""
        assert self.summary is not None and self.code == 1, self.err
        return self.summary


class StartedRun:
    """A command that starts a run and follows it to its end.

    `engine_id`: the group of `pattern` in its standard error, by which the engine knows the run. `run_id`:
    that of its records.
    """

    def __init__(
        self,
        arguments: tuple[str, ...],
        log: Path,
        pattern: str,
        summary_of: Callable[[Any], Any],
        run_id: str = "",
    ) -> None:
        self._summary_of = summary_of
        self._process = start_shoestring(*arguments, log=log)

        def find() -> str | None:
            assert self._process.poll() in (None, 0, 1), log.read_text()
            found = re.search(pattern, log.read_text(), re.M)
            return found and found[1]

        self.engine_id = wait_for(find, f"a line {pattern} of {' '.join(arguments)}")
        self.run_id = run_id or self.engine_id

    def wait(self) -> EndedRun:
        return self._ended

    @cached_property
    def _ended(self) -> EndedRun:
        out, err = self._process.communicate(timeout=RUN_TIMEOUT_S)
        printed = json.loads(out) if out.strip() else None
        found = None if printed is None or "error" in printed else self._summary_of(printed)
        summary = None if found is None else RunSummary.model_validate(found)
        return EndedRun(self._process.wait(), summary, err)


@dataclass(frozen=True)
class Place:
    """Where an engine runs: a kubeconfig's context, and the namespace of the pods and of the world."""

    context: str
    namespace: str
    tool: str = "kubectl"

    @property
    def options(self) -> tuple[str, ...]:
        """The options of a command that reads the world there."""
        return ("--on", self.context, "--namespace", self.namespace)

    def kubectl(self, *arguments: str, timeout_s: float = 300.0) -> str:
        """Return what kubectl printed; it must succeed."""
        done = self.try_kubectl(*arguments, timeout_s=timeout_s)
        assert done.code == 0, f"kubectl {' '.join(arguments)}: {done.err}"
        return done.out

    def try_kubectl(self, *arguments: str, stdin: str | None = None, timeout_s: float = 300.0) -> Ran:
        line = [self.tool, "--context", self.context, "--namespace", self.namespace, *arguments]
        done = subprocess.run(line, input=stdin, capture_output=True, text=True, timeout=timeout_s)
        return Ran(done.returncode, done.stdout, done.stderr)


@dataclass
class Engine(ABC):
    """One engine. `lacks`: what it cannot do, each with the reason.

    `reroutes_deleted_pods`: a stage whose pod is deleted is routed again, without its user.
    `leaves_out_cached_stages`: it starts no pod of a stage where the results of all are cached.
    """

    place: Place
    history: PodHistory
    scratch: Path
    lacks: Mapping[Feature, str] = field(default_factory=dict)
    reroutes_deleted_pods: bool = False
    leaves_out_cached_stages: bool = False

    @abstractmethod
    def start(self, job: Job, resume: str = "") -> StartedRun:
        """Start a run. `resume`: the id of an earlier run of the same job, which continues under it."""

    @abstractmethod
    def schedule(self, job: Job) -> str:
        """Run the job every minute until `unschedule`; return the schedule's id."""

    @abstractmethod
    def unschedule(self, schedule: str) -> None:
        """Start no more runs of a schedule; those that run go on."""

    @abstractmethod
    def scheduled_runs(self, schedule: str) -> list[str]:
        """Return the engine's ids of the runs of a schedule, oldest first."""

    @abstractmethod
    def state(self, engine_id: str) -> State: ...

    @abstractmethod
    def terminate(self, engine_id: str) -> None: ...

    @abstractmethod
    def retry(self, engine_id: str) -> None:
        """Retry a failed run as Kubeflow's page does: without the route steps and the exit step, which
        have succeeded.
        """

    @abstractmethod
    def clean_up(self) -> None:
        """Delete every object that this driver made on the engine. Records in the store stay."""

    def pods(self, run: StartedRun, stage: str) -> list[dict[str, Any]]:
        """Return the pods of a stage as the API's JSON, deleted ones in their last state."""
        return self.history.of_stage(run.engine_id, stage)

    def delete_pod(self, name: str, *, force: bool = False) -> None:
        how = ("--grace-period=0", "--force") if force else ()
        self.place.kubectl("delete", "pod", name, "--wait=false", *how)

    def read(self, *arguments: str) -> Ran:
        """Run a command of shoestring that reads the engine's world. It must succeed."""
        ran = shoestring(*arguments, *self.place.options)
        assert ran.code == 0, f"{' '.join(arguments)}\n{ran.out}{ran.err}"
        return ran

    @cached_property
    def store(self) -> Store:
        return open_world_on(self.place.context, self.place.namespace, reads_only=True).store


def compile_pipeline(pipeline: Pipeline | None, target: str, folder: Path, *more: str) -> Path:
    """Compile a pipeline by the documented command; return its file."""
    authored = str(Path(__file__).parent / "authored")
    which = () if pipeline is None else ("--pipeline", pipeline.reference)
    words = ("compile", "--target", target, "--out", folder, *which, *more)
    where = None if pipeline is None else pipeline.folder
    done = shoestring(*words, env={"PYTHONPATH": authored}, folder=where)
    assert done.code == 0, done.err
    built_in = {"kfp": "train", "argo": "shoestring-train"}[target]
    return folder / f"{built_in if pipeline is None else pipeline.name}.yaml"
