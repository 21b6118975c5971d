"""The driver for Argo Workflows: `shoestring run --on`, and kubectl."""

from __future__ import annotations

import itertools
from contextlib import suppress
from pathlib import Path

from engine_scenarios.engine import Engine, Job, Pipeline, Place, StartedRun, State, compile_pipeline
from engine_scenarios.pod_history import PodHistory

from shoestring.backends.argo import Argo, open_argo
from shoestring.core.errors import UnknownName

LACKS = {
    "recurring": "Shoestring schedules no runs on Argo: Argo has CronWorkflows for that",
    "artifacts": "Argo stores no artifacts: `compile --target argo` refuses a component that has some",
}
PHASES: dict[str, State] = {"Succeeded": "succeeded", "Failed": "failed", "Error": "failed"}


class ArgoEngine(Engine):
    """Argo Workflows in a namespace that has the WorkflowTemplate of the training pipeline."""

    def __init__(self, place: Place, history: PodHistory, scratch: Path) -> None:
        super().__init__(
            place, history, scratch, LACKS, reroutes_deleted_pods=True, leaves_out_cached_stages=True
        )
        self._numbers = itertools.count(1)
        self._templates: set[str] = set()
        self._runs: list[str] = []

    @property
    def argo(self) -> Argo:
        return open_argo(self.place.context, self.place.namespace)

    def start(self, job: Job, resume: str = "") -> StartedRun:
        budget = ("--budget", job.budget_usd) if job.budget_usd else ()
        template = () if job.pipeline is None else ("--template", self._template(job.pipeline))
        what = ("--resume", resume) if resume else ((job.recipe,) if job.recipe else ())
        return self.run(*what, *budget, *template)

    def run(self, *arguments: str) -> StartedRun:
        """Start a run by the arguments of `shoestring run`, without `--on`."""
        line = ("run", *arguments, *self.place.options, "--json")
        log = self.scratch / f"run-{next(self._numbers)}.txt"
        run = StartedRun(line, log, r"^(\S+) has started", lambda summary: summary)
        self._runs.append(run.run_id)
        return run

    def _template(self, pipeline: Pipeline) -> str:
        """Apply a pipeline's WorkflowTemplate, and return its name."""
        if pipeline.name not in self._templates:
            file = compile_pipeline(pipeline, "argo", self.scratch / pipeline.name)
            self.place.kubectl("apply", "--filename", str(file))
            self._templates.add(pipeline.name)
        return pipeline.name

    def schedule(self, job: Job) -> str:
        raise NotImplementedError(LACKS["recurring"])

    def unschedule(self, schedule: str) -> None:
        raise NotImplementedError(LACKS["recurring"])

    def scheduled_runs(self, schedule: str) -> list[str]:
        raise NotImplementedError(LACKS["recurring"])

    def state(self, engine_id: str) -> State:
        return PHASES.get(self.argo.read(self.argo.find(engine_id).name).phase, "running")

    def terminate(self, engine_id: str) -> None:
        """Stop a run like `argo stop`: its pods are terminated, then the exit step runs."""
        stop = '{"spec": {"shutdown": "Stop"}}'
        name = self.argo.find(engine_id).name
        self.place.kubectl("patch", "workflow", name, "--type", "merge", "--patch", stop)

    def clean_up(self) -> None:
        for run in self._runs:
            # A resumed run has several.
            with suppress(UnknownName):
                while True:
                    self.place.kubectl("delete", "workflow", self.argo.find(run).name)
        for name in self._templates:
            self.place.kubectl("delete", "workflowtemplate", name, "--ignore-not-found")
