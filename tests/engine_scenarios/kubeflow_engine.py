"""The driver for Kubeflow Pipelines: `shoestring upload`, KFP's client, and kubectl."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from commands import shoestring
from engine_scenarios.engine import Engine, Job, Pipeline, Place, StartedRun, State, compile_pipeline
from engine_scenarios.pod_history import PodHistory

from shoestring.cli.authoring.upload import KUBEFLOW_NAMESPACE
from shoestring.pipelines.kfp_client import KfpServer, connect, get_health, plain_errors

STATES: dict[str, State] = {"SUCCEEDED": "succeeded", "FAILED": "failed", "CANCELED": "failed"}
TOKEN_VARIABLE = "SHOESTRING_KFP_TOKEN"


@dataclass(frozen=True)
class KubeflowServer:
    """The Kubeflow that the variables SHOESTRING_KFP... name.

    `context`: empty where only the API server is used, without a cluster. `registry`: empty for the published
    images.
    """

    host: str
    place: Place
    registry: str = ""
    token: str = ""

    @classmethod
    def of_environment(cls, variables: Mapping[str, str]) -> KubeflowServer:
        """Raises KeyError if a variable that must be set is not."""
        namespace = variables.get("SHOESTRING_KFP_NAMESPACE", KUBEFLOW_NAMESPACE)
        return cls(
            variables["SHOESTRING_KFP"].rstrip("/"),
            Place(variables["SHOESTRING_KFP_CONTEXT"], namespace),
            variables.get("SHOESTRING_KFP_REGISTRY", "").rstrip("/"),
            variables.get(TOKEN_VARIABLE, ""),
        )

    @property
    def kfp(self) -> KfpServer:
        """The server as KFP's client is given it; a multi-user server wants the user's namespace."""
        plain = KfpServer(self.host, "", self.token, TOKEN_VARIABLE if self.token else "")
        with plain_errors(plain):
            namespace = self.place.namespace if get_health(plain).get("multi_user") else ""
        return KfpServer(self.host, namespace, self.token, plain.token_variable)


class KubeflowEngine(Engine):
    """Kubeflow Pipelines, with pipelines whose names begin with `suite`: they are deleted at the end."""

    def __init__(self, server: KubeflowServer, history: PodHistory, scratch: Path) -> None:
        super().__init__(server.place, history, scratch)
        self.suite = f"shoestring-suite-{uuid4().hex[:6]}"
        self._server, self._kfp, self._numbers = server, server.kfp, itertools.count(1)
        self.client = connect(self._kfp)
        self._files: dict[str, Path] = {}

    def start(self, job: Job, resume: str = "") -> StartedRun:
        # Without an id of its own, a run has Kubeflow's.
        run_id = resume or (f"{self.suite}-{next(self._numbers)}" if job.pipeline else "")
        line = ("--run", "--wait", "--json", *(("--run-id", run_id) if run_id else ()), *self._summary())
        log = self.scratch / f"run-{next(self._numbers)}.txt"
        link = r"^run: \S+/runs/details/(\S+)$"
        return StartedRun(self._upload(job, *line), log, link, lambda facts: facts["summary"], run_id)

    def _summary(self) -> tuple[str, ...]:
        """Return where the summary of a run is read."""
        return ("--on", self.place.context) if self.place.context else ()

    def _upload(self, job: Job, *more: str) -> tuple[str, ...]:
        """Return the command that uploads the pipeline of a job with its arguments."""
        budget = ("--budget", job.budget_usd) if job.budget_usd else ()
        name = f"{self.suite}-{job.pipeline.name if job.pipeline else 'train'}"
        recipe = ("--recipe", job.recipe) if job.recipe else ()
        what = ("--file", str(self.compiled(job.pipeline)), "--name", name, *recipe)
        return ("upload", *self.server_options, *what, *budget, *more)

    @property
    def server_options(self) -> tuple[str, ...]:
        """The options of `shoestring upload` that name the server and the account on it."""
        kfp = self._kfp
        token = ("--token-env", TOKEN_VARIABLE) if kfp.token else ()
        namespace = ("--namespace", kfp.namespace) if kfp.namespace else ()
        return ("--host", kfp.host, *namespace, *token)

    def compiled(self, pipeline: Pipeline | None) -> Path:
        """Return a pipeline's compiled file, with the registry's images."""
        name = pipeline.name if pipeline else "train"
        if name not in self._files:
            registry = ("--registry", self._server.registry) if self._server.registry else ()
            self._files[name] = compile_pipeline(pipeline, "kfp", self.scratch / name, *registry)
        return self._files[name]

    def schedule(self, job: Job) -> str:
        ran = shoestring(*self._upload(job, "--cron", "* * * * *", "--json"))
        assert ran.code == 0, ran.err
        return str(ran.json["recurring_run_id"])

    def unschedule(self, schedule: str) -> None:
        # Deleting a schedule would delete its runs.
        self.client.disable_recurring_run(schedule)

    def scheduled_runs(self, schedule: str) -> list[str]:
        runs = self._all(self.client.list_runs, "runs", namespace=self._namespace)
        found = [run for run in runs if run.recurring_run_id == schedule]
        return [str(run.run_id) for run in sorted(found, key=lambda run: run.created_at)]

    @property
    def _namespace(self) -> str | None:
        return self._kfp.namespace or None

    def state(self, engine_id: str) -> State:
        return STATES.get(str(self.client.get_run(engine_id).state), "running")

    def terminate(self, engine_id: str) -> None:
        self.client.terminate_run(engine_id)

    def retry(self, engine_id: str) -> None:
        # KFP's client has no method of its own for it.
        self.client._run_api.run_service_retry_run(engine_id)

    def clean_up(self) -> None:
        """Delete the runs, schedules, pipelines and experiments whose names begin with the suite's."""
        experiments = self._mine(self.client.list_experiments, "experiments", namespace=self._namespace)
        for experiment in experiments:
            where = {"experiment_id": experiment.experiment_id}
            for schedule in self._all(self.client.list_recurring_runs, "recurring_runs", **where):
                self.client.delete_recurring_run(schedule.recurring_run_id)
            for run in self._all(self.client.list_runs, "runs", **where):
                if str(run.state) not in STATES:
                    self.client.terminate_run(run.run_id)
                self.client.delete_run(run.run_id)
            self.client.delete_experiment(experiment.experiment_id)
        for pipeline in self._mine(self.client.list_pipelines, "pipelines", namespace=self._namespace):
            versions = self._all(
                self.client.list_pipeline_versions, "pipeline_versions", pipeline_id=pipeline.pipeline_id
            )
            for version in versions:
                self.client.delete_pipeline_version(pipeline.pipeline_id, version.pipeline_version_id)
            self.client.delete_pipeline(pipeline.pipeline_id)

    def _mine(self, listing: Callable[..., Any], kind: str, **where: Any) -> list[Any]:
        found = self._all(listing, kind, **where)
        return [each for each in found if str(each.display_name).startswith(self.suite)]

    def _all(self, listing: Callable[..., Any], kind: str, **where: Any) -> list[Any]:
        """Return all pages of a list, read before anything in it is deleted."""
        found: list[Any] = []
        token = ""
        while True:
            page = listing(page_token=token, page_size=100, **where)
            found += getattr(page, kind) or []
            token = page.next_page_token or ""
            if not token:
                return found
