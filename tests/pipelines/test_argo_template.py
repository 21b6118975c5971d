"""The WorkflowTemplate: held to a golden file, to the pipeline that Kubeflow is given, and to the commands that its containers call."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from kfp import dsl
from typer.main import get_command

from shoestring.components.route import route
from shoestring.pipelines.argo import KEPT_S, compile_to, stage_pod, stages_of
from shoestring.pipelines.routed import RunParameters, own, routed
from shoestring.pipelines.train import CHAIN, train_pipeline
from shoestring.cli import app
from shoestring.config.policy import Policy
from shoestring.core.errors import UsageError
from shoestring.data.recipe import Recipe, find_recipe
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
    compile_to(path)
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


def test_they_are_the_golden_files(folder: Path) -> None:
    names = ("shoestring-train.yaml", "runs/flights.yaml")
    assert {name: (folder / name).read_text() for name in names} == {
        name: (GOLDEN / "argo" / name).read_text() for name in names
    }, "if the change is meant: shoestring compile --target argo --out tests/pipelines/golden/argo"


def test_pods_are_kept_until_long_after_the_sweeper_closed_a_run_without_an_exit_step() -> None:
    policy = Policy.model_validate(yaml.safe_load((ROOT / "manifests/base/policy.yaml").read_text()))
    assert 12 * max(policy.abandoned_after_s, Policy().abandoned_after_s) <= KEPT_S


def test_the_stages_are_those_of_the_kubeflow_pipeline_and_read_what_its_steps_read() -> None:
    stages = stages_of(train_pipeline)
    assert [stage.name for stage in stages] == [need.stage for need in CHAIN]
    assert {stage.name: stage.inputs for stage in stages} == INPUTS
    assert [(stage.upstream, stage.also) for stage in stages] == [
        ("", ""),
        ("ingest", ""),
        ("preprocess", ""),
        ("preprocess", "train"),
    ]
    assert [[need["stage"] for need in json.loads(stage.needs)["needs"]] for stage in stages] == [
        [need.stage for need in CHAIN[index:]] for index in range(len(CHAIN))
    ]


@pytest.mark.parametrize("stage", INPUTS)
def test_every_attempt_at_a_stage_is_routed_and_gets_its_keys(stage: str, templates: dict[str, Any]) -> None:
    pair, leavers = templates[f"{stage}-routed"], sorted(set(INPUTS[stage].values()))
    assert pair["retryStrategy"]["retryPolicy"] == "Always"
    asked, given = arguments(pair, "route"), arguments(pair, "stage")
    assert json.loads(asked["needs"])["needs"][0]["stage"] == asked["stage"] == stage
    assert given["patch"] == "{{tasks.route.outputs.parameters.patch}}"
    assert arguments(templates["run"], stage) == {
        leaver: f"{{{{tasks.{leaver}.outputs.parameters.key}}}}" for leaver in leavers
    }
    words = templates[stage]["container"]["args"]
    assert [word for before, word in pairwise(words) if before == "--input"] == [
        f"{name}={{{{inputs.parameters.{leaver}}}}}" for name, leaver in INPUTS[stage].items()
    ]
    assert templates[stage]["podSpecPatch"] == "{{inputs.parameters.patch}}"


def test_every_container_calls_a_command_with_options_that_it_has(templates: dict[str, Any]) -> None:
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


def test_what_a_template_hands_on_is_what_the_next_one_takes(templates: dict[str, Any]) -> None:
    for template in templates.values():
        for task in template.get("dag", {}).get("tasks", []):
            taken = {
                parameter["name"]
                for parameter in templates[task["template"]].get("inputs", {}).get("parameters", [])
            }
            assert set(values(task.get("arguments", {}).get("parameters", []))) == taken, task["name"]


def test_a_run_that_ships_is_the_recipe(folder: Path) -> None:
    run = yaml.safe_load((folder / "runs/flights.yaml").read_text())
    (recipe,) = run["spec"]["arguments"]["parameters"]
    assert Recipe.model_validate_json(recipe["value"]) == find_recipe("flights")


def test_an_authors_own_stage_is_told_which_code_does_its_work() -> None:
    @dsl.component(base_image="python:3.11")
    def mine(world: str, run_id: str, job_id: str, decision_key: str, origin: str) -> str:
        return decision_key

    @dsl.pipeline
    def authors(recipe: str) -> None:
        routed(mine, (ingest.NEED,), RunParameters("", "", recipe, "", 0.0, 0), origin=own(ingest))

    (stage,) = stages_of(authors)
    assert Origin.model_validate_json(stage.origin) == own(ingest)
    words = stage_pod(stage)["container"]["args"]
    assert words[words.index("--origin") + 1] == stage.origin


def test_an_input_that_argo_would_lose_is_refused() -> None:
    @dsl.component(base_image="python:3.11")
    def mine(world: str, run_id: str, job_id: str, decision_key: str, origin: str, words: str) -> str:
        return decision_key

    @dsl.pipeline
    def authors(recipe: str) -> None:
        routed(
            mine, (ingest.NEED,), RunParameters("", "", recipe, "", 0.0, 0), origin=own(ingest), words="two"
        )

    with pytest.raises(UsageError, match="mine has an input words"):
        stages_of(authors)


def test_a_routed_step_that_is_no_stage_of_ours_cannot_be_run_by_argo() -> None:
    @dsl.component(base_image="python:3.11")
    def theirs(cpu: str) -> None: ...

    @dsl.pipeline
    def foreign() -> None:
        fixed = dict.fromkeys(
            ("needs", "world", "run_id", "job_id", "recipe", "budget_usd", "upstream", "also"), ""
        )
        theirs(cpu=route(**fixed, deadline_s=0.0, seed=0).outputs["cpu"])

    with pytest.raises(UsageError, match="route: a router whose task is not a stage"):
        stages_of(foreign)
