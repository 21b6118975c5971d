"""The shell blocks of the documentation that are tagged `kind`, which the tests of this folder run as they
are written.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import yaml
from cluster_setup import CLUSTER
from documented import tagged
from engine_scenarios.argo_engine import ArgoEngine
from engine_scenarios.engine import Job, Place, StartedRun
from engine_scenarios.pod_history import PodHistory
from engine_scenarios.predictions import PREDICT
from kind_cluster import Kind, run


def kind_commands() -> list[str]:
    """Return every line of every block that is tagged `kind`."""
    return [line for block in tagged("kind") for line in block.text.splitlines() if line]


class Documentation:
    """The documented commands, and those that ran. Commands reach the cluster by a kubeconfig with one
    context, as its administrator, or as the account of `token`.
    """

    def __init__(self, kubeconfig: Path, token: str = "") -> None:
        self._kubeconfig, self._token = kubeconfig, token
        self.executed: set[str] = set()

    def command(self, beginning: str) -> str:
        """Return the one documented command that begins like this, and count it as executed."""
        (found,) = {line for line in kind_commands() if line.startswith(beginning)}
        self.executed.add(found)
        return found

    def run(self, cluster: Kind | None, folder: Path, beginning: str) -> str:
        """Run the one documented command that begins like this in `folder`; return its output. Raises
        CommandFailed.
        """
        if cluster and not self._kubeconfig.exists():
            text = run("kind", "get", "kubeconfig", "--name", cluster.name)
            # The documented commands name the context of `make cluster`.
            config = yaml.safe_load(text.replace(cluster.context, CLUSTER.context))
            if self._token:
                config["users"][0]["user"] = {"token": self._token}
            self._kubeconfig.write_text(yaml.safe_dump(config))
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        variables = (f"PATH={path}", f"KUBECONFIG={self._kubeconfig}")
        command = ("bash", "-euo", "pipefail", "-c", self.command(beginning))
        return run("env", "--chdir", str(folder), *variables, *command, timeout_s=600)

    def run_arguments(self, beginning: str) -> list[str]:
        """Return the arguments of a documented `shoestring run` on a cluster, without `--on CONTEXT`."""
        shoestring, command, *arguments = shlex.split(self.command(beginning))
        assert (shoestring, command) == ("shoestring", "run")
        on = arguments.index("--on")
        assert arguments[on + 1] == CLUSTER.context
        return arguments[:on] + arguments[on + 2 :]


DATA_SECRET_COMMAND = "kubectl --namespace shoestring create secret generic shoestring-data "

COMMANDS = {
    "flights": "shoestring run flights",
    "dedupe-rows": "shoestring run my.yaml",
    PREDICT.name: "shoestring run score.yaml",
}
"""The documented commands by the recipe of the main job, and by the names of other pipelines."""


class DocumentedArgo(ArgoEngine):
    """Argo Workflows, on which commands of the pages start the main job, the author's pipeline, and the
    prediction, whose WorkflowTemplate they have applied.
    """

    def __init__(
        self, place: Place, history: PodHistory, scratch: Path, documentation: Documentation
    ) -> None:
        super().__init__(place, history, scratch)
        self._documentation = documentation
        self._documented: dict[str, StartedRun] = {}
        self._templates.add(PREDICT.name)

    def start(self, job: Job, resume: str = "") -> StartedRun:
        name = name_of(job)
        if resume or name not in COMMANDS:
            return super().start(job, resume)
        if job.pipeline:
            self._template(job.pipeline)
        _, *options = self._documentation.run_arguments(COMMANDS[name])
        self._documented[name] = self.run(job.recipe, *options)
        return self._documented[name]

    def documented_run(self, job: Job) -> StartedRun:
        """Return the last run that the page's command started, or start one."""
        return self._documented.get(name_of(job)) or self.start(job)


def name_of(job: Job) -> str:
    return job.pipeline.name if job.pipeline else job.recipe
