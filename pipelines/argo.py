"""The pipelines for Argo Workflows, read off the very pipelines that Kubeflow is given: who follows whom is said once.

A stage is a template `NAME-routed` of two steps, route and stage. That pair is what is tried again, so that every attempt is placed anew.
Keys into the store travel between the steps; what they name is in the store, so Argo needs no artifact repository.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from google.protobuf.json_format import MessageToDict

from shoestring.pipelines.kubeflow import PIPELINES
from shoestring.pipelines.routed import CREDENTIALS, IDENTITY, PLACED, STAGE_LABEL, USER, WORLD_FILES
from shoestring.backends.local import WORLD_MOUNT_PATH
from shoestring.config.world import IMAGES
from shoestring.core.errors import UsageError
from shoestring.data.recipe import find_recipe
from shoestring.routing.placement import ROUTE, RUN_LABEL, SETTLE

RECIPES = sorted(path.stem for path in (Path(__file__).parent / "recipes").glob("*.yaml"))
# Inputs of a component that are not what its stage reads.
TAKEN = {"world", "run_id", "job_id", "decision_key", "origin", *PLACED}
API_VERSION = "argoproj.io/v1alpha1"
# Always: also when the pod was deleted, as a spot machine's are.
AGAIN = {"limit": "2", "retryPolicy": "Always"}
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
# How long Kubernetes keeps a Workflow that is over; what the run left stays in the store. Well beyond Rules.abandoned_after_s: where no exit
# step came, the sweeper still has to read when the pods began and ended.
KEPT_S = 86400
SCRATCH = "/tmp"

Yaml = dict[str, Any]


@dataclass(frozen=True)
class Stage:
    """A routed stage of a pipeline. Where it reads a key, the name of the stage that leaves it; empty: it reads none.

    `needs` is JSON, and so is `origin`: what an author's own stage is given to find its code; empty for ours.
    """

    name: str
    needs: str
    origin: str
    upstream: str
    also: str
    inputs: dict[str, str]

    @property
    def after(self) -> list[str]:
        """The stages that leave what this one reads."""
        return sorted({self.upstream, self.also, *self.inputs.values()} - {""})


def stages_of(pipeline: Any) -> list[Stage]:
    """The routed stages of a KFP pipeline, in the order in which they are routed. Raises UsageError where Argo could not run one."""
    spec = MessageToDict(pipeline.pipeline_spec)
    dags = [
        spec["root"]["dag"],
        *(component["dag"] for component in spec["components"].values() if "dag" in component),
    ]
    given = {
        name: task.get("inputs", {}).get("parameters", {})
        for dag in dags
        for name, task in dag["tasks"].items()
    }
    routers = {
        name: values["decision_key"]["taskOutputParameter"]["producerTask"]
        for name, values in given.items()
        if "decision_key" in values
    }
    if foreign := sorted(
        router for router, values in given.items() if "needs" in values and router not in routers.values()
    ):
        raise UsageError(
            f"{', '.join(foreign)}: a router whose task is not a stage of Shoestring's; Kubeflow can run it, Argo cannot"
        )
    needs = {task: given[router]["needs"]["runtimeValue"]["constant"] for task, router in routers.items()}
    names = {task: json.loads(text)["needs"][0]["stage"] for task, text in needs.items()}

    def leaver(value: Yaml) -> str:
        return names.get(value.get("taskOutputParameter", {}).get("producerTask"), "")

    for task in routers:
        own = {
            name: value
            for name, value in given[task].items()
            if name not in TAKEN and not name.startswith("pipelinechannel--")
        }
        if other := sorted(name for name, value in own.items() if not leaver(value)):
            raise UsageError(
                f"{task} has an input {other[0]} that is not the key of what a stage left: Argo hands on nothing else"
            )
    stages = [
        Stage(
            name=names[task],
            needs=needs[task],
            origin=given[task].get("origin", {}).get("runtimeValue", {}).get("constant", ""),
            upstream=leaver(given[router]["upstream"]),
            also=leaver(given[router]["also"]),
            inputs={name: leaver(value) for name, value in sorted(given[task].items()) if leaver(value)},
        )
        for task, router in routers.items()
    ]
    return sorted(stages, key=lambda stage: -len(json.loads(stage.needs)["needs"]))


def parameters(values: dict[str, str]) -> list[Yaml]:
    return [{"name": name, "value": value} for name, value in values.items()]


def declared(*names: str) -> Yaml:
    return {"parameters": [{"name": name} for name in names]}


def left(**paths: str) -> Yaml:
    """Output parameters, from files."""
    return {"parameters": [{"name": name, "valueFrom": {"path": path}} for name, path in paths.items()]}


def taken(*names: str) -> dict[str, str]:
    """Inputs of a template, handed on under their own names."""
    return {name: f"{{{{inputs.parameters.{name}}}}}" for name in names}


def pod(name: str, label: str, account: str, command: list[str], inputs: list[str], outputs: Yaml) -> Yaml:
    """A template of one container, which `container()` completes."""
    return {
        "name": name,
        "inputs": declared(*inputs),
        "outputs": outputs,
        "metadata": {"labels": {STAGE_LABEL: label, RUN_LABEL: "{{workflow.parameters.run_id}}"}},
        "serviceAccountName": account,
        "container": {"args": [*command, "--run-id", "{{workflow.parameters.run_id}}"]},
    }


def container() -> Yaml:
    """What all containers have in common: the world's files, the store's credentials, who they are, no root."""
    credentials = [
        {
            "name": name,
            "valueFrom": {"secretKeyRef": {"name": "shoestring-s3", "key": name, "optional": True}},
        }
        for name in CREDENTIALS
    ]
    identity = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in IDENTITY.items()
    ]
    files = [{"name": name, "mountPath": f"{WORLD_MOUNT_PATH}/{name}", "readOnly": True} for name in WORLD_FILES]
    return {
        "image": IMAGES["base"],
        "imagePullPolicy": "IfNotPresent",
        "command": ["shoestring"],
        "env": [*credentials, *identity],
        "volumeMounts": [*files, {"name": "scratch", "mountPath": SCRATCH}],
        # What a router says when it refuses is then what Argo says of its pod.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": RESTRICTED,
    }


def executor() -> str:
    """Argo's own containers in our pods, as restricted as ours: the controller's default passes no `restricted` namespace."""
    own = {
        kind: [{"name": name, "securityContext": RESTRICTED}]
        for kind, name in (("initContainers", "init"), ("containers", "wait"))
    }
    return json.dumps(own)


def router() -> Yaml:
    """One template for all stages."""
    out = f"{SCRATCH}/routed"
    asked = {f"--{name}": f"{{{{inputs.parameters.{name}}}}}" for name in ("needs", "upstream", "also")}
    asked |= {"--recipe": "{{workflow.parameters.recipe}}", "--budget": "{{workflow.parameters.budget_usd}}"}
    asked |= {
        "--deadline": "{{workflow.parameters.deadline_s}}",
        "--seed": "{{workflow.parameters.seed}}",
        "--out": out,
    }
    command = ["route", *(word for option in asked.items() for word in option)]
    label = f"{ROUTE}{{{{inputs.parameters.stage}}}}"
    # Defaults, because Argo keeps none of the outputs of a pod where one has no file, and a router that refuses leaves only the last.
    files = {
        "patch": ("patch", ""),
        "decision_key": ("decision_key", ""),
        "page": ("page.md", ""),
        "refused": ("refused", "no"),
    }
    found = [
        {"name": name, "valueFrom": {"path": f"{out}/{file}", "default": other}}
        for name, (file, other) in files.items()
    ]
    # An output of the whole workflow: no other tells a retryStrategy what a task within its template said.
    found[-1]["globalName"] = "refused"
    return pod(
        "route",
        label,
        "shoestring-router",
        command,
        ["stage", "needs", "upstream", "also"],
        {"parameters": found},
    )


def stage_pod(stage: Stage) -> Yaml:
    """The stage itself, in the pod that its router's patch describes."""
    key = f"{SCRATCH}/key"
    inputs = [
        word
        for name, leaver in stage.inputs.items()
        for word in ("--input", f"{name}={{{{inputs.parameters.{leaver}}}}}")
    ]
    origin = ["--origin", stage.origin] if stage.origin else []
    command = [
        "stage",
        stage.name,
        "--decision-key",
        "{{inputs.parameters.decision_key}}",
        "--key-to",
        key,
        *origin,
        *inputs,
    ]
    template = pod(
        stage.name,
        stage.name,
        "shoestring-stage",
        command,
        ["patch", "decision_key", *stage.after],
        left(key=key),
    )
    return template | {"podSpecPatch": "{{inputs.parameters.patch}}"}


