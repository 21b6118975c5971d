"""The container of another author's component: as a command with a meter, and for an engine that runs it
without KFP's launcher.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

from kfp.dsl.container_component_class import ContainerComponent
from kfp.dsl.placeholders import convert_command_line_element_to_string
from kfp.dsl.structures import InputSpec

from shoestring.core.errors import UsageError
from shoestring.core.record import digest
from shoestring.data.job import Command

Yaml = dict[str, Any]

INPUT = "input-"
"""Prefix of the parameters that hold a component's inputs, so that no input has the name of one of ours."""

OUTPUTS = "/shoestring/outputs"
"""The folder in which the component's pod finds the files of its output parameters."""

CONTAINER_KEYS = {"image", "command", "args", "env", "resources"}
PLACEHOLDER = re.compile(r"\{\{\$[^{}]*\}\}")
BRACE = re.compile(rf"({PLACEHOLDER.pattern})|\{{(?=\{{)")
"""A placeholder of KFP, or a brace before another one, at which an engine begins a template."""
INPUT_PLACEHOLDER = re.compile(r"\{\{\$\.inputs\.parameters\['([^']+)'\]\}\}")
OUTPUT_PLACEHOLDER = re.compile(r"\{\{\$\.outputs\.parameters\['([^']+)'\]\.output_file\}\}")
METER_INPUTS = ("world", "run_id", "job_id", "decision_key")
"""What a metered command is given beside its own inputs."""
METER_COMMAND = ["shoestring"]
PARAMETER_TYPES = {"String", "Integer", "Float", "Boolean", "List", "Dict"}
PYTHON_COMPONENT = "{{$}}"
"""Part of the arguments of a Python component."""
CONDITIONAL = ('{"IfPresent"', '{"Concat"')


def container_words(component: Any) -> list[str]:
    """Return command and arguments of a component's container, as KFP compiles them."""
    container = component.component_spec.implementation.container
    words = [] if container is None else [*(container.command or []), *(container.args or [])]
    return [convert_command_line_element_to_string(word) for word in words]


def command_of(component: Any, grace_s: float) -> Command:
    """Return a component's container as a command, to be shown: inputs and outputs are `{NAME}` in it."""
    texts = tuple(shown_word(word) for word in container_words(component))
    is_python = any(PYTHON_COMPONENT in text for text in texts)
    return Command(argv=(component.name,) if is_python or not texts else texts, grace_s=grace_s)


def shown_word(word: str) -> str:
    """Return an element of a command, to be shown: optional parts are in brackets, as in a command's help."""
    if word.startswith(CONDITIONAL):
        return _shown(json.loads(word))
    return INPUT_PLACEHOLDER.sub(r"{\1}", OUTPUT_PLACEHOLDER.sub(r"{\1}", word))


def _shown(node: Any, joint: str = " ") -> str:
    if isinstance(node, list):
        return joint.join(_shown(each) for each in node)
    if not isinstance(node, dict):
        return shown_word(str(node))
    if "Concat" in node:
        return _shown(node["Concat"], "")
    parts = (node["IfPresent"].get(part) for part in ("Then", "Else"))
    return f"[{' | '.join(_shown(part) for part in parts if part)}]"


def metered_component(component: Any, stage: str, grace_s: float) -> ContainerComponent:
    """Return a component of the same image whose container runs the same command under a meter.

    Its image needs Shoestring's package. Raises UsageError: it is a Python component, or names no command.
    """
    words, spec = container_words(component), copy.deepcopy(component.component_spec)
    if not words or any(PYTHON_COMPONENT in word for word in words):
        raise UsageError(
            f"{component.name} cannot have a meter: only the command of a dsl.container_component can; name "
            "one in its dsl.ContainerSpec, or leave out metered=True"
        )
    if reserved := sorted({*METER_INPUTS} & {*(spec.inputs or {})}):
        raise UsageError(
            f"{component.name} has an input {reserved[0]}, which its meter has, too: rename the input"
        )
    spec.inputs = (spec.inputs or {}) | {name: InputSpec(type="String") for name in METER_INPUTS}
    options = [
        word for name in METER_INPUTS for word in (f"--{name.replace('_', '-')}", placeholder("inputs", name))
    ]
    outputs = [
        word
        for name, output in (spec.outputs or {}).items()
        if output.type in PARAMETER_TYPES
        for word in ("--output", f"{name}={placeholder('outputs', name)}")
    ]
    container = spec.implementation.container
    container.command = METER_COMMAND
    braces, words = without_templates(words)
    container.args = ["stage", stage, *options, "--grace", f"{grace_s:g}", *outputs, *braces, "--", *words]
    return ContainerComponent(spec, component.pipeline_func)


