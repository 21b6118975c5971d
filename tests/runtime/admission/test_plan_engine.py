"""`shoestring plan --engine`: the time and the pods of the engine on which the pipeline will run."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import Ran, shoestring
from runtime_world import small_world

from shoestring.api import plan
from shoestring.config.engines import ASSUMED_STEP_S, Engine, assumed_times
from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.errors import UsageError
from shoestring.core.record import record_bytes
from shoestring.data.recipe_files import find_recipe
from shoestring.runtime.admission.first_request import ENGINE_START_S
from shoestring.runtime.launch.run_request import planned_engine
from shoestring.runtime.records.engine_times import EngineSample
from shoestring.runtime.records.overhead import STEP_SERVER_S, overhead_usd, overhead_usd_per_hour
from shoestring.spending.meter import cost_usd

STAGES = 4
PODS = STAGES + 1
"""A router for each stage, and the exit step."""

DEADLINE_S = 300.0
MICRO = Decimal("0.000001")

STARTUP_S = 5.0
"""What a pool's container takes to start, where the engines were measured."""

MIN_TRAINING_S = 20.0

STEP_AND_STARTUP_S: dict[Engine, float] = {"local": 8.0, "kubeflow": 30.0, "argo": 20.0}


class PlanLab:
    """A store with the speeds of an ordinary disk, in which nothing has run, and plans of the flights."""

    def __init__(self, world: Path, recipe: Path | str, folder: Path) -> None:
        self.opened: World = small_world(world, folder)
        self._given = ("plan", recipe, "--world", world, "--store", folder / "store", "--json")

    def __call__(self, *options: object) -> Ran:
        return shoestring(*self._given, *options)

    def question(self, *options: object) -> Any:
        return self(*options, "--deadline", DEADLINE_S).json["question"]


@pytest.fixture
def lab(laptop: Path, flights_slice: Path, tmp_path: Path) -> PlanLab:
    return PlanLab(laptop, flights_slice, tmp_path)


@pytest.mark.parametrize("engine", ASSUMED_STEP_S)
def test_the_time_of_the_named_engine_is_kept_free(lab: PlanLab, engine: Engine) -> None:
    question, starts_s = lab.question("--engine", engine), ENGINE_START_S if engine == "local" else 0
    assert (question["engine"]["engine"], question["engine"]["step_s"]) == (engine, ASSUMED_STEP_S[engine])
    assert question["engine_s"] == starts_s + STAGES * ASSUMED_STEP_S[engine]
    assert question["deadline_left_s"] == DEADLINE_S - question["engine_s"]


def test_on_a_laptop_the_plan_is_that_of_a_run_there(lab: PlanLab) -> None:
    assert lab.question()["engine"] == lab.question("--engine", "local")["engine"]


def test_what_was_measured_of_an_engine_counts_in_its_plans_alone(lab: PlanLab) -> None:
    sample = EngineSample(
        engine="kubeflow", measured_at=datetime.now(UTC), steps_s=(40.0,), places_s=(20.0,), pods_s=(90.0,)
    )
    lab.opened.store.put(store_layout.engine_samples("kubeflow", "00.json"), record_bytes(sample))
    kubeflow, argo = (lab.question("--engine", each) for each in ("kubeflow", "argo"))
    assert (kubeflow["engine_s"], argo["engine_s"]) == (STAGES * 40.0, STAGES * ASSUMED_STEP_S["argo"])
    # What is held for pods without a stage, and for extensions.
    pods_usd = overhead_usd(lab.opened, PODS, 0, assumed_times("kubeflow", 90.0))
    assert Decimal(argo["held_usd"]) < pods_usd <= Decimal(kubeflow["held_usd"])


@pytest.mark.parametrize("engine", ["argo", "kubeflow"])
def test_a_plan_and_its_smallest_budget_hold_a_second_pod_where_the_engine_creates_pods_again(
    lab: PlanLab, engine: Engine
) -> None:
    local, other = (lab("--engine", each, "--budget", "0.00001").json for each in ("local", engine))
    pod_s = local["question"]["engine"]["pod_s"]
    # The local engine starts a server of its steps instead.
    pod_usd = cost_usd(overhead_usd_per_hour(lab.opened), pod_s - STEP_SERVER_S)
    assert pod_usd > 0
    more_usd = [
        Decimal(other["question"]["held_usd"]) - Decimal(local["question"]["held_usd"]),
        Decimal(other["smallest_budget_usd"]) - Decimal(local["smallest_budget_usd"]),
    ]
    assert more_usd == pytest.approx([pod_usd, pod_usd], abs=MICRO)


def test_a_deadline_that_an_engine_alone_takes_is_refused_for_it(lab: PlanLab) -> None:
    deadline_s = STAGES * ASSUMED_STEP_S["kubeflow"]
    assert lab("--deadline", deadline_s).code == 0
    refused = lab("--deadline", deadline_s, "--engine", "kubeflow")
    assert (refused.code, refused.json["choice"]) == (1, None)
    assert refused.json["smallest_deadline_s"] > deadline_s


@pytest.mark.parametrize("engine", ASSUMED_STEP_S)
def test_the_default_recipe_has_time_to_train_within_its_own_deadline(
    laptop: Path, tmp_path: Path, engine: Engine
) -> None:
    assert ASSUMED_STEP_S[engine] + STARTUP_S == STEP_AND_STARTUP_S[engine]
    content = yaml.safe_load(laptop.read_text())
    content["pools"] = [pool | {"startup_s": STARTUP_S} for pool in content["pools"]]
    world = tmp_path / "world.yaml"
    world.write_text(yaml.safe_dump(content))
    ran = PlanLab(world, "flights", tmp_path)("--engine", engine)
    assert ran.code == 0, ran.err
    question, choice, plan = (ran.json[name] for name in ("question", "choice", "plan"))
    assert question["deadline_left_s"] + question["engine_s"] == find_recipe("flights").deadline_s
    others_s = choice["p95_s"] + sum(each["reserved_s"] for each in plan if each["stage"] != "train")
    # Training starts a pod, too.
    assert question["deadline_left_s"] - others_s - STARTUP_S >= MIN_TRAINING_S


def test_an_unknown_engine_is_bad_usage(lab: PlanLab, tmp_path: Path) -> None:
    ran = lab("--engine", "airflow")
    assert (ran.code, ran.json["status"]) == (2, "usage")
    assert "engine airflow: choose one of local, kubeflow, argo" in ran.err
    unknown: Any = "airflow"
    with pytest.raises(UsageError, match="engine airflow"):
        plan("flights", engine=unknown, world=tmp_path)


def test_in_a_clusters_world_a_plan_is_for_argo_unless_it_names_another_engine() -> None:
    assert planned_engine(None, in_cluster=True) == "argo"
    assert planned_engine("kubeflow", in_cluster=True) == "kubeflow"