def pair(stage: Stage) -> Yaml:
    """route, then stage: tried again together, since a pod that was lost is to be placed by what is true then.

    Not after a router that refused: it would refuse again.
    """
    asked = {"stage": stage.name, "needs": stage.needs}
    asked |= {
        name: taken(leaver)[leaver] if leaver else ""
        for name, leaver in (("upstream", stage.upstream), ("also", stage.also))
    }
    decided = {name: f"{{{{tasks.route.outputs.parameters.{name}}}}}" for name in ("patch", "decision_key")}
    return {
        "name": f"{stage.name}-routed",
        "inputs": declared(*stage.after),
        "outputs": {
            "parameters": [
                {"name": "key", "valueFrom": {"parameter": "{{tasks.stage.outputs.parameters.key}}"}}
            ]
        },
        "retryStrategy": AGAIN | {"expression": "'{{workflow.outputs.parameters.refused}}' != 'yes'"},
        "dag": {
            "tasks": [
                {"name": "route", "template": "route", "arguments": {"parameters": parameters(asked)}},
                {
                    "name": "stage",
                    "template": stage.name,
                    "depends": "route",
                    "arguments": {"parameters": parameters(decided | taken(*stage.after))},
                },
            ]
        },
    }


def chain(stages: list[Stage]) -> Yaml:
    """The whole run: first a person's yes, where it is asked for."""
    tasks: list[Yaml] = [
        {"name": "approve", "template": "approve", "when": "{{workflow.parameters.approve}} == yes"}
    ]
    for stage in stages:
        keys = {leaver: f"{{{{tasks.{leaver}.outputs.parameters.key}}}}" for leaver in stage.after}
        task = {
            "name": stage.name,
            "template": f"{stage.name}-routed",
            "depends": " && ".join(stage.after) or "approve",
        }
        tasks.append(task | {"arguments": {"parameters": parameters(keys)}})
    return {"name": "run", "dag": {"tasks": tasks}}


