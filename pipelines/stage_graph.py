"""The routed stages of a KFP pipeline, and what each of them reads."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from google.protobuf.json_format import MessageToDict

from shoestring.core.errors import UsageError
from shoestring.pipelines.routed import PLACEMENT_INPUTS

RESERVED_INPUTS = {"world", "run_id", "job_id", "decision_key", "origin", *PLACEMENT_INPUTS}
"""Inputs of a component that are not data that its stage reads."""

Yaml = dict[str, Any]


@dataclass(frozen=True)
class RoutedStage:
    """A routed stage of a pipeline.

    `upstream`, `side_input` and the values of `inputs` are names of the stages that produce what this stage
    reads; empty: none. `needs` and `origin` are JSON. `origin` names the code of an author's own stage;
    empty for Shoestring's stages.
    """

    name: str
    needs: str
    origin: str
    upstream: str
    side_input: str
    inputs: dict[str, str]

    @property
    def producers(self) -> list[str]:
        """The stages that produce what this stage reads."""
        return sorted({self.upstream, self.side_input, *self.inputs.values()} - {""})


def routed_stages(pipeline: Any) -> list[RoutedStage]:
    """Return the routed stages of a KFP pipeline in the order of their routing.

    Raises:
        UsageError: Argo cannot run one of the stages.
    """
    values = _task_inputs(MessageToDict(pipeline.pipeline_spec))
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
        if other := sorted(name for name in _data_inputs(values[task]) if not producer(values[task][name])):
            raise UsageError(
                f"{task} has an input {other[0]} that is not the output key of a stage: Argo passes only "
                "those on"
            )
    stages = [
        RoutedStage(
            name=names[task],
            needs=needs[task],
            origin=values[task].get("origin", {}).get("runtimeValue", {}).get("constant", ""),
            upstream=producer(values[router]["upstream"]),
            side_input=producer(values[router]["side_input"]),
            inputs={name: producer(value) for name, value in sorted(values[task].items()) if producer(value)},
        )
        for task, router in routers.items()
    ]
    return sorted(stages, key=lambda stage: -len(json.loads(stage.needs)["needs"]))


def _task_inputs(spec: Yaml) -> dict[str, Yaml]:
    """Return the input parameters of every task in a pipeline's spec, by the task's name."""
    dags = [
        spec["root"]["dag"],
        *(component["dag"] for component in spec["components"].values() if "dag" in component),
    ]
    return {
        name: task.get("inputs", {}).get("parameters", {})
        for dag in dags
        for name, task in dag["tasks"].items()
    }


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
