"""What the tasks of a compiled pipeline read, for an engine without KFP's launcher: followed through groups
and nested pipelines to the stage that makes it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from shoestring.core.errors import UsageError
from shoestring.pipelines.compiled_tasks import CompiledTask, Path, compiled_tasks, constant, routers_of
from shoestring.pipelines.external_containers import INPUT_PLACEHOLDER, Yaml, as_text

RUN_PARAMETERS = ("recipe", "run_id", "budget_usd", "deadline_s", "seed")
"""The parameters of a run on Argo that a component may read."""

KEY = "key"
"""The output of a stage of Shoestring: the key of its result."""

ITEM, INDEX, LIST = "item", "index", "list"
"""What is in a loop is given these as if they were outputs of the loop: an item, its number and the list."""
FIELD = re.compile(r'parseJson\(string_value\)\["(.+)"\]')
"""How KFP selects a field of an item."""

RESERVED = {"run", "approve", "route", "settle"}
"""Templates of every run."""

REFERENCE = re.compile(r"\{\{(?:tasks\.([\w-]+)\.outputs|workflow)\.parameters\.([\w-]+)\}\}")
READ = re.compile(r"inputs\.parameter_values\['([^']+)'\]")
"""An input of its group in a condition."""
CASTS = {r"\bdouble\((?=int\(inputs\.|inputs\.)": "asFloat(", r"\bint\((?=inputs\.)": "asInt("}
"""Of an input in a condition: by KFP's name, the one of Argo."""
TRUE = "['1', 't', 'T', 'true', 'TRUE', 'True']"
"""What KFP takes for true."""


class Made(NamedTuple):
    """An output of a stage or a group, by the names of both."""

    maker: str
    output: str

    @property
    def name(self) -> str:
        """The name of a parameter that passes it on."""
        return self.maker if self.output == KEY else f"{self.maker}-{self.output}"

    @property
    def text(self) -> str:
        """The reference to it in the DAG of its maker."""
        return f"{{{{tasks.{self.maker}.outputs.parameters.{self.output}}}}}"


