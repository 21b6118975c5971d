"""The routed stages of a KFP pipeline, and what each of them reads."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from google.protobuf.json_format import MessageToDict

from shoestring.config.engines import Engine
from shoestring.core.errors import UsageError
from shoestring.pipelines.routed import PLACEMENT_INPUTS

RESERVED_INPUTS = {"world", "run_id", "job_id", "decision_key", "origin", *PLACEMENT_INPUTS}
"""Inputs of a component that are not data that its stage reads."""

ENGINE: Engine = "argo"
"""What the routers of a WorkflowTemplate are told."""

ROUTER_INPUTS = {"needs", "upstream", "side_input", "job_id"}

Yaml = dict[str, Any]


@dataclass(frozen=True)
class RoutedStage:
    """A routed stage of a pipeline.

    `upstream`, `side_input` and the values of `inputs` are names of the stages that produce what this stage
    reads; empty: none. `after` are all stages that its router waits for. `needs` and `origin` are JSON.
    `origin` names the code of an author's own stage; empty for Shoestring's stages.
    """

    name: str
    needs: str
    origin: str
    upstream: str
    side_input: str
    inputs: dict[str, str]
    after: tuple[str, ...]

    @property
    def producers(self) -> list[str]:
        """The stages that produce what this stage reads."""
        return sorted({self.upstream, self.side_input, *self.inputs.values()} - {""})


def routed_stages(pipeline: Any) -> list[RoutedStage]:
    """Return the routed stages of a KFP pipeline in the order of their routing.

    Raises:
        UsageError: Argo cannot run one of the stages.
    """
    tasks = {task.name: task for task in _tasks(MessageToDict(pipeline.pipeline_spec))}
    values = {name: task.inputs for name, task in tasks.items()}
    routers = {
        name: inputs["decision_key"]["taskOutputParameter"]["producerTask"]
        for name, inputs in values.items()
        if "decision_key" in inputs
    }
    _check_routers(values, routers)
    needs = {task: values[router]["needs"]["runtimeValue"]["constant"] for task, router in routers.items()}
    names = {task: json.loads(text)["needs"][0]["stage"] for task, text in needs.items()}

    def producer(value: Yaml) -> str:
        return names.get(value.get("taskOutputParameter", {}).get("producerTask"), "")

    for task in routers:
        _check_group(tasks[task])
        if other := sorted(name for name in _data_inputs(values[task]) if not producer(values[task][name])):
            raise UsageError(
                f"{task} has an input {other[0]} that is not the output key of a stage: Argo passes only "
                "those on"
            )
    stages = [
        RoutedStage(
            name=names[task],
            needs=json.dumps(json.loads(needs[task]) | {"engine": ENGINE}, separators=(",", ":")),
            origin=values[task].get("origin", {}).get("runtimeValue", {}).get("constant", ""),
            upstream=producer(values[router]["upstream"]),
            side_input=producer(values[router]["side_input"]),
            inputs={name: producer(value) for name, value in sorted(values[task].items()) if producer(value)},
            after=_stages_before(tasks[task], tasks[router], names),
        )
        for task, router in routers.items()
    ]
    return sorted(stages, key=lambda stage: -len(json.loads(stage.needs)["needs"]))


@dataclass(frozen=True)
class _CompiledTask:
    """A task in a compiled pipeline.

    `inputs`: its input parameters. `after`: the tasks that it waits for, or that a group around it waits for.
    `conditions` and `loops`: those around it, the innermost last.
    """

    name: str
    inputs: Yaml
    after: frozenset[str] = frozenset()
    conditions: tuple[str, ...] = ()
    loops: tuple[str, ...] = ()


def _tasks(spec: Yaml) -> list[_CompiledTask]:
    """Return the tasks of a pipeline, those within groups and nested pipelines included."""
    found, dags = list[_CompiledTask](), [(spec["root"]["dag"], _CompiledTask("", {}))]
    for dag, around in dags:
        for name, task in dag["tasks"].items():
            inner = _CompiledTask(
                name,
                inputs=task.get("inputs", {}).get("parameters", {}),
                after=around.after | set(task.get("dependentTasks", [])),
                conditions=(*around.conditions, *([name] if _has_condition(task) else [])),
                loops=(*around.loops, *([name] if _is_loop(task) else [])),
            )
            found.append(inner)
            component = spec["components"][task["componentRef"]["name"]]
            if "dag" in component:
                dags.append((component["dag"], inner))
    return found


def _has_condition(task: Yaml) -> bool:
    return "condition" in task.get("triggerPolicy", {})


def _is_loop(task: Yaml) -> bool:
    return not {"parameterIterator", "artifactIterator"}.isdisjoint(task)


def check_loops(pipeline: Any) -> None:
    """Raise UsageError for a router in a loop, where `routed()` did not see it: in a nested pipeline."""
    for task in _tasks(MessageToDict(pipeline.pipeline_spec)):
        if task.loops and task.inputs.keys() >= ROUTER_INPUTS:
            raise UsageError(
                f"{task.name} is a router inside {task.loops[-1]}, whose items would share one reservation: "
                "take the nested pipeline out of dsl.ParallelFor"
            )


def _stages_before(task: _CompiledTask, router: _CompiledTask, names: dict[str, str]) -> tuple[str, ...]:
    """Return the stages that a stage and its router wait for. Raises UsageError: one is not a stage."""
    after = sorted((task.after | router.after) - {router.name})
    if other := [name for name in after if name not in names]:
        raise UsageError(
            f"{task.name} waits for {other[0]}, which is not a stage of Shoestring; Kubeflow can run it, "
            "Argo cannot"
        )
    return tuple(sorted(names[name] for name in after))


def _check_group(task: _CompiledTask) -> None:
    """Raise UsageError for a stage in a condition or a loop."""
    if groups := task.conditions + task.loops:
        raise UsageError(
            f"{task.name} is inside {groups[-1]}, and Argo would run it unconditionally and once: compile it "
            "for Kubeflow, or take the stage out of the condition or loop"
        )


def _data_inputs(inputs: Yaml) -> list[str]:
    return [
        name for name in inputs if name not in RESERVED_INPUTS and not name.startswith("pipelinechannel--")
    ]


def _check_routers(values: dict[str, Yaml], routers: dict[str, str]) -> None:
    """Raise UsageError for a router whose task is not a stage of Shoestring."""
    if external := sorted(
        router for router, inputs in values.items() if "needs" in inputs and router not in routers.values()
    ):
        raise UsageError(
            f"{', '.join(external)}: a router whose task is not a stage of Shoestring; Kubeflow can run it, "
            "Argo cannot"
        )
