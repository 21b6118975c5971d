"""The driver for Argo Workflows: `shoestring run --on`, and kubectl."""

from __future__ import annotations

import itertools
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from engine_scenarios.engine import Engine, Job, Pipeline, Place, StartedRun, State, compile_pipeline
from engine_scenarios.pod_history import PodHistory

from shoestring.backends.argo import Argo, open_argo
from shoestring.core.errors import UnknownName

LACKS = {
    "recurring": "Shoestring schedules no runs on Argo: Argo has CronWorkflows for that",
    "artifacts": "Argo stores no artifacts: `compile --target argo` refuses a component that has some",
    "own exit steps": "Argo runs routed stages only: `compile --target argo` refuses another exit step",
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

    def adopt_template(self, name: str) -> None:
        """Delete a WorkflowTemplate of the test's own at the end."""
        self._templates.add(name)

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

    def retry(self, engine_id: str) -> None:
        self.change_to_retry(engine_id, runs_exit_step=False)

    def change_to_retry(self, engine_id: str, *, runs_exit_step: bool) -> None:
        """Change the Workflow of a failed run as Kubeflow's server does for a retry. `runs_exit_step`: drop
        the node of the exit step too, as it does where that is the Workflow's own.
        """
        name = self.argo.find(engine_id).name
        workflow = json.loads(self.place.kubectl("get", "workflow", name, "--output", "json"))
        pods = drop_failed_nodes(workflow, runs_exit_step=runs_exit_step)
        by_node = "workflows.argoproj.io/node-id"
        listed = ("get", "pods", "--selector", f"workflows.argoproj.io/workflow={name}", "--output", "json")
        for pod in json.loads(self.place.kubectl(*listed))["items"]:
            if pod["metadata"]["annotations"].get(by_node) in pods:
                self.place.kubectl("delete", "pod", pod["metadata"]["name"])
        replaced = self.place.try_kubectl("replace", "--filename", "-", stdin=json.dumps(workflow))
        assert replaced.code == 0, replaced.err

    def clean_up(self) -> None:
        for run in self._runs:
            # A resumed run has several.
            with suppress(UnknownName):
                while True:
                    self.place.kubectl("delete", "workflow", self.argo.find(run).name)
        for name in self._templates:
            self.place.kubectl("delete", "workflowtemplate", name, "--ignore-not-found")


def drop_failed_nodes(workflow: dict[str, Any], *, runs_exit_step: bool) -> set[str]:
    """Change a Workflow that has failed so that its controller runs again what failed; return the nodes whose
    pods must be deleted.

    This is what `GenerateRetryExecution` of Kubeflow Pipelines 2.17 does (backend/src/common/util/
    workflow.go): nodes that succeeded or were skipped stay, failed DAGs run again, all others are dropped.
    """
    status, labels = workflow["status"], workflow["metadata"]["labels"]
    labels.pop("workflows.argoproj.io/completed", None)
    labels["workflows.argoproj.io/phase"] = status["phase"] = "Running"
    status.pop("message", None)
    status["finishedAt"] = None
    kept, pods = {}, set()
    for key, node in status["nodes"].items():
        is_exit_step = node["name"].startswith(f"{workflow['metadata']['name']}.onExit")
        if node["phase"] in ("Succeeded", "Skipped") and not (is_exit_step and runs_exit_step):
            kept[key] = node
        elif node["type"] == "DAG" and not is_exit_step:
            kept[key] = node | {"phase": "Running", "message": "", "finishedAt": None}
        elif node["type"] == "Pod":
            pods.add(key)
    for node in kept.values():
        for links in ("children", "outboundNodes"):
            node[links] = [each for each in node.get(links, ()) if each in kept]
    status["nodes"] = kept
    return pods
