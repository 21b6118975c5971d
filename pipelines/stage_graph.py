"""The routed stages of a KFP pipeline, and what each of them reads, for an engine without KFP's launcher."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from google.protobuf.json_format import MessageToDict

from shoestring.config.engines import Engine
from shoestring.core.errors import UsageError
from shoestring.core.record import argument_json
from shoestring.pipelines.compiled_tasks import CompiledTask, compiled_tasks, constant, router_of
from shoestring.pipelines.external_containers import (
    INPUT,
    METER_INPUTS,
    Yaml,
    external_container,
    input_values,
    parameters_of,
)
from shoestring.pipelines.pod_settings import PodSettings, pod_settings
from shoestring.pipelines.routed import PLACEMENT_INPUTS

RESERVED_INPUTS = {"world", "run_id", "job_id", "decision_key", "origin", *PLACEMENT_INPUTS}
"""Inputs of a component that are not data that its stage reads."""

ENGINE: Engine = "argo"
"""What the routers of a WorkflowTemplate are told."""

CHANNEL = "pipelinechannel--"
"""Prefix of the inputs by which KFP passes on what a group or a pipeline around a task is given."""

RUN_PARAMETERS = ("recipe", "run_id", "budget_usd", "deadline_s", "seed")
"""The parameters of a run on Argo that a component may read."""


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
    pod: PodSettings

    @property
    def producers(self) -> list[str]:
        """The stages that produce what this stage reads."""
        return sorted({self.upstream, self.side_input, *self.inputs.values()} - {""})

    @property
    def arguments(self) -> dict[str, str]:
        """The values that the run passes to it."""
        return {producer: output_of(producer, "key") for producer in self.producers}


@dataclass(frozen=True)
class ExternalStage:
    """A routed component of another author.

    `container`: its image, command and args, which name its own parameters `input-NAME`.
    `values`: what the run passes to these. `outputs`: the names of its outputs. `is_metered`: its container
    starts Shoestring. The other fields are those of a RoutedStage.
    """

    name: str
    needs: str
    upstream: str
    side_input: str
    container: Yaml
    values: dict[str, str]
    outputs: tuple[str, ...]
    after: tuple[str, ...]
    pod: PodSettings
    is_metered: bool = False

    @property
    def arguments(self) -> dict[str, str]:
        """The values that the run passes to it."""
        keys = {"upstream": self.upstream, "side_input": self.side_input}
        read = {name: output_of(producer, "key") for name, producer in keys.items() if producer}
        return read | self.values


Stage = RoutedStage | ExternalStage


def output_of(stage: str, output: str) -> str:
    """Return the reference to an output of a stage, within the run."""
    return f"{{{{tasks.{stage}.outputs.parameters.{output}}}}}"


def routed_stages(pipeline: Any) -> list[Stage]:
    """Return the routed stages of a KFP pipeline in the order of their routing.

    Raises UsageError: Argo cannot run one of the stages.
    """
    tasks = {task.name: task for task in compiled_tasks(MessageToDict(pipeline.pipeline_spec))}
    values = {name: task.inputs for name, task in tasks.items()}
    routers = {name: router for name in tasks if (router := router_of(name, values))}
    _check_routers(values, routers)
    needs = {task: json.loads(constant(values[router]["needs"])) for task, router in routers.items()}
    names = {task: each["needs"][0]["stage"] for task, each in needs.items()}
    commands = {task for task, each in needs.items() if each.get("command") and each.get("metered", True)}
    keys = {task: names[task] for task in names if "decision_key" in values[task] and task not in commands}

    def producer(value: Yaml) -> str:
        return keys.get(value.get("taskOutputParameter", {}).get("producerTask"), "")

    stages = list[Stage]()
    for task, router in routers.items():
        _check_group(tasks[task])
        common = {
            "name": names[task],
            "needs": argument_json(needs[task] | {"engine": ENGINE}),
            "upstream": producer(values[router]["upstream"]),
            "side_input": producer(values[router]["side_input"]),
            "after": _stages_before(tasks[task], tasks[router], names),
            "pod": _settings(pipeline, tasks[task]),
        }
        if task not in keys:
            parts = _external_parts(pipeline, tasks[task], names, keys)
            stages.append(ExternalStage(**common, **parts))
            continue
        data = [name for name in values[task] if name not in RESERVED_INPUTS and not name.startswith(CHANNEL)]
        if other := sorted(name for name in data if not producer(values[task][name])):
            raise UsageError(
                f"{task} has an input {other[0]} that is not the output key of a stage: Argo passes only "
                "those on"
            )
        reads = {name: producer(value) for name, value in sorted(values[task].items()) if producer(value)}
        stages.append(RoutedStage(**common, origin=constant(values[task].get("origin", {})), inputs=reads))
    return sorted(stages, key=lambda stage: -len(json.loads(stage.needs)["needs"]))


def _external_parts(
    pipeline: Any, task: CompiledTask, names: dict[str, str], keys: dict[str, str]
) -> dict[str, Any]:
    """Return container, values and outputs of an external component. Raises UsageError."""
    spec = MessageToDict(pipeline.pipeline_spec)
    component = spec["components"][task.component]
    label = component["executorLabel"]

    def reference(value: Yaml) -> str:
        if "taskOutputParameter" in value:
            source = value["taskOutputParameter"]
            made_by = source["producerTask"]
            if made_by not in names:
                raise UsageError(
                    f"{task.name} reads {made_by}, which is not routed: route it, or compile the pipeline "
                    "for Kubeflow"
                )
            return output_of(names[made_by], "key" if made_by in keys else source["outputParameterKey"])
        name = str(value.get("componentInputParameter", "")).removeprefix(CHANNEL)
        if name not in RUN_PARAMETERS:
            raise UsageError(
                f"{task.name} reads {name or value}, and on Argo a run has only {', '.join(RUN_PARAMETERS)}: "
                "pass a constant, or compile the pipeline for Kubeflow"
            )
        return f"{{{{workflow.parameters.{name}}}}}"

    # A metered command has the inputs of its meter, and what every step of Shoestring has.
    is_metered = "decision_key" in task.inputs
    own = {name: value for name, value in task.inputs.items() if not is_metered or name not in METER_INPUTS}
    found = input_values(task.name, component, own, reference)
    executor = spec["deploymentSpec"]["executors"][label]
    container = external_container(task.name, component, executor, found)
    return {
        "container": _with_meter_inputs(container) if is_metered else container,
        "is_metered": is_metered,
        "values": {f"{INPUT}{name}": value for name, value in found.items()},
        "outputs": tuple(parameters_of(component, "outputDefinitions")),
    }


def _settings(pipeline: Any, task: CompiledTask) -> PodSettings:
    """Return what an author gives the pod of a task. Raises UsageError."""
    spec, platforms = MessageToDict(pipeline.pipeline_spec), MessageToDict(pipeline.platform_spec)
    label = spec["components"][task.component]["executorLabel"]
    configs = platforms["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    env = spec["deploymentSpec"]["executors"][label].get("container", {}).get("env", [])
    of_step = configs["exec-route"] if "decision_key" in task.inputs else {}
    return pod_settings(task.name, configs.get(label, {}), of_step, env)


def _with_meter_inputs(container: Yaml) -> Yaml:
    """Return the container of a metered command with what its meter is given on Argo."""
    values = dict.fromkeys(METER_INPUTS, "") | {
        "run_id": "{{workflow.parameters.run_id}}",
        "decision_key": "{{inputs.parameters.decision_key}}",
    }
    given = {f"{{{{inputs.parameters.{INPUT}{name}}}}}": value for name, value in values.items()}
    return container | {"args": [given.get(word, word) for word in container["args"]]}


def _stages_before(task: CompiledTask, router: CompiledTask, names: dict[str, str]) -> tuple[str, ...]:
    """Return the stages that a stage and its router wait for. Raises UsageError: one is not a stage."""
    after = sorted((task.after | router.after) - {router.name})
    if other := [name for name in after if name not in names]:
        raise UsageError(
            f"{task.name} waits for {other[0]}, which is not a stage of Shoestring; Kubeflow can run it, "
            "Argo cannot"
        )
    return tuple(sorted(names[name] for name in after))


def _check_group(task: CompiledTask) -> None:
    """Raise UsageError for a stage in a condition or a loop."""
    if groups := task.conditions + task.loops:
        raise UsageError(
            f"{task.name} is inside {groups[-1]}, and Argo would run it unconditionally and once: compile it "
            "for Kubeflow, or take the stage out of the condition or loop"
        )


def _check_routers(values: dict[str, Yaml], routers: dict[str, str]) -> None:
    """Raise UsageError for a router without a stage that it places."""
    if external := sorted(
        router for router, inputs in values.items() if "needs" in inputs and router not in routers.values()
    ):
        raise UsageError(
            f"{', '.join(external)}: a router that places no stage; Kubeflow can run it, Argo cannot"
        )
