"""The commands of an engine's containers, called by hand: route, stage, settle."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from commands import Finished, Ran, shoestring

from shoestring.core.datasets import Manifest
from shoestring.core.record import SCHEMA_VERSION
from shoestring.data.recipe_files import read_recipe
from shoestring.reporting.summary import RunSummary
from shoestring.runtime.admission.stage_request import RemainingStages
from shoestring.runtime.admission.stages import training_needs
from shoestring.stages import ingest

NEEDS = RemainingStages(schema_version=SCHEMA_VERSION, needs=(ingest.NEED,), engine="argo").model_dump_json()


class Pods:
    """The pods of one run, all on one store."""

    def __init__(self, laptop: Path, store: Path, run_id: str = "by-hand") -> None:
        self.store, self._run = store, ("--run-id", run_id, "--world", laptop)

    def _start(self, *arguments: object) -> Ran:
        return shoestring(*arguments, *self._run, env={"SHOESTRING_STORE": str(self.store)})

    def route(self, recipe: str, out: Path, *more: str, needs: str = NEEDS) -> Ran:
        return self._start("route", "--needs", needs, "--recipe", recipe, "--out", out, *more)

    def stage(self, *more: object) -> Ran:
        return self._start("stage", "ingest", *more)

    def settle(self, *more: object) -> Ran:
        return self._start("settle", *more)


@pytest.fixture(scope="module")
def recipe(flights_slice: Path) -> str:
    return read_recipe(flights_slice).model_dump_json()


@pytest.fixture
def pods(laptop: Path, tmp_path: Path) -> Pods:
    return Pods(laptop, tmp_path / "store")


def test_route_stage_and_settle_pass_files_and_a_stage_runs_once_per_reservation(
    pods: Pods, recipe: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    routed = pods.route(recipe, out, "--budget", "0.01", "--seed", "7")
    assert routed.code == 0, routed.err
    decision, key = json.loads((out / "decision.json").read_text()), (out / "decision_key").read_text()
    assert json.loads((pods.store / key).read_text()) == decision
    (main,) = json.loads((out / "patch").read_text())["containers"]
    assert (main["name"], main["image"]) == ("main", decision["placement"]["image"])
    assert (
        decision["choice"]["pool"] in routed.out
        and decision["choice"]["pool"] in (out / "page.md").read_text()
    )

    assert pods.stage("--decision-key", key, "--input", "data").code == 2
    ran = pods.stage("--decision-key", key, "--key-to", out / "key")
    assert ran.code == 0, ran.err
    assert (out / "key").read_text() == ran.out.strip()
    assert Manifest.model_validate_json((pods.store / ran.out.strip()).read_bytes()).rows == 20_000
    again = pods.stage("--decision-key", key)
    assert (again.code, again.out) == (0, ran.out), "a pod that comes again returns the result"

    settled = pods.settle("--page", out / "report.html", "--summary", out / "summary.json")
    assert settled.code == 0, settled.err
    summary = RunSummary.model_validate_json((out / "summary.json").read_bytes())
    assert [stage.name for stage in summary.stages] == ["ingest"]
    assert (out / "report.html").read_bytes() == (pods.store / "runs/by-hand/report.html").read_bytes()


def test_the_first_route_step_returns_all_results_that_are_cached(
    whole_run: Path, finished: Finished, tmp_path: Path
) -> None:
    chain = RemainingStages(
        schema_version=SCHEMA_VERSION, needs=training_needs(), engine="argo", may_return_all=True
    ).model_dump_json()
    recipe, out = read_recipe(finished.recipe).model_dump_json(), tmp_path / "out"
    store = shutil.copytree(whole_run / "store", tmp_path / "store")
    pods = Pods(finished.world, store, "all-cached")
    routed = pods.route(recipe, out, "--seed", "7", needs=chain)
    assert routed.code == 0, routed.err
    assert "the results of ingest, preprocess, train and evaluate were in the cache" in routed.out
    assert {path.name for path in out.iterdir()} == {"complete", "page.md"}
    assert (out / "complete").read_text() == "yes"

    assert pods.settle("--summary", tmp_path / "summary.json").code == 0
    summary, first = json.loads((tmp_path / "summary.json").read_text()), finished.ran.json
    assert [(stage["name"], stage["cache_hit"]) for stage in summary["stages"]] == [
        (stage["name"], True) for stage in first["stages"]
    ]
    assert (summary["status"], summary["quality"]) == ("done", first["quality"])
    assert summary["spent_usd"] == summary["overhead_usd"] > "0.000000"
    steps = (store / "runs/all-cached/overhead/1").iterdir()
    assert {path.name.partition(".")[0] for path in steps} == {"route-ingest", "settle"}

    trained_anew = Pods(finished.world, store, "another-seed")
    routed = trained_anew.route(recipe, tmp_path / "other", "--seed", "8", needs=chain)
    assert routed.code == 0, routed.err
    assert {path.name for path in (tmp_path / "other").iterdir()} == {
        "decision.json",
        "decision_key",
        "page.md",
        "patch",
    }
    assert trained_anew.settle().code == 0


@pytest.mark.parametrize(("given", "seed"), [((), 5), (("--seed", "-1"), 5), (("--seed", "0"), 0)])
def test_without_a_seed_the_recipes_seed_is_used(
    pods: Pods, flights_slice: Path, given: tuple[str, ...], seed: int, tmp_path: Path
) -> None:
    routed = pods.route(
        read_recipe(flights_slice).model_copy(update={"seed": 5}).model_dump_json(),
        tmp_path,
        "--budget",
        "0.01",
        *given,
    )
    assert routed.code == 0, routed.err
    assert json.loads((tmp_path / "decision.json").read_text())["question"]["seed"] == seed


def test_a_refused_route_gives_the_reason_and_the_exit_step_summarises_it(
    pods: Pods, recipe: str, tmp_path: Path
) -> None:
    refused = pods.route(recipe, tmp_path / "out", "--budget", "0.000001")
    assert (refused.code, "too small" in refused.err) == (1, True)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"refused"}
    assert pods.settle("--summary", tmp_path / "summary.json").code == 0
    assert RunSummary.model_validate_json((tmp_path / "summary.json").read_bytes()).status == "refused"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"recipe": "{}"}, "the recipe, as JSON: name: Field required"),
        ({"recipe": "flights"}, "the recipe, as JSON"),
        ({"needs": "[]"}, "the compiled pipeline's list of stages, as JSON"),
        (
            {"needs": '{"needs": []}'},
            "schema version 2 or older is not readable: this version of Shoestring reads schema version",
        ),
        ({"needs": '{"schema_version": 5, "engine": "argo", "needs": []}'}, "no stages"),
        ({"budget": "lots"}, "budget_usd: 'lots' is not an amount of dollars"),
        ({"budget": "$5"}, "budget_usd: '$5' is not an amount of dollars"),
    ],
)
def test_invalid_input_of_an_engine_is_reported(
    pods: Pods, recipe: str, given: dict[str, str], reason: str, tmp_path: Path
) -> None:
    ran = pods.route(
        given.get("recipe", recipe),
        tmp_path,
        "--budget",
        given.get("budget", ""),
        needs=given.get("needs", NEEDS),
    )
    assert (ran.code, reason in ran.err) == (2, True), ran.err


def test_the_exit_step_of_a_run_that_was_never_begun_gives_the_reason_of_its_route_step(
    pods: Pods, recipe: str, tmp_path: Path
) -> None:
    chain = RemainingStages(schema_version=SCHEMA_VERSION, needs=training_needs(), engine="argo")
    files = tmp_path / "report.html", tmp_path / "summary.json"
    settled = pods.settle("--page", files[0], "--summary", files[1])
    assert (settled.code, settled.err) == (0, "")
    assert "by-hand was never begun, so there is nothing to settle: see its first route step" in settled.out

    wrong = recipe.replace('"distance"', '"<distance>"')
    routed = pods.route(wrong, tmp_path / "out", needs=chain.model_dump_json())
    why = "the features: <distance> is not a column of table flights, which has"
    assert (routed.code, len(routed.err.splitlines()), why in routed.err) == (2, 1, True), routed.err
    assert (tmp_path / "out" / "refused").read_text() == "yes"
    settled = pods.settle("--page", files[0], "--summary", files[1])
    assert (settled.code, settled.err, why in settled.out) == (0, "", True), settled.out
    page, summary = (path.read_text() for path in files)
    assert (why.replace("<distance>", "&lt;distance&gt;") in page, summary) == (True, "")
    assert not list((pods.store / "ledger").glob("*"))


def test_a_route_step_without_usable_data_is_not_tried_again(pods: Pods, recipe: str, tmp_path: Path) -> None:
    path = str(json.loads(recipe)["source"]["flights"]["path"])
    (tmp_path / "empty.csv").write_text(Path(path).read_text().partition("\n")[0] + "\n")
    chain = RemainingStages(schema_version=SCHEMA_VERSION, needs=training_needs(), engine="argo")
    routed = pods.route(
        recipe.replace(path, str(tmp_path / "empty.csv")), tmp_path / "out", needs=chain.model_dump_json()
    )
    assert (routed.code, "table flights has no rows" in routed.err) == (1, True), routed.err
    assert (tmp_path / "out" / "refused").read_text() == "yes"
