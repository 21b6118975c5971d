"""Run a WorkflowTemplate's steps on this machine, as Argo's controller would start them in pods."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from commands import Ran, command

from shoestring.pipelines.external_containers import OUTPUTS

REFERENCE = re.compile(r"\{\{([^{}]+)\}\}")


@dataclass
class ArgoByHand:
    """A run of a WorkflowTemplate. `outputs`: of each stage that has ended, by name. `secrets`: the Secrets
    of its namespace, by name and key; None: its steps have the environment of this process.
    """

    template: dict[str, Any]
    world: Path
    run_id: str
    folder: Path
    parameters: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, dict[str, str]] = field(default_factory=dict)
    secrets: dict[str, dict[str, str]] | None = None

    def __post_init__(self) -> None:
        spec = self.template["spec"]
        self.templates = {each["name"]: each for each in spec["templates"]}
        given = {each["name"]: each.get("value", "") for each in spec["arguments"]["parameters"]}
        self.values = {f"workflow.parameters.{name}": text for name, text in given.items()}
        self.values |= {f"workflow.parameters.{name}": text for name, text in self.parameters.items()}
        self.values["workflow.parameters.run_id"] = self.run_id

    def filled(self, text: str, values: dict[str, str]) -> str:
        return REFERENCE.sub(lambda found: (self.values | values)[found[1]], text)

    def arguments(self, task: dict[str, Any], values: dict[str, str]) -> dict[str, str]:
        """Return what a task passes to its template, by the names that the template has for it."""
        given = task["arguments"]["parameters"]
        return {f"inputs.parameters.{each['name']}": self.filled(each["value"], values) for each in given}

    def route(self, stage: str) -> Ran:
        """Run the route step of a stage."""
        (task,) = (each for each in self.templates["run"]["dag"]["tasks"] if each["name"] == stage)
        done = {
            f"tasks.{name}.outputs.parameters.{output}": text
            for name, outputs in self.outputs.items()
            for output, text in outputs.items()
        }
        self.inner = self.arguments(task, done)
        route, self.task = self.templates[f"{stage}-routed"]["dag"]["tasks"]
        words = self.words("route", self.arguments(route, self.inner))
        out = self.folder / "routed"
        words[words.index("--out") + 1] = str(out)
        ran = self.run([*command(), *words, "--world", str(self.world)])
        self.routed = {
            f"tasks.route.outputs.parameters.{name}": (out / name).read_text()
            for name in ("patch", "decision_key")
            if (out / name).exists()
        }
        return ran

    @property
    def patch(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.routed["tasks.route.outputs.parameters.patch"])
        return found

    def words(self, template: str, values: dict[str, str]) -> list[str]:
        container = self.templates[template]["container"]
        return [self.filled(word, values) for word in [*container.get("command", [])[1:], *container["args"]]]

    def stage_line(self, stage: str) -> list[str]:
        """Return the command line of the pod of a stage that was routed last."""
        (self.folder / stage).mkdir(exist_ok=True)
        container = self.templates[stage]["container"]
        values = self.arguments(self.task, self.inner | self.routed)
        words = [self.filled(word, values) for word in [*container["command"], *container["args"]]]
        words = [word.replace(OUTPUTS, str(self.folder / stage)) for word in words]
        if words[0] == "shoestring":
            words[words.index("--world") + 1] = str(self.world)
            words = [*command(), *words[1:]]
        return words

    def own_stage_line(self, stage: str) -> list[str]:
        """Return the command line of the pod of a stage of Shoestring that was routed last."""
        (self.folder / stage).mkdir(exist_ok=True)
        words = self.words(stage, self.arguments(self.task, self.inner | self.routed))
        words[words.index("--key-to") + 1] = str(self.folder / stage / "key")
        return [*command(), *words, "--world", str(self.world)]

    @property
    def environment(self) -> dict[str, str] | None:
        """The variables of a pod: those of this process, and of Secrets only what the template names."""
        if self.secrets is None:
            return None
        given = {
            name: text for name, text in os.environ.items() if not name.startswith(("AWS_", "SHOESTRING_"))
        }
        for each in self.template["spec"]["templateDefaults"]["container"]["env"]:
            if wanted := each["valueFrom"].get("secretKeyRef"):
                secret = self.secrets.get(wanted["name"], {})
                assert wanted["optional"]
                given |= {each["name"]: secret[wanted["key"]]} if wanted["key"] in secret else {}
        return given

    def finish(self, stage: str) -> None:
        """Take over the outputs of a stage whose pod has ended: Argo takes one newline off each."""
        names = [each["name"] for each in self.templates[stage]["outputs"]["parameters"]]
        texts = {name: (self.folder / stage / name).read_text() for name in names}
        self.outputs[stage] = {name: text.removesuffix("\n") for name, text in texts.items()}

    def run(self, line: list[str]) -> Ran:
        done = subprocess.run(
            line, capture_output=True, text=True, timeout=120, cwd=self.folder, env=self.environment
        )
        return Ran(done.returncode, done.stdout, done.stderr)
