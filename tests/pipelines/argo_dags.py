"""A pipeline of containers compiled for Argo, and its templates."""

import re
from typing import Any

from kfp import dsl

from shoestring.core.types import Need
from shoestring.pipelines.argo import workflow_template
from shoestring.pipelines.routed import RunParameters, routed

RUN = RunParameters(world="", run_id="", recipe="", budget_usd="", deadline_s=0.0, seed=0)
TASK = re.compile(r"tasks(?:\.|\[')([\w-]+)(?:'\])?\.outputs\.parameters(?:\.|\[')([\w-]+)")
INPUT = re.compile(r"inputs\.parameters(?:\.|\[')([\w-]+)")
Templates = dict[str, dict[str, Any]]


@dsl.container_component
def measure(
    word: str,
    size: dsl.OutputPath(str),
    rows: dsl.OutputPath(int),
    share: dsl.OutputPath(float),
    good: dsl.OutputPath(bool),
):  # type: ignore[no-untyped-def]
    return dsl.ContainerSpec("alpine:3.20", ["echo"], [word, size, rows, share, good])


@dsl.container_component
def say(word: str, said: dsl.OutputPath(str)):  # type: ignore[no-untyped-def]
    return dsl.ContainerSpec("alpine:3.20", ["echo"], [word, said])


def need(stage: str, items: int = 1) -> list[Need]:
    return [Need(stage=stage, after=(), items=items)]


def step(stage: str, word: Any, items: int = 1) -> Any:
    return routed(say, need(stage, items), RUN, word=word).outputs["said"]


def compiled(pipeline: Any) -> Templates:
    """Return the templates of a pipeline. Their DAGs read only their inputs and what their tasks make."""
    templates = {each["name"]: each for each in workflow_template(pipeline)["spec"]["templates"]}
    assert len(templates) == len(workflow_template(pipeline)["spec"]["templates"])

    def names(template: dict[str, Any], side: str) -> set[str]:
        return {each["name"] for each in template.get(side, {}).get("parameters", [])}

    for template in templates.values():
        tasks = {task["name"]: task for task in template.get("dag", {}).get("tasks", [])}
        for task in tasks.values():
            given = {each["name"] for each in task.get("arguments", {}).get("parameters", [])}
            assert given == names(templates[task["template"]], "inputs"), task["name"]
            waited = {*task.get("depends", "").split(" && ")} - {""}
            assert waited <= {*tasks}, task["name"]
        text = str([*tasks.values()]) + str(template.get("outputs", {}) if tasks else "")
        assert {*INPUT.findall(text)} <= names(template, "inputs"), template["name"]
        for maker, output in TASK.findall(text.replace("\\", "")):
            assert output in names(templates[tasks[maker]["template"]], "outputs"), (maker, output)
    return templates


def tasks_of(templates: Templates, name: str) -> dict[str, dict[str, Any]]:
    return {task["name"]: task for task in templates[name]["dag"]["tasks"]}


def values(task: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["value"] for each in task["arguments"]["parameters"]}