class CompiledValues:
    """The tasks of a compiled pipeline and what they read.

    `routers`: the router of each stage. `keyed`: the stages whose output is a key. `names`: of stages and
    groups, each unique in the run.

    Raises UsageError: a task that Argo cannot run.
    """

    def __init__(self, spec: Yaml) -> None:
        self._spec = spec
        self.tasks = {task.path: task for task in compiled_tasks(spec)}
        self.routers = routers_of(self.tasks.values())
        self._check()
        self.names = dict(self._unique_names())

    @cached_property
    def keyed(self) -> set[Path]:
        return {path for path, router in self.routers.items() if self._has_key(path, router)}

    def _has_key(self, path: Path, router: CompiledTask) -> bool:
        needs = json.loads(constant(router.inputs["needs"]))
        is_command = needs.get("command") and needs.get("metered", True)
        return "decision_key" in self.tasks[path].inputs and not is_command

    def _check(self) -> None:
        routers = {router.path for router in self.routers.values()}
        for path, task in self.tasks.items():
            if "needs" in task.inputs and path not in routers:
                raise UsageError(
                    f"{task.name}: a router that places no stage; Kubeflow can run it, Argo cannot"
                )
        for path, task in self.tasks.items():
            is_ours = path in self.routers or path in routers or bool(task.settles)
            if not is_ours and "dag" not in self.component(path):
                raise UsageError(
                    f"{task.name} is not routed, and Argo runs routed stages only: route it, or compile "
                    "the pipeline for Kubeflow"
                )

    def _unique_names(self) -> Iterator[tuple[Path, str]]:
        """Yield the name of each stage and group: its own, or with a number, if that is taken."""
        taken = {*RESERVED}
        # Sorted, as a compiled pipeline has its tasks in any order.
        for path, task in sorted(self.tasks.items(), key=lambda item: item[0]):
            if path not in self.routers and not task.is_group:
                continue
            wanted = self._stage(path) if path in self.routers else task.name
            numbered = (wanted if number == 1 else f"{wanted}-{number}" for number in range(1, 2**16))
            name = next(each for each in numbered if taken.isdisjoint(template_names(each)))
            taken |= template_names(name)
            yield path, name

    def _stage(self, path: Path) -> str:
        return str(json.loads(constant(self.routers[path].inputs["needs"]))["needs"][0]["stage"])

    def component(self, path: Path) -> Yaml:
        """Return the component of a task."""
        found: Yaml = self._spec["components"][self.tasks[path].component]
        return found

    def members(self, group: Path) -> list[Path]:
        """Return the stages and groups that are in a group, and in no group within it."""
        filled = {path[:length] for path in self.routers for length in range(1, len(path))}
        return [
            path for path in self.names if self._around(path) == group and path in {*self.routers, *filled}
        ]

    def _around(self, path: Path) -> Path:
        """Return the innermost group around a task; the empty path is the run."""
        lengths = range(len(path) - 1, 0, -1)
        return next((path[:length] for length in lengths if self.tasks[path[:length]].is_group), ())

    def after(self, path: Path) -> tuple[str, ...]:
        """Return the stages and groups of its DAG that a stage or a group waits for."""
        found = set[str]()
        for length in range(len(path), len(self._around(path)), -1):
            task = self.tasks[path[:length]]
            router = self.routers.get(task.path, task)
            found |= {
                name
                for before in {*task.after, *router.after} - {router.name}
                for name in self._waited((*task.path[:-1], before))
            }
        return tuple(sorted(found))

    def _waited(self, path: Path) -> list[str]:
        """Return the stages and groups that have ended when a task has: of a nested pipeline, all of them."""
        if path in self.names:
            return [self.names[path]]
        around = (each for each in self.tasks if each[:-1] == path)
        return [name for each in around for name in self._waited(each)]

    def made_for(self, task: CompiledTask, name: str) -> Made | None:
        """Return the key that an input of a task is; None: it is anything else."""
        found = REFERENCE.fullmatch(self.text(task, name))
        if found is None or found[1] is None:
            return None
        made = Made(found[1], found[2])
        others = {self.names[path] for path in self.routers if path not in self.keyed}
        return None if made.maker in others else made

    def text(self, task: CompiledTask, name: str, reader: str = "") -> str:
        """Return the value of an input of a task or of a group. Raises UsageError: Argo has none.

        `reader`: the task that an error names; empty: this one.
        """
        reader = reader or task.name
        if (value := task.inputs.get(name)) is None:
            defined = self.component(task.path)["inputDefinitions"]["parameters"][name]
            return as_text(defined.get("defaultValue", ""))
        if "runtimeValue" in value:
            fixed = value["runtimeValue"]["constant"]
            if not isinstance(fixed, str):
                return as_text(fixed)
            return INPUT_PLACEHOLDER.sub(lambda found: self.text(task, found[1], reader), fixed)
        if "taskOutputParameter" in value:
            source = value["taskOutputParameter"]
            return self._made((*task.path[:-1], source["producerTask"]), source["outputParameterKey"]).text
        given = str(value.get("componentInputParameter", ""))
        if around := task.path[:-1]:
            if given == self.tasks[around].iterator.get("itemInput"):
                found = FIELD.fullmatch(value.get("parameterExpressionSelector", ""))
                return Made(self.names[around], f"{ITEM}-{found[1]}" if found else ITEM).text
            return self.text(self.tasks[around], given, reader)
        if given not in RUN_PARAMETERS:
            raise UsageError(
                f"{reader} reads {given or value}, and on Argo a run has only {', '.join(RUN_PARAMETERS)}: "
                "pass a constant, or compile the pipeline for Kubeflow"
            )
        return f"{{{{workflow.parameters.{given}}}}}"

    def _made(self, path: Path, output: str) -> Made:
        """Return what makes an output of a task; of a nested pipeline, what makes it in there."""
        if path in self.names:
            return Made(self.names[path], KEY if path in self.keyed else output)
        inner = self.component(path)["dag"]["outputs"]["parameters"][output]["valueFromParameter"]
        return self._made((*path, inner["producerSubtask"]), inner["outputParameterKey"])

    def list_text(self, loop: Path) -> str:
        """Return the list of a loop as JSON, or as text with a reference to it."""
        items = self.tasks[loop].iterator["items"]
        if "raw" in items:
            return str(items["raw"]).replace("{{", r"{\u007b")
        return self.text(self.tasks[loop], items["inputParameter"])

    def innermost_list(self, path: Path) -> Made | None:
        """Return the list of the innermost loop around a task if the run makes it; None: its needs hold it,
        or it is in no loop.
        """
        around = (path[:length] for length in range(len(path) - 1, 0, -1))
        loop = next((each for each in around if self.tasks[each].iterator), ())
        is_made = loop and "raw" not in self.tasks[loop].iterator["items"]
        return Made(self.names[loop], LIST) if is_made else None

    def outputs(self, group: Path) -> Iterator[tuple[str, str]]:
        """Yield the outputs of a group by name: a reference, or an expression for a dsl.OneOf, and for what a
        loop collects, of one item.
        """
        parameters = self.component(group)["dag"].get("outputs", {}).get("parameters", {})
        for name, value in sorted(parameters.items()):
            sources = sources_of(value)
            made = [
                self._made((*group, each["producerSubtask"]), each["outputParameterKey"]) for each in sources
            ]
            if self.tasks[group].iterator:
                yield name, collected(made[0], self._kind(group, name))
                continue
            if len(made) == 1:
                yield name, made[0].text
                continue
            tests = (
                f"tasks['{each.maker}'].status == 'Succeeded' ? {expression(each.text)} : "
                for each in made[:-1]
            )
            yield name, "".join(tests) + expression(made[-1].text)

    def _kind(self, path: Path, output: str) -> str:
        """Return the type of an output of a group as the stage or the loop has it that makes it. KFP has
        LIST for all that is made in a loop.
        """
        source = sources_of(self.component(path)["dag"]["outputs"]["parameters"][output])[0]
        path, output = (*path, source["producerSubtask"]), source["outputParameterKey"]
        if "dag" in (component := self.component(path)) and not self.tasks[path].iterator:
            return self._kind(path, output)
        return str(component["outputDefinitions"]["parameters"][output]["parameterType"])

    def condition(self, group: Path) -> str:
        """Return the condition of a group as an expression of Argo; empty: it has none. Raises UsageError."""
        task, definitions = self.tasks[group], self.component(group).get("inputDefinitions", {})
        text = task.condition
        if "{{" in text or "}}" in text:
            raise UsageError(f"{task.name} compares with a text in which Argo finds a template: {text}")
        for cast, own in CASTS.items():
            text = re.sub(cast, own, text)

        def read(found: re.Match[str]) -> str:
            operand = expression(self.text(task, found[1]))
            kind = definitions["parameters"][found[1]]["parameterType"]
            if kind == "BOOLEAN":
                return f"({operand} in {TRUE})"
            return f"asFloat({operand})" if kind == "NUMBER_DOUBLE" else operand

        return READ.sub(read, text)


