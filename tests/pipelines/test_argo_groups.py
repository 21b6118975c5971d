"""Conditions and nested pipelines on Argo: each group is a DAG template with inputs for what it reads."""

import re
from typing import Any, NamedTuple

import pytest
from argo_dags import RUN, Templates, compiled, measure, need, say, step, tasks_of, values
from kfp import dsl

from shoestring.core.errors import UsageError
from shoestring.pipelines.routed import routed, settle_step


def conditions(condition: Any, word: Any = "x") -> Templates:
    """Return the templates of a pipeline of a stage, and of one that comes under this condition on it."""

    @dsl.pipeline(name="conditional")
    def conditional(budget_usd: str = "", deadline_s: float = 0.0) -> None:
        with dsl.ExitHandler(settle_step(RUN), name="spend"):
            first = routed(measure, need("first"), RUN, word="one")
            with dsl.If(condition(first.outputs, budget_usd, deadline_s)):
                step("within", word(first.outputs) if callable(word) else word)

    return compiled(conditional)


MADE = "tasks['first'].outputs.parameters['{}']"
TRUE = "['1', 't', 'T', 'true', 'TRUE', 'True']"


@pytest.mark.parametrize(
    ("condition", "when"),
    [
        (lambda made, *_: made["size"] == "large", f"{MADE.format('size')} == 'large'"),
        (lambda made, *_: made["rows"] > 5, f"asInt({MADE.format('rows')}) > 5"),
        (lambda made, *_: made["rows"] >= 0.5, f"asFloat(asInt({MADE.format('rows')})) >= 0.5"),
        (lambda made, *_: made["share"] < 0.5, f"asFloat({MADE.format('share')}) < 0.5"),
        (lambda made, *_: made["good"] == True, f"({MADE.format('good')} in {TRUE}) == true"),  # noqa: E712
        (lambda made, budget_usd, _: budget_usd != "", "workflow.parameters['budget_usd'] != ''"),
        (lambda _, __, deadline_s: deadline_s > 60.0, "asFloat(workflow.parameters['deadline_s']) > 60.0"),
    ],
)
def test_a_condition_is_an_expression_with_the_types_of_what_it_reads(condition: Any, when: str) -> None:
    group = tasks_of(conditions(condition), "run")["condition-2"]
    assert group["when"] == f"{{{{= {when} }}}}"
    assert group.get("depends", "first") in ("first", "approve")


def test_a_group_is_given_what_is_read_in_it_and_made_outside() -> None:
    templates = conditions(lambda made, *_: made["rows"] > 5, lambda made: made["size"])
    assert values(tasks_of(templates, "run")["condition-2"]) == {
        "first-size": "{{tasks.first.outputs.parameters.size}}"
    }
    assert values(tasks_of(templates, "condition-2")["within"]) == {
        "input-word": "{{inputs.parameters.first-size}}"
    }


def test_one_of_reads_the_branch_that_was_taken_also_where_both_have_a_stage_of_one_name() -> None:
    @dsl.pipeline(name="branches")
    def branches() -> None:
        with dsl.ExitHandler(settle_step(RUN), name="spend"):
            first = step("first", "one")
            with dsl.If(first == "a"):
                with dsl.If(first != "b"):
                    step("deep", first)
                one = step("second", first)
            with dsl.Elif(first == "b"):
                other = step("second", f"{first} again")
            with dsl.Else():
                third = step("third", "x")
            step("last", dsl.OneOf(one, other, third))

    templates = compiled(branches)
    assert {*tasks_of(templates, "run")} == {"approve", "first", "condition-branches-2", "last"}
    (output,) = templates["condition-branches-2"]["outputs"]["parameters"]
    tried = re.findall(
        r"tasks\['([\w-]+)'\]\.(status == 'Succeeded'|outputs)", output["valueFrom"]["expression"]
    )
    assert tried == [
        ("condition-4", "status == 'Succeeded'"),
        ("condition-4", "outputs"),
        ("condition-5", "status == 'Succeeded'"),
        ("condition-5", "outputs"),
        ("condition-6", "outputs"),
    ]
    assert {*tasks_of(templates, "condition-4")} == {"second", "condition-3"}
    assert values(tasks_of(templates, "condition-5")["second-2"]) == {
        "input-word": "{{inputs.parameters.first-said}} again"
    }
    assert {
        templates[name]["metadata"]["labels"]["shoestring.dev/stage"] for name in ("second", "second-2")
    } == {"second"}
    (last,) = values(tasks_of(templates, "run")["last"]).values()
    assert last.startswith("{{tasks.condition-branches-2.outputs.parameters.")


class Said(NamedTuple):
    said: str


def test_a_nested_pipeline_is_given_its_inputs_by_their_own_names_and_is_waited_for() -> None:
    @dsl.pipeline(name="part")
    def part(text: str, limit: int, note: str = "noted") -> str:
        with dsl.If(limit > 3):
            step("deep", f"{text} and {note}")
        return step("part", text)

    @dsl.pipeline(name="whole")
    def whole(run_id: str = "", seed: int = 0) -> None:
        with dsl.ExitHandler(settle_step(RUN), name="spend"):
            first = step("first", "one")
            inner = part(text=f"{first} of {run_id}", limit=seed)
            step("reads", inner.output)
            routed(say, need("waits"), RUN, word="x").after(inner)

    templates = compiled(whole)
    tasks = tasks_of(templates, "run")
    text = "{{tasks.first.outputs.parameters.said}} of {{workflow.parameters.run_id}}"
    assert values(tasks["part"]) == {"input-word": text}
    assert tasks["condition-1"]["when"] == "{{= asInt(workflow.parameters['seed']) > 3 }}"
    assert values(tasks["condition-1"]) == {"first-said": "{{tasks.first.outputs.parameters.said}}"}
    assert values(tasks_of(templates, "condition-1")["deep"]) == {
        "input-word": "{{inputs.parameters.first-said}} of {{workflow.parameters.run_id}} and noted"
    }
    assert values(tasks["reads"]) == {"input-word": "{{tasks.part.outputs.parameters.said}}"}
    assert tasks["waits"]["depends"] == "condition-1 && part"
    assert tasks["part"]["depends"] == "first"


def test_a_refusal_ends_the_pair_of_its_own_stage_alone() -> None:
    @dsl.pipeline(name="pairs")
    def pairs() -> None:
        with dsl.ExitHandler(settle_step(RUN), name="spend"):
            for stage in ("one", "other"):
                routed(say, need(stage), RUN, word="x")

    templates = compiled(pairs)
    (refused,) = [each for each in templates["route"]["outputs"]["parameters"] if each["name"] == "refused"]
    assert refused["globalName"] == "refused-{{inputs.parameters.stage}}{{inputs.parameters.item}}"
    assert "retryStrategy" not in templates["one-routed"]


def test_what_argo_cannot_run_of_a_condition_is_refused_with_its_name() -> None:
    @dsl.component(base_image="python:3.11", install_kfp_package=False)
    def flip() -> str:
        return "heads"

    @dsl.pipeline(name="unrouted")
    def unrouted() -> None:
        made = flip().output
        with dsl.ExitHandler(settle_step(RUN), name="spend"), dsl.If(made == "heads"):
            step("within", "x")

    with pytest.raises(UsageError, match="flip is not routed, and Argo runs routed stages only: route it"):
        compiled(unrouted)
    with pytest.raises(UsageError, match=r"condition-2 compares with a text in which Argo finds a template"):
        conditions(lambda made, *_: made["size"] == "{{x}}")
