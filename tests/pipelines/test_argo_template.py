"""The WorkflowTemplate equals a golden file and matches the Kubeflow pipeline and the commands of the CLI."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import SMALL_RECIPE
from kfp import dsl
from typer.main import get_command

from shoestring.cli import app
from shoestring.components.route import route
from shoestring.config.policy import Policy
from shoestring.core.errors import UsageError
from shoestring.data.recipe import Recipe
from shoestring.data.recipe_files import find_recipe
from shoestring.pipelines.argo import WORKFLOW_TTL_S, compile_all, returning_all, workflow
from shoestring.pipelines.argo_templates import may_return_all, stage_template
from shoestring.pipelines.compiled_values import KEY, Made
from shoestring.pipelines.routed import RunParameters, own_stage, routed
from shoestring.pipelines.stage_graph import Group, RoutedStage, Stage, routed_stages
from shoestring.pipelines.train import CHAIN, train_pipeline
from shoestring.stages import ingest
from shoestring.stages.work import Origin

ROOT, GOLDEN = Path(__file__).parents[2], Path(__file__).parent / "golden"
INPUTS = {
    "ingest": {},
    "preprocess": {"data": "ingest"},
    "train": {"data": "preprocess"},
    "evaluate": {"data": "preprocess", "model": "train"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("argo")
    compile_all(path)
    return path


@pytest.fixture(scope="module")
def templates(folder: Path) -> dict[str, Any]:
    return {
        template["name"]: template
        for template in yaml.safe_load((folder / "shoestring-train.yaml").read_text())["spec"]["templates"]
    }


def values(parameters: list[dict[str, str]]) -> dict[str, str]:
    return {parameter["name"]: parameter["value"] for parameter in parameters}


def arguments(template: dict[str, Any], task: str) -> dict[str, str]:
    return values(
        next(found for found in template["dag"]["tasks"] if found["name"] == task)["arguments"]["parameters"]
    )


def test_route_and_exit_steps_request_what_they_use_on_any_market(templates: dict[str, Any]) -> None:
    """Argo makes them again, so they may run on spot."""
    for name in ("route", "settle"):
        assert templates[name]["container"]["resources"] == {"requests": {"cpu": "250m", "memory": "320Mi"}}
        assert not {"affinity", "nodeSelector"} & templates[name].keys()
    assert templates["train"]["container"].keys() == {"args"}


def test_the_compiled_files_equal_the_golden_files(folder: Path) -> None:
    names = ("shoestring-train.yaml", "shoestring-predict.yaml", "runs/flights.yaml")
    assert {name: (folder / name).read_text() for name in names} == {
        name: (GOLDEN / "argo" / name).read_text() for name in names
    }, "if the change is meant: shoestring compile --target argo --out tests/pipelines/golden/argo"


def test_workflows_are_kept_until_long_after_the_reaper_closed_their_runs() -> None:
    policy = Policy.model_validate(yaml.safe_load((ROOT / "manifests/base/policy.yaml").read_text()))
    assert 12 * max(policy.abandoned_after_s, Policy().abandoned_after_s) <= WORKFLOW_TTL_S


def test_the_stages_and_their_inputs_equal_those_of_the_kubeflow_pipeline() -> None:
    stages = [stage for stage in routed_stages(train_pipeline).stages if isinstance(stage, RoutedStage)]
    assert [stage.name for stage in stages] == [need.stage for need in CHAIN]
    read = {stage.name: {name: made.name for name, made in stage.inputs.items()} for stage in stages}
    assert read == INPUTS
    assert [tuple(made and made.name for made in (stage.upstream, stage.side_input)) for stage in stages] == [
        (None, None),
        ("ingest", None),
        ("preprocess", None),
        ("preprocess", "train"),
    ]
    assert [[need["stage"] for need in json.loads(stage.needs)["needs"]] for stage in stages] == [
        [need.stage for need in CHAIN[index:]] for index in range(len(CHAIN))
    ]


@pytest.mark.parametrize("stage", INPUTS)
def test_every_attempt_at_a_stage_is_routed_and_gets_its_keys(stage: str, templates: dict[str, Any]) -> None:
    pair, upstream = templates[f"{stage}-routed"], sorted(set(INPUTS[stage].values()))
    assert pair["retryStrategy"]["retryPolicy"] == "Always"
    route_arguments, stage_arguments = arguments(pair, "route"), arguments(pair, "stage")
    assert json.loads(route_arguments["needs"])["needs"][0]["stage"] == route_arguments["stage"] == stage
    assert stage_arguments["patch"] == "{{tasks.route.outputs.parameters.patch}}"
    assert arguments(templates["run"], stage) == {
        source: f"{{{{tasks.{source}.outputs.parameters.key}}}}" for source in upstream
    }
    words = templates[stage]["container"]["args"]
    assert [word for before, word in pairwise(words) if before == "--input"] == [
        f"{name}={{{{inputs.parameters.{source}}}}}" for name, source in INPUTS[stage].items()
    ]
    assert templates[stage]["podSpecPatch"] == "{{inputs.parameters.patch}}"


def test_every_container_calls_an_existing_command_with_valid_options(templates: dict[str, Any]) -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    called = {
        name: template["container"]["args"] for name, template in templates.items() if "container" in template
    }
    assert {name: words[:2] for name, words in called.items() if name in INPUTS} == {
        stage: ["stage", stage] for stage in INPUTS
    }
    for words in called.values():
        options = {option for parameter in commands[words[0]].params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options
        needed = {
            parameter.opts[0]
            for parameter in commands[words[0]].params
            if parameter.required and parameter.opts[0].startswith("--")
        }
        assert needed <= set(words)


def test_every_template_is_given_exactly_its_inputs(templates: dict[str, Any]) -> None:
    for template in templates.values():
        for task in template.get("dag", {}).get("tasks", []):
            taken = {
                parameter["name"]
                for parameter in templates[task["template"]].get("inputs", {}).get("parameters", [])
            }
            assert set(values(task.get("arguments", {}).get("parameters", []))) == taken, task["name"]


def test_a_built_in_run_carries_its_recipe(folder: Path) -> None:
    run = yaml.safe_load((folder / "runs/flights.yaml").read_text())
    (recipe,) = run["spec"]["arguments"]["parameters"]
    assert Recipe.model_validate_json(recipe["value"]) == find_recipe("flights")


def test_argo_finds_no_template_in_the_recipe_of_a_run(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(SMALL_RECIPE.replace("[model]", '["{{workflow.name}}", "{{=1+1}}"]'))
    (given,) = workflow("shoestring-train", str(tmp_path / "mine.yaml"))["spec"]["arguments"]["parameters"]
    assert "{{" not in given["value"]
    assert json.loads(given["value"])["leaks"] == ["{{workflow.name}}", "{{=1+1}}"]


def conditions(templates: dict[str, Any], name: str) -> dict[str, str]:
    return {task["name"]: task["when"] for task in templates[name]["dag"]["tasks"] if "when" in task}


def test_no_other_step_starts_where_the_first_route_step_returned_all_results(
    templates: dict[str, Any],
) -> None:
    complete = "{{{{tasks.{}.outputs.parameters.complete}}}} != yes"
    skipped = {name: complete.format("ingest") for name in ("preprocess", "train", "evaluate")}
    assert conditions(templates, "run").items() - skipped.items() == {
        ("approve", "{{workflow.parameters.approve}} == yes")
    }
    assert skipped.items() <= conditions(templates, "run").items()
    assert conditions(templates, "ingest-routed") == {"stage": complete.format("route")}
    made = {each["name"]: each["valueFrom"] for each in templates["ingest-routed"]["outputs"]["parameters"]}
    assert made["complete"] == {"parameter": "{{tasks.route.outputs.parameters.complete}}"}
    assert made["key"]["default"] == ""
    for name in ("preprocess", "train", "evaluate"):
        assert not conditions(templates, f"{name}-routed")
    may = {
        name: "may_return_all" in arguments(templates[f"{name}-routed"], "route")["needs"] for name in INPUTS
    }
    assert [name for name, value in may.items() if value] == ["ingest"]


def test_steps_of_another_order_are_never_left_out() -> None:
    run = routed_stages(train_pipeline)
    stages = {stage.name: stage for stage in run.stages if isinstance(stage, RoutedStage)}
    key = {name: Made(name, KEY) for name in stages}

    def may(*changed: Stage, count: int = len(CHAIN)) -> list[str]:
        """Return the stages that may return all, if these are changed."""
        members = (stages | {stage.name: stage for stage in changed}).values()
        found = returning_all(replace(run, members=(*members,)[:count]))
        return [stage.name for stage in found.stages if may_return_all(stage)]

    assert may() == may(count=2) == ["ingest"]
    assert may(replace(stages["evaluate"], upstream=key["ingest"])) == []
    assert may(replace(stages["train"], upstream=key["ingest"])) == []
    assert may(replace(stages["preprocess"], after=())) == []
    assert may(replace(stages["preprocess"], origin="{}")) == []
    assert returning_all(replace(run, members=(Group("either", run.members, "false"),))).stages == run.stages


def test_an_authors_own_stage_gets_its_origin_in_which_argo_finds_no_template() -> None:
    origin = own_stage(ingest, by=["{{workflow.name}}", "{{channel:task=;name=by;type=String;}}"])

    @dsl.component(base_image="python:3.11")
    def mine(world: str, run_id: str, job_id: str, decision_key: str, origin: str) -> str:
        return decision_key

    @dsl.pipeline
    def authors(recipe: str) -> None:
        routed(mine, (ingest.NEED,), RunParameters("", "", recipe, "", 0.0, 0), origin=origin)

    (stage,) = routed_stages(authors).stages
    assert isinstance(stage, RoutedStage)
    assert Origin.model_validate_json(stage.origin) == origin
    assert "{{" not in stage.origin
    words = stage_template(stage)["container"]["args"]
    assert words[words.index("--origin") + 1] == stage.origin


def test_an_input_that_is_no_stage_output_is_refused() -> None:
    @dsl.component(base_image="python:3.11")
    def mine(world: str, run_id: str, job_id: str, decision_key: str, origin: str, words: str) -> str:
        return decision_key

    @dsl.pipeline
    def authors(recipe: str) -> None:
        routed(
            mine,
            (ingest.NEED,),
            RunParameters("", "", recipe, "", 0.0, 0),
            origin=own_stage(ingest),
            words="two",
        )

    with pytest.raises(UsageError, match="mine has an input words"):
        routed_stages(authors)


def test_argo_refuses_a_router_that_places_no_stage() -> None:
    @dsl.component(base_image="python:3.11")
    def theirs(cpu: str) -> None: ...

    @dsl.pipeline
    def foreign() -> None:
        fixed = dict.fromkeys(
            ("needs", "world", "run_id", "job_id", "recipe", "budget_usd", "upstream", "side_input"), ""
        )
        theirs(cpu=route(**fixed, deadline_s=0.0, seed=0).outputs["cpu"])

    with pytest.raises(UsageError, match="route: a router that places no stage"):
        routed_stages(foreign)
