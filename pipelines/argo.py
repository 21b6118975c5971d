"""The pipelines for Argo Workflows, derived from the KFP pipelines, so that the order of stages is defined
once.

A stage becomes a template `NAME-routed` of two steps, route and stage. The pair is retried together, so that
every attempt gets a new placement. Steps pass keys of the store, whose objects are in the store, so Argo
needs no artifact repository.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict

from shoestring.config.world import WORLD_FILES
from shoestring.config.yaml_loader import dump
from shoestring.core.record import argument_json
from shoestring.data.recipe_files import find_recipe
from shoestring.pipelines.argo_groups import group_templates, run_template
from shoestring.pipelines.argo_templates import (
    container_defaults,
    executor_patch,
    parameter_values,
    routed_template,
    router_template,
    settle_template,
    stage_template,
)
from shoestring.pipelines.compiled_tasks import check_pipeline
from shoestring.pipelines.external_containers import Yaml
from shoestring.pipelines.kubeflow import PIPELINES
from shoestring.pipelines.pods import USER_ID
from shoestring.pipelines.stage_graph import ExternalStage, Group, RoutedStage, Stage, routed_stages

RECIPES = sorted(path.stem for path in (Path(__file__).parent / "recipes").glob("*.yaml"))
READ_BY = {
    "ingest": ("", ""),
    "preprocess": ("ingest", ""),
    "train": ("preprocess", ""),
    "evaluate": ("preprocess", "train"),
    "predict": ("", ""),
}
"""The stages whose results a built-in stage reads: its data, and a second object."""

OWN_REFERENCE = re.compile(r"\{\{(inputs|tasks\.[\w-]+\.outputs|workflow)\.parameters\.[\w-]+\}\}")
"""A reference in a compiled container or in its inputs."""
TEMPLATE = re.compile(r"\{\{[^{}]*(\}\})?")

API_VERSION = "argoproj.io/v1alpha1"
WORKFLOW_TTL_S = 86400
"""How long Kubernetes keeps a finished Workflow; a run's results stay in the store.

