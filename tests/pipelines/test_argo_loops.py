"""Loops on Argo: a template for the loop and one for an item of it. What Argo makes of their expressions is
seen on kind, by the scenarios `loops` and `lost_item`.
"""

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

from argo_dags import RUN, Templates, compiled, measure, need, step, tasks_of, values
from kfp import dsl

from shoestring.data.job import Job
from shoestring.pipelines.argo_templates import ITEM_NUMBER
from shoestring.pipelines.routed import routed, settle_step
from shoestring.stages.command import command_need


@dsl.container_component
def listing(names: dsl.OutputPath(list)):  # type: ignore[no-untyped-def]
    return dsl.ContainerSpec("alpine:3.20", ["echo"], [names])


def looped(body: Any) -> Templates:
    """Return the templates of a pipeline whose first stage makes a list; `body` is what comes after it."""

    @dsl.pipeline(name="looped")
    def pipeline() -> None:
        with dsl.ExitHandler(settle_step(RUN), name="spend"):
            body(routed(listing, need("first"), RUN).outputs["names"])

    return compiled(pipeline)


def the_loop(templates: Templates) -> str:
    """Return the name of the only loop of the run."""
    (name,) = [each for each in tasks_of(templates, "run") if each.startswith("for-loop")]
    return name


def given_to_route(templates: Templates, stage: str) -> dict[str, str]:
    return values(tasks_of(templates, f"{stage}-routed")["route"])


def item(loop: str, field: str = "") -> str:
    value = f"sprig.fromJson(inputs.parameters['{loop}-list'])[asInt(inputs.parameters['{loop}-index'])]"
    value += f"['{field}']" if field else ""
    return f"let value = {value}; type(value) == 'string' ? value : toJson(value)"


def test_a_list_of_the_pipeline_is_an_argument_of_its_loop_whatever_its_values_are() -> None:
    def body(names: Any) -> None:
        with dsl.ParallelFor(
            [{"a": "{{workflow.name}}", "b": {"c": {}}}, {"a": "y", "b": 2}], parallelism=1
        ) as one:
            step("work", one.a, items=2)

    templates = looped(body)
    loop = the_loop(templates)
    (text,) = values(tasks_of(templates, "run")[loop]).values()
    assert "{{" not in text
    assert json.loads(text) == [{"a": "{{workflow.name}}", "b": {"c": {}}}, {"a": "y", "b": 2}]
    assert templates[loop]["parallelism"] == 1
    (task,) = templates[loop]["dag"]["tasks"]
    count = f"{{{{=len(sprig.fromJson(inputs.parameters['{loop}-list']))}}}}"
    assert task["withSequence"] == {"count": count}
    assert values(task) == {
        f"{loop}-list": f"{{{{inputs.parameters.{loop}-list}}}}",
        f"{loop}-index": "{{item}}",
    }
    assert values(tasks_of(templates, f"{loop}-item")["work"]) == {
        "input-word": f"{{{{={item(loop, 'a')}}}}}"
    }
    # Its router knows this list from its needs.
    given = given_to_route(templates, "work")
    assert given["items"] == "" and len(json.loads(given["needs"])["loops"][0]["items"]) == 2


def test_the_router_of_an_item_is_given_the_number_of_the_item_and_a_list_that_the_run_makes() -> None:
    def body(names: Any) -> None:
        with dsl.ParallelFor(names) as outer, dsl.If(outer != "l"):
            step("work", outer)

    templates = looped(body)
    loop = the_loop(templates)
    assert values(tasks_of(templates, "run")[loop]) == {
        f"{loop}-list": "{{tasks.first.outputs.parameters.names}}"
    }
    assert tasks_of(templates, "run")[loop]["depends"] == "first"
    ((condition, task),) = tasks_of(templates, f"{loop}-item").items()
    assert task["when"] == f"{{{{= ({item(loop)}) != 'l' }}}}"
    assert values(task) == {
        f"{loop}-item": f"{{{{={item(loop)}}}}}",
        f"{loop}-list": f"{{{{inputs.parameters.{loop}-list}}}}",
    }
    assert (
        values(tasks_of(templates, condition)["work"])["input-word"]
        == f"{{{{inputs.parameters.{loop}-item}}}}"
    )
    given = given_to_route(templates, "work")
    assert given["items"] == f"{{{{inputs.parameters.{loop}-list}}}}"
    assert given["item"] == f"{{{{={ITEM_NUMBER}}}}}"
    outside = given_to_route(templates, "first")
    assert outside["item"] == outside["items"] == ""


def test_a_loop_over_an_item_of_another_one_is_given_that_item() -> None:
    def body(names: Any) -> None:
        with dsl.ParallelFor([["a"], ["b", "c"]]) as row, dsl.ParallelFor(row) as cell:
            step("work", cell)

    templates = looped(body)
    outer = the_loop(templates)
    ((inner, task),) = tasks_of(templates, f"{outer}-item").items()
    assert values(task) == {f"{inner}-list": f"{{{{={item(outer)}}}}}"}
    assert given_to_route(templates, "work")["items"] == f"{{{{inputs.parameters.{inner}-list}}}}"


def test_a_stage_reads_what_the_items_have_made_as_a_list_of_the_type_that_they_have() -> None:
    @dsl.container_component
    def join(sizes: list, rows: list, good: list, cells: list):  # type: ignore[no-untyped-def,type-arg]
        return dsl.ContainerSpec("alpine:3.20", ["echo"], [sizes, rows, good, cells])

    def body(names: Any) -> None:
        with dsl.ParallelFor(["a", "b"]) as name, dsl.If(name == "a"):
            one = routed(measure, need("work", 2), RUN, word=name).outputs
        with dsl.ParallelFor(["a"]), dsl.ParallelFor(["b", "c"]) as cell:
            inner = step("inner", cell, items=2)
        collected = (dsl.Collected(each) for each in (one["size"], one["rows"], one["good"], inner))
        routed(
            join, need("join"), RUN, **dict(zip(("sizes", "rows", "good", "cells"), collected, strict=True))
        )

    templates = looped(body)
    read = values(tasks_of(templates, "run")["join"])
    assert {each.split(".")[-1] for each in read.values()} == {
        *(f"pipelinechannel--measure-{name}}}}}" for name in ("size", "rows", "good")),
        "pipelinechannel--say-said}}",
    }
    made = {
        output["name"].split("-")[-1]: output["valueFrom"]["expression"]
        for template in templates.values()
        if template["name"].endswith("-item")
        for output in template["outputs"]["parameters"]
    }
    assert made["size"].split(" ? ")[1].startswith("toJson(tasks['condition-")
    assert made["rows"].split(" ? ")[1].startswith("tasks['condition-")
    assert " in ['1', 't', 'T', 'true'" in made["good"]
    assert made["said"].endswith(" : 'null'")


def test_a_refusal_ends_the_pair_of_its_own_item_alone() -> None:
    work = command_need("work", seconds=1.0, after=()).model_copy(update={"items": 2})

    def body(names: Any) -> None:
        with dsl.ParallelFor(["a", "b"]) as name:
            own = replace(RUN, recipe=Job(name="own", budget_usd=Decimal(1)))
            routed(measure, [work], own, metered=True, word=name)

    retry = looped(body)["work-routed"]["retryStrategy"]
    assert retry["expression"] == (
        f"{{{{=(workflow.outputs?.parameters?.['refused-work' + {ITEM_NUMBER}] ?? 'no') != 'yes'}}}}"
    )
