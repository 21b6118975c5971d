"""The routed stages of a KFP pipeline in their groups, for an engine without KFP's launcher."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

from google.protobuf.json_format import MessageToDict

from shoestring.config.engines import Engine
from shoestring.core.errors import UsageError
from shoestring.core.record import argument_json
from shoestring.pipelines.compiled_tasks import Path, constant
from shoestring.pipelines.compiled_values import LIST, REFERENCE, CompiledValues, Made
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
"""Prefix of the inputs of a task that hold a part of another input, and of its placement."""


@dataclass(frozen=True)
class RoutedStage:
    """A routed stage of a pipeline.

    `task` is its name among the tasks and templates of the run. `upstream`, `side_input` and `inputs` are
    what it reads. `after` are all stages and groups that its router waits for. `needs` and `origin` are JSON.
    `origin` names the code of an author's own stage; empty for Shoestring's stages. `items`: the list of the
    innermost loop around it, if the run makes it.
    """

    name: str
    task: str
    needs: str
    origin: str
    upstream: Made | None
    side_input: Made | None
    inputs: dict[str, Made]
    after: tuple[str, ...]
    pod: PodSettings
    items: Made | None

    @property
    def values(self) -> dict[str, str]:
        """What it reads, by the name of the parameter that gives it."""
        read = {each for each in (self.upstream, self.side_input, *self.inputs.values()) if each}
        return {each.name: each.text for each in sorted(read)}

    @property
    def arguments(self) -> dict[str, str]:
        """The values that the run passes to it and to its router."""
        return self.values | _list_argument(self)


@dataclass(frozen=True)
class ExternalStage:
    """A routed component of another author.

    `container`: its image, command and args, which name its own parameters `input-NAME`.
    `values`: what the run passes to these. `outputs`: the names of its outputs. `is_metered`: its container
    starts Shoestring. The other fields are those of a RoutedStage.
    """

    name: str
    task: str
    needs: str
    upstream: Made | None
    side_input: Made | None
    container: Yaml
    values: dict[str, str]
    outputs: tuple[str, ...]
    after: tuple[str, ...]
    pod: PodSettings
    items: Made | None
    is_metered: bool = False

    @property
    def arguments(self) -> dict[str, str]:
        """The values that the run passes to it."""
        keys = {"upstream": self.upstream, "side_input": self.side_input}
        return {name: made.text for name, made in keys.items() if made} | self.values | _list_argument(self)


Stage = RoutedStage | ExternalStage


def _list_argument(stage: Stage) -> dict[str, str]:
    return {stage.items.name: stage.items.text} if stage.items else {}


class NamedText(NamedTuple):
    """An output of a group: a reference, or an expression."""

    name: str
    text: str


@dataclass(frozen=True)
class Group:
    """Stages and groups under one condition or in one loop, or the branches of one `If`; the whole run is
    one, too.

    `condition`: an expression, with references as in the arguments of its members; empty: it always runs.
    `items`: the list of its loop, as JSON or with references; empty: it is none. `at_once`: the most items
    that it works on at the same time; 0: all. `outputs`: what those read that are not in it.
    """

    task: str
    members: tuple[Stage | Group, ...]
    condition: str = ""
    items: str = ""
    at_once: int = 0
    outputs: tuple[NamedText, ...] = ()
    after: tuple[str, ...] = ()

    @property
    def stages(self) -> list[Stage]:
        """All stages within it, in the order of their routing."""
        found = [each for member in self.members for each in stages_of(member)]
        return sorted(found, key=lambda stage: -stage_count(stage))

    @property
    def arguments(self) -> dict[str, str]:
        """The values that are passed to it: what is read in it and made elsewhere."""
        own = {self.task, *(member.task for member in self.members)}
        texts = [
            text for member in self.members for text in (*member.arguments.values(), condition_of(member))
        ]
        found = {Made(each[1], each[2]) for text in texts for each in REFERENCE.finditer(text) if each[1]}
        loop = {Made(self.task, LIST).name: self.items} if self.items else {}
        return {made.name: made.text for made in sorted(found) if made.maker not in own} | loop


def stages_of(member: Stage | Group) -> list[Stage]:
    return member.stages if isinstance(member, Group) else [member]


def condition_of(member: Stage | Group) -> str:
    return member.condition if isinstance(member, Group) else ""


def stage_count(stage: Stage) -> int:
    """Return the number of stages that the router of a stage considers."""
    return len(json.loads(stage.needs)["needs"])


def routed_stages(pipeline: Any) -> Group:
    """Return the routed stages of a KFP pipeline in their groups, in the order of their routing.

    Raises UsageError: Argo cannot run one of the stages.
    """
    return _Graph(MessageToDict(pipeline.pipeline_spec), MessageToDict(pipeline.platform_spec)).group(())


class _Graph:
    """Reads the stages of a compiled pipeline."""

    def __init__(self, spec: Yaml, platform: Yaml) -> None:
        self._values = CompiledValues(spec)
        self._configs = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
        self._executors = spec["deploymentSpec"]["executors"]

    def group(self, path: Path) -> Group:
        """Return a group; the empty path is that of the run."""
        values = self._values
        members = [
            self.group(each) if values.tasks[each].is_group else self._stage(each)
            for each in values.members(path)
        ]
        members.sort(key=lambda member: -max(map(stage_count, stages_of(member))))
        if not path:
            return Group("run", tuple(members))
        outputs = (NamedText(*each) for each in values.outputs(path))
        return Group(
            values.names[path],
            tuple(members),
            condition=values.condition(path),
            items=values.list_text(path) if values.tasks[path].iterator else "",
            at_once=values.tasks[path].at_once,
            outputs=tuple(outputs),
            after=values.after(path),
        )

    def _stage(self, path: Path) -> Stage:
        values, task = self._values, self._values.tasks[path]
        router = values.routers[path]
        needs = json.loads(constant(router.inputs["needs"]))
        common = {
            "name": needs["needs"][0]["stage"],
            "task": values.names[path],
            "needs": argument_json(needs | {"engine": ENGINE}),
            "upstream": values.made_for(router, "upstream"),
            "side_input": values.made_for(router, "side_input"),
            "after": values.after(path),
            "pod": self._settings(path),
            "items": values.innermost_list(path),
        }
        if path not in values.keyed:
            return ExternalStage(**common, **self._external_parts(path))
        data = [name for name in task.inputs if name not in RESERVED_INPUTS and not name.startswith(CHANNEL)]
        read = {name: values.made_for(task, name) for name in sorted(data)}
        if other := [name for name, made in read.items() if made is None]:
            raise UsageError(
                f"{task.name} has an input {other[0]} that is not the output key of a stage: Argo passes "
                "only those on"
            )
        inputs = {name: made for name, made in read.items() if made}
        return RoutedStage(**common, origin=constant(task.inputs.get("origin", {})), inputs=inputs)

    def _external_parts(self, path: Path) -> dict[str, Any]:
        """Return container, values and outputs of an external component. Raises UsageError."""
        task, component = self._values.tasks[path], self._values.component(path)
        # A metered command has the inputs of its meter, and what every step of Shoestring has.
        is_metered = "decision_key" in task.inputs
        own = [name for name in task.inputs if not is_metered or name not in METER_INPUTS]
        found = input_values(task.name, component, own, lambda name: self._values.text(task, name))
        container = external_container(
            task.name, component, self._executors[component["executorLabel"]], found
        )
        return {
            "container": _with_meter_inputs(container) if is_metered else container,
            "is_metered": is_metered,
            "values": {f"{INPUT}{name}": value for name, value in found.items()},
            "outputs": tuple(parameters_of(component, "outputDefinitions")),
        }

    def _settings(self, path: Path) -> PodSettings:
        """Return what an author gives the pod of a task. Raises UsageError."""
        task, label = self._values.tasks[path], self._values.component(path)["executorLabel"]
        env = self._executors[label].get("container", {}).get("env", [])
        of_step = self._configs["exec-route"] if "decision_key" in task.inputs else {}
        return pod_settings(task.name, self._configs.get(label, {}), of_step, env)


def _with_meter_inputs(container: Yaml) -> Yaml:
    """Return the container of a metered command with what its meter is given on Argo."""
    values = dict.fromkeys(METER_INPUTS, "") | {
        "run_id": "{{workflow.parameters.run_id}}",
        "decision_key": "{{inputs.parameters.decision_key}}",
    }
    given = {f"{{{{inputs.parameters.{INPUT}{name}}}}}": value for name, value in values.items()}
    return container | {"args": [given.get(word, word) for word in container["args"]]}