It must be well above Policy.abandoned_after_s: without an exit step, the reaper reads when the pods began and
ended.
"""


def workflow_template(pipeline: Any) -> Yaml:
    """Return a KFP pipeline as a WorkflowTemplate of the same name.

    Raises UsageError if Argo cannot run one of its stages.
    """
    run = returning_all(routed_stages(pipeline))
    stages = run.stages
    spec = {
        "entrypoint": "run",
        "onExit": "settle",
        "serviceAccountName": "shoestring-stage",
        "arguments": {"parameters": workflow_parameters(takes_recipe(stages))},
        "volumes": workflow_volumes(),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "runAsGroup": USER_ID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        **image_pull_secrets(stages),
        "podSpecPatch": executor_patch(),
        # Not earlier: the exit step reads when the pods began and ended. The pods of a failed run stay as
        # long as the Workflow, for their logs.
        "podGC": {"strategy": "OnWorkflowSuccess"},
        "ttlStrategy": {"secondsAfterCompletion": WORKFLOW_TTL_S},
    }
    templates = templates_of(run)
    external = {each.task for each in stages if isinstance(each, ExternalStage)}
    spec |= with_container_defaults(templates, external)
    return {
        "apiVersion": API_VERSION,
        "kind": "WorkflowTemplate",
        "metadata": {"name": MessageToDict(pipeline.pipeline_spec)["pipelineInfo"]["name"]},
        "spec": spec,
    }


def templates_of(run: Group) -> list[Yaml]:
    """Return all templates of a run."""
    return [
        run_template(run),
        *group_templates(run),
        {"name": "approve", "suspend": {}},
        *(routed_template(stage) for stage in run.stages),
        router_template(),
        *(stage_template(stage) for stage in run.stages),
        settle_template(),
    ]


def template_warnings(pipeline: Any) -> list[str]:
    """Return a sentence for each external component in whose text Argo finds a template of its own."""
    sentences = []
    for stage in routed_stages(pipeline).stages:
        if isinstance(stage, ExternalStage):
            words = [*stage.container["command"], *stage.container["args"], *stage.values.values()]
            given = [*words, *(each.get("value", "") for each in stage.pod.env)]
            if found := TEMPLATE.search("\n".join(OWN_REFERENCE.sub("", text) for text in given)):
                sentences.append(
                    f"Argo takes {found[0]} in the command, inputs or environment of {stage.name} for a "
                    "template of its own: if it is not meant as one, keep it in a file of the image"
                )
    return sentences


def returning_all(run: Group) -> Group:
    """Return the run, whose first route step may return the results of all stages, if these are built-in
    stages in the order of the training, or the prediction alone: then what each of them reads is known.
    """
    as_built_in = all(
        isinstance(stage, RoutedStage)
        and not stage.origin
        and tuple(made.name if made else "" for made in (stage.upstream, stage.side_input))
        == READ_BY.get(stage.name)
        for stage in run.members
    )
    first, *others = run.members or (None,)
    if (
        not isinstance(first, RoutedStage)
        or not as_built_in
        or any(not stage.after for stage in others if stage)
    ):
        return run
    needs = argument_json(json.loads(first.needs) | {"may_return_all": True})
    return replace(run, members=(replace(first, needs=needs), *run.members[1:]))


def with_container_defaults(templates: list[Yaml], external: set[str]) -> Yaml:
    """Return the templates, with the defaults of containers that are not external components.

    Argo applies `templateDefaults` to every template. If one is external, the defaults are written into each
    of the other templates instead.
    """
    defaults = container_defaults()
    if not external:
        return {"templateDefaults": {"container": defaults}, "templates": templates}
    complete = [
        each | {"container": defaults | each["container"]}
        if "container" in each and each["name"] not in external
        else each
        for each in templates
    ]
    return {"templates": complete}


def takes_recipe(stages: list[Stage]) -> bool:
    """Return whether the runs of a pipeline have a recipe; those of a pipeline of commands have a job."""
    return not any("job" in json.loads(stage.needs) for stage in stages)


def workflow_parameters(has_recipe: bool) -> list[Yaml]:
    """Return the parameters of a run; empty, 0 and -1 mean the values of the recipe, or of the job."""
    defaults = {
        "run_id": "{{workflow.uid}}",
        "budget_usd": "",
        "deadline_s": "0",
        "seed": "-1",
        "approve": "no",
    }
    recipe: list[Yaml] = [{"name": "recipe"}] if has_recipe else parameter_values({"recipe": ""})
    return [*recipe, *parameter_values(defaults)]


def image_pull_secrets(stages: list[Stage]) -> Yaml:
    """Return the secrets by which the images of all stages are pulled: Argo has them for whole Workflows."""
    names = sorted({name for stage in stages for name in stage.pod.pull_secrets})
    return {"imagePullSecrets": [{"name": name} for name in names]} if names else {}


def workflow_volumes() -> list[Yaml]:
    files = [
        {"name": name, "configMap": {"name": f"shoestring-{name}", "optional": True}} for name in WORLD_FILES
    ]
    return [*files, {"name": "scratch", "emptyDir": {}}]


def workflow(template: str, recipe: str) -> Yaml:
    """Return a Workflow that runs a built-in recipe."""
    given = argument_json(find_recipe(recipe), exclude_defaults=True)
    return {
        "apiVersion": API_VERSION,
        "kind": "Workflow",
        "metadata": {"generateName": f"{recipe}-"},
        "spec": {
            "workflowTemplateRef": {"name": template},
            "arguments": {"parameters": parameter_values({"recipe": given})},
        },
    }


def compile_all(folder: Path) -> list[Path]:
    """Write FOLDER/NAME.yaml, the WorkflowTemplate of each pipeline, and FOLDER/runs/RECIPE.yaml, a Workflow
    that trains an included recipe; return the paths.

    `kubectl apply` takes the first, `kubectl create` the second.
    """
    (folder / "runs").mkdir(parents=True, exist_ok=True)
    templates = [write(pipeline, folder / f"{pipeline.name}.yaml") for pipeline in PIPELINES.values()]
    trained = PIPELINES["train"].name
    runs = [write_yaml(workflow(trained, each), folder / "runs" / f"{each}.yaml") for each in RECIPES]
    return [*templates, *runs]


def write(pipeline: Any, path: Path) -> Path:
    """Write a KFP pipeline as a WorkflowTemplate.

    Raises UsageError if Argo cannot run one of its stages, and as `check_compiled`.
    """
    check_pipeline(pipeline)
    return write_yaml(workflow_template(pipeline), path)


def write_yaml(document: Yaml, path: Path) -> Path:
    path.write_text(dump(document, sort_keys=False, width=140), encoding="utf-8")
    return path
