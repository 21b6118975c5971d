"""The DAG templates of a WorkflowTemplate: the run, and each group within it."""

from __future__ import annotations

import re

from shoestring.pipelines.argo_templates import COMPLETE, arguments, declare_parameters, may_return_all
from shoestring.pipelines.compiled_values import REFERENCE, Made
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
        for template in (group_template(member), *group_templates(member))
    ]


def group_template(group: Group) -> Yaml:
    outputs = [
        {"name": each.name, "valueFrom": {"parameter": each.text}}
        if REFERENCE.fullmatch(each.text)
        else {"name": each.name, "valueFrom": {"expression": as_expression(each.text)}}
        for each in group.outputs
    ]
    return {
        "name": group.task,
        "inputs": declare_parameters(*group.arguments),
        "outputs": {"parameters": outputs},
        "dag": {"tasks": [member_task(member, group) for member in group.members]},
    }


def member_task(member: Stage | Group, group: Group, depends: str = "", when: str = "") -> Yaml:
    """Return the task of a stage or a group in the DAG of the group around it.

    `depends` and `when` hold where it waits for nothing, and has no condition of its own.
    """
    own = {each.task for each in group.members}

    def within(text: str) -> str:
        """Return a text with references to what the group is given, where that is made outside."""
        return REFERENCE.sub(
            lambda found: (
                found[0]
                if not found[1] or found[1] in own
                else f"{{{{inputs.parameters.{Made(found[1], found[2]).name}}}}}"
            ),
            text,
        )

    template = member.task if isinstance(member, Group) else f"{member.task}-routed"
    depends = " && ".join(member.after) or depends
    if condition := condition_of(member):
        when = f"{{{{= {as_expression(within(condition))} }}}}"
    return {
        "name": member.task,
        "template": template,
        **({"depends": depends} if depends else {}),
        **({"when": when} if when else {}),
        **arguments({name: within(text) for name, text in member.arguments.items()}),
    }


def as_expression(text: str) -> str:
    """Return an expression whose references are written as Argo's expressions have them."""

    def write(found: re.Match[str]) -> str:
        maker = f"tasks['{found[1]}'].outputs" if found[1] else found[2]
        return f"{maker}.parameters['{found[3]}']"

    return ANY_REFERENCE.sub(write, text)