def without_templates(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the options of a meter, and the words of its command with KFP's placeholders as their only
    templates: another text is there for each brace before a brace, and the meter puts the brace back.
    """
    # No input of the command has it by chance.
    text = f"brace-{digest(' '.join(words).encode())[:12]}"
    changed = [BRACE.sub(lambda found: found[1] or text, word) for word in words]
    return (["--brace", text] if changed != words else []), changed


def has_own_meter(spec: Any) -> bool:
    """Return whether a component's container starts the meter of a command."""
    container = spec.implementation.container
    return container is not None and container.command == METER_COMMAND


def placeholder(side: str, name: str) -> str:
    """Return what KFP's launcher replaces by an input, or by the path of an output."""
    return f"{{{{$.{side}.parameters['{name}']{'.output_file' if side == 'outputs' else ''}}}}}"


def parameters_of(component: Yaml, side: str) -> dict[str, Yaml]:
    """Return the definitions of a component's parameters, by name: KFP's compiler writes them in any order.

    `side`: inputDefinitions or outputDefinitions.
    """
    return dict(sorted(component.get(side, {}).get("parameters", {}).items()))


def external_container(task: str, component: Yaml, executor: Yaml, given: Collection[str]) -> Yaml:
    """Return image, command and args of a component's container, with Argo's references.

    `given`: the inputs that have a value.

    Raises:
        UsageError: it has artifacts, or anything else that only Kubeflow gives a pod.
    """
    artifacts = [
        name
        for side in ("inputDefinitions", "outputDefinitions")
        for name in component.get(side, {}).get("artifacts", {})
    ]
    if artifacts:
        raise UsageError(
            f"{task} has artifacts ({', '.join(sorted(artifacts))}), which Kubeflow stores and Argo does "
            "not: pass parameters, or compile it for Kubeflow"
        )
    container = executor.get("container", {})
    if other := sorted({*container} - CONTAINER_KEYS):
        raise UsageError(
            f"{task} sets {other[0]}, which only Kubeflow gives its pod: compile it for Kubeflow"
        )
    words = {
        name: [word for text in container.get(name, []) for word in _words(text, given)]
        for name in ("command", "args")
    }
    for word in (*words["command"], *words["args"]):
        check_placeholders(task, word)
    return {"image": container["image"], **words}


def check_placeholders(task: str, text: str) -> None:
    """Raise UsageError for a placeholder that only KFP's launcher replaces."""
    if found := PLACEHOLDER.search(text):
        why = (
            "it is a Python component, which KFP's launcher runs: make it a dsl.container_component"
            if found[0] == PYTHON_COMPONENT
            else f"it uses {found[0]}, which KFP's launcher replaces: pass an input"
        )
        raise UsageError(f"Argo cannot run {task}: {why}, or compile it for Kubeflow")


def _words(text: str, given: Collection[str]) -> list[str]:
    """Return an element of a command or its arguments as the words that it stands for."""
    if text.startswith(CONDITIONAL):
        return _evaluated(json.loads(text), given)
    text = INPUT_PLACEHOLDER.sub(lambda found: f"{{{{inputs.parameters.{INPUT}{found[1]}}}}}", text)
    return [OUTPUT_PLACEHOLDER.sub(lambda found: f"{OUTPUTS}/{found[1]}", text)]


def _evaluated(node: Any, given: Collection[str]) -> list[str]:
    """Return the words of a dsl.IfPresentPlaceholder or dsl.ConcatPlaceholder."""
    if isinstance(node, list):
        return [word for each in node for word in _evaluated(each, given)]
    if not isinstance(node, dict):
        return _words(str(node), given)
    if "Concat" in node:
        return ["".join(_evaluated(node["Concat"], given))]
    condition = node["IfPresent"]
    return _evaluated(condition.get("Then" if condition["InputName"] in given else "Else") or [], given)


def input_values(
    task: str, component: Yaml, given: Collection[str], text_of: Callable[[str], str]
) -> dict[str, str]:
    """Return the values of a component's inputs, by name, as text. An input without a value is left out.

    `given`: the inputs that the compiled task has, whose values `text_of` returns. Raises UsageError: an
    input needs KFP's launcher.
    """
    values = {}
    for name, definition in parameters_of(component, "inputDefinitions").items():
        if name in given:
            values[name] = text_of(name)
        elif "defaultValue" in definition:
            values[name] = as_text(definition["defaultValue"])
        check_placeholders(task, values.get(name, ""))
    return values


def as_text(value: Any) -> str:
    """Return a constant as KFP's launcher passes it: a whole number without a point, others as JSON."""
    if isinstance(value, str):
        return value
    whole = isinstance(value, float) and value.is_integer()
    return json.dumps(int(value) if whole else value)
