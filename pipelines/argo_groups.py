"""The DAG templates of a WorkflowTemplate: the run, and each group within it."""

from __future__ import annotations

import re

from shoestring.pipelines.argo_templates import (
    COMPLETE,
    arguments,
    declare_parameters,
    forward_inputs,
    input_text,
    may_return_all,
)
from shoestring.pipelines.compiled_values import INDEX, ITEM, LIST, REFERENCE, Made
from shoestring.pipelines.external_containers import Yaml
from shoestring.pipelines.stage_graph import Group, Stage, condition_of

ANY_REFERENCE = re.compile(r"\{\{(?:tasks\.([\w-]+)\.outputs|(inputs|workflow))\.parameters\.([\w-]+)\}\}")


def run_template(run: Group) -> Yaml:
    """Return the template of the whole run, which begins with a manual approval if one is asked for.

    No other stage starts where the first route step has returned the results of all.
    """
    tasks: list[Yaml] = [
        {"name": "approve", "template": "approve", "when": "{{workflow.parameters.approve}} == yes"}
    ]
    first = next((stage for stage in run.stages if may_return_all(stage)), None)
    for member in run.members:
        left_out = "" if first is None or first is member else f"{Made(first.task, COMPLETE).text} != yes"
        tasks.append(member_task(member, run, "approve", left_out))
    return {"name": run.task, "dag": {"tasks": tasks}}


def group_templates(group: Group) -> list[Yaml]:
    """Return the templates of all groups within one."""
    return [
        template
        for member in group.members
        if isinstance(member, Group)
        for template in (
            *([loop_template(member)] if member.items else []),
            group_template(member),
            *group_templates(member),
        )
    ]


def loop_template(group: Group) -> Yaml:
    """Return the template of a loop, which runs that of an item once for each.

    Argo is given numbers instead of values, as it would make the values a part of the names of nodes.
    """
    given = forward_inputs(*group.arguments)
    count = f"{{{{=len(sprig.fromJson(inputs.parameters['{Made(group.task, LIST).name}']))}}}}"
    task = {"name": "items", "template": f"{group.task}-{ITEM}", "withSequence": {"count": count}}
    outputs = [
        {"name": each.name, "valueFrom": {"expression": collected_expression(each.name)}}
        for each in group.outputs
    ]
    return {
        "name": group.task,
        **({"parallelism": group.at_once} if group.at_once else {}),
        "inputs": declare_parameters(*given),
        "outputs": {"parameters": outputs},
        "dag": {"tasks": [task | arguments(given | {Made(group.task, INDEX).name: "{{item}}"})]},
    }


def collected_expression(output: str) -> str:
    """Return an expression for the list of what the items have made, in their order, without those that have
    made nothing.

    Argo has a list of texts, of which it reads objects and lists as JSON; of no items, it has none.
    """
    made = f"sprig.fromJson(tasks['items'].outputs?.parameters?.['{output}'] ?? '[]')"
    return f"toJson(filter(map({made}, type(#) == 'string' ? sprig.fromJson(#) : #), # != nil))"


def group_template(group: Group) -> Yaml:
    """Return the template of what is in a group; of a loop, for one item."""
    outputs = [
        {"name": each.name, "valueFrom": {"parameter": each.text}}
        if REFERENCE.fullmatch(each.text)
        else {"name": each.name, "valueFrom": {"expression": as_expression(each.text)}}
        for each in group.outputs
    ]
    own = [Made(group.task, INDEX).name] if group.items else []
    return {
        "name": f"{group.task}-{ITEM}" if group.items else group.task,
        "inputs": declare_parameters(*group.arguments, *own),
        "outputs": {"parameters": outputs},
        "dag": {"tasks": [member_task(member, group) for member in group.members]},
    }


def member_task(member: Stage | Group, group: Group, depends: str = "", when: str = "") -> Yaml:
    """Return the task of a stage or a group in the DAG of the group around it.

    `depends` and `when` hold where it waits for nothing, and has no condition of its own.
    """
    own = {each.task for each in group.members}

    def within(text: str, *, is_condition: bool = False) -> str:
        """Return a text with references to what the group is given, where that is made outside."""

        def written(found: re.Match[str]) -> str:
            if not found[1] or found[1] in own:
                return found[0]
            if group.items and found[1] == group.task and found[2].split("-")[0] == ITEM:
                value = item_expression(group.task, found[2].partition("-")[2])
                return f"({value})" if is_condition else f"{{{{={value}}}}}"
            return input_text(Made(found[1], found[2]).name)

        return REFERENCE.sub(written, text)

    template = member.task if isinstance(member, Group) else f"{member.task}-routed"
    depends = " && ".join(member.after) or depends
    if condition := condition_of(member):
        when = f"{{{{= {as_expression(within(condition, is_condition=True))} }}}}"
    return {
        "name": member.task,
        "template": template,
        **({"depends": depends} if depends else {}),
        **({"when": when} if when else {}),
        **arguments({name: within(text) for name, text in member.arguments.items()}),
    }


def item_expression(loop: str, field: str) -> str:
    """Return the value of an item of a loop, or of a field of it, as text: an expression in its template."""
    parameters = [f"inputs.parameters['{Made(loop, name).name}']" for name in (LIST, INDEX)]
    value = f"sprig.fromJson({parameters[0]})[asInt({parameters[1]})]" + (f"['{field}']" if field else "")
    return f"let value = {value}; type(value) == 'string' ? value : toJson(value)"


def as_expression(text: str) -> str:
    """Return an expression whose references are written as Argo's expressions have them."""

    def write(found: re.Match[str]) -> str:
        maker = f"tasks['{found[1]}'].outputs" if found[1] else found[2]
        return f"{maker}.parameters['{found[3]}']"

    return ANY_REFERENCE.sub(write, text)