def template_names(name: str) -> set[str]:
    """Return the names of the templates that a stage or a group of this name may have."""
    return {name, f"{name}-routed", f"{name}-{ITEM}"}


def sources_of(output: Yaml) -> list[Yaml]:
    """Return what makes an output of a group: of a dsl.OneOf, in each branch."""
    return output.get("valueFromOneof", {}).get("parameterSelectors") or [output["valueFromParameter"]]


def collected(made: Made, kind: str) -> str:
    """Return an expression for what a loop collects of an item, as JSON: null, if its condition was false."""
    value = made.text
    if kind == "STRING":
        value = f"toJson({value})"
    elif kind == "BOOLEAN":
        value = f"toJson({value} in {TRUE})"
    return f"tasks['{made.maker}'].status == 'Succeeded' ? {value} : 'null'"


def expression(text: str) -> str:
    """Return a text as an operand of an expression, in which its references stay as they are."""
    parts, at = list[str](), 0
    for found in REFERENCE.finditer(text):
        parts += [json.dumps(fixed)] if (fixed := text[at : found.start()]) else []
        parts.append(found[0])
        at = found.end()
    if text[at:] or not parts:
        parts.append(json.dumps(text[at:]))
    return parts[0] if len(parts) == 1 else f"({' + '.join(parts)})"