def settle() -> Yaml:
    summary = f"{SCRATCH}/summary.json"
    template = pod(
        "settle", SETTLE, "shoestring-settle", ["settle", "--summary", summary], [], left(summary=summary)
    )
    # Not where there is nothing to settle: no router ever got as far as to write the run down.
    return template | {"retryStrategy": AGAIN | {"expression": "lastRetry.exitCode != '2'"}}


def workflow_template(pipeline: Any) -> Yaml:
    """A KFP pipeline as a WorkflowTemplate of the same name. Raises UsageError where Argo could not run a stage of it."""
    stages = stages_of(pipeline)
    values = {
        "run_id": "{{workflow.uid}}",
        "budget_usd": "",
        "deadline_s": "0",
        "seed": "-1",
        "approve": "no",
    }
    volumes = [
        {"name": name, "configMap": {"name": f"shoestring-{name}", "optional": True}} for name in WORLD_FILES
    ]
    spec = {
        "entrypoint": "run",
        "onExit": "settle",
        "serviceAccountName": "shoestring-stage",
        "arguments": {"parameters": [{"name": "recipe"}, *parameters(values)]},
        "volumes": [*volumes, {"name": "scratch", "emptyDir": {}}],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "podSpecPatch": executor(),
        "templateDefaults": {"container": container()},
        # Not before: the exit step reads when the pods began and ended. Those of a run that failed stay as long as it, for their logs.
        "podGC": {"strategy": "OnWorkflowSuccess"},
        "ttlStrategy": {"secondsAfterCompletion": KEPT_S},
        "templates": [
            chain(stages),
            {"name": "approve", "suspend": {}},
            *(pair(stage) for stage in stages),
            router(),
            *(stage_pod(stage) for stage in stages),
            settle(),
        ],
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "WorkflowTemplate",
        "metadata": {"name": MessageToDict(pipeline.pipeline_spec)["pipelineInfo"]["name"]},
        "spec": spec,
    }


def workflow(template: str, recipe: str) -> Yaml:
    """A run of a recipe that Shoestring brings along."""
    arguments = {
        "parameters": parameters({"recipe": find_recipe(recipe).model_dump_json(exclude_defaults=True)})
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "Workflow",
        "metadata": {"generateName": f"{recipe}-"},
        "spec": {"workflowTemplateRef": {"name": template}, "arguments": arguments},
    }


def compile_to(folder: Path) -> list[Path]:
    """Write FOLDER/NAME.yaml for `kubectl apply`, a WorkflowTemplate, and FOLDER/runs/RECIPE.yaml for `kubectl create`; returns both."""
    (folder / "runs").mkdir(parents=True, exist_ok=True)
    written = []
    for pipeline in PIPELINES.values():
        written.append(write(pipeline, folder / f"{pipeline.name}.yaml"))
        written += [
            put(workflow(pipeline.name, recipe), folder / "runs" / f"{recipe}.yaml") for recipe in RECIPES
        ]
    return written


def write(pipeline: Any, path: Path) -> Path:
    """A KFP pipeline as a WorkflowTemplate. Raises UsageError where Argo could not run a stage of it."""
    return put(workflow_template(pipeline), path)


def put(document: Yaml, path: Path) -> Path:
    path.write_text(yaml.safe_dump(document, sort_keys=False, width=140), encoding="utf-8")
    return path
