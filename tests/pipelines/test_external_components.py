"""Routed external components: their inputs, their unchanged parts, and their settlement."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from kfp import dsl

from shoestring.backends.local import open_local_world
from shoestring.core.errors import UsageError
from shoestring.core.receipt import Receipt
from shoestring.core.types import Need
from shoestring.data.recipe_files import find_recipe
from shoestring.data.run_records import read_record
from shoestring.pipelines.kubeflow import write
from shoestring.pipelines.local_runner import run_locally
from shoestring.pipelines.routed import RunParameters, own_stage, routed, settle_step
from shoestring.runtime.settlement.settle import settle_run
from shoestring.spending.ledger.ledger import Ledger
from shoestring.stages import ingest as some_module

NEED = Need(stage="wait", setup_s=1.0)


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def wait(seconds: float, said: dsl.Output[dsl.Artifact]) -> str:
    import time
    from pathlib import Path

    time.sleep(seconds)
    Path(said.path).write_text("waited")
    return "waited"


@dsl.container_component
def shout(text: str):  # type: ignore[no-untyped-def]
    return dsl.ContainerSpec(image="alpine:3.20", command=["echo"], args=[text])


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def component_with_limit_input(cpu_limit: str) -> None:
    print(cpu_limit)


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def component_with_origin_input(origin: str) -> None:
    print(origin)


def parameters(recipe: str = "", run_id: str = "", world: str = "") -> RunParameters:
    return RunParameters(world=world, run_id=run_id, recipe=recipe, budget_usd="", deadline_s=0.0, seed=0)


@dsl.pipeline(name="strange")
def strange(recipe: str, run_id: str = "", world: str = "") -> None:
    run, chain = parameters(recipe, run_id, world), (NEED, Need(stage="shout", setup_s=1.0))
    with dsl.ExitHandler(settle_step(run), name="spend"):
        waited = routed(wait, chain, run, seconds=1.0)
        routed(shout, chain[1:], run, text=waited.outputs["Output"])


@dsl.pipeline(name="waiting")
def waiting(recipe: str, run_id: str = "", world: str = "") -> None:
    run = parameters(recipe, run_id, world)
    with dsl.ExitHandler(settle_step(run), name="spend"):
        routed(wait, (NEED,), run, seconds=4.0)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    pipeline, platform = yaml.safe_load_all(
        write(strange, tmp_path_factory.mktemp("strange") / "strange.yaml").read_text()
    )
    return pipeline, platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]


@pytest.mark.parametrize(("name", "image"), [("wait", "python:3.11"), ("shout", "alpine:3.20")])
def test_an_external_component_is_placed_and_labelled_and_not_changed_otherwise(
    name: str, image: str, compiled: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    pipeline, platform = compiled
    container = pipeline["deploymentSpec"]["executors"][f"exec-{name}"]["container"]
    assert container["image"] == image
    for resource in (
        "resourceCpuLimit",
        "resourceCpuRequest",
        "resourceMemoryLimit",
        "resourceMemoryRequest",
    ):
        assert "pipelinechannel--route" in container["resources"][resource]
    assert set(platform[f"exec-{name}"]) == {"nodeAffinity", "nodeSelector", "tolerations", "podMetadata"}
    assert platform[f"exec-{name}"]["podMetadata"]["labels"] == {"shoestring.dev/stage": name}


def test_an_external_component_keeps_its_inputs_is_not_retried_and_its_cache_is_off(
    compiled: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    tasks = next(
        component["dag"]["tasks"] for component in compiled[0]["components"].values() if "dag" in component
    )
    ours = ("pipelinechannel--", "cpu_", "memory_", "accelerator_")
    for name, inputs in (("wait", {"seconds"}), ("shout", {"text"})):
        assert {key for key in tasks[name]["inputs"]["parameters"] if not key.startswith(ours)} == inputs
        assert not tasks[name]["cachingOptions"].get("enableCache")
        assert "retryPolicy" not in tasks[name]


def test_an_external_component_on_a_laptop_is_settled_at_the_time_of_its_own_process(
    flights_slice: Path, laptop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOESTRING_STORE", str(tmp_path / "store"))
    recipe = find_recipe(str(flights_slice))
    arguments = {"recipe": recipe.model_dump_json(), "run_id": "r", "world": str(laptop)}
    assert run_locally(arguments, tmp_path / "log.txt", waiting), (tmp_path / "log.txt").read_text()[-4000:]
    world = open_local_world(laptop, store=tmp_path / "store")
    receipt = read_record(world.store, "runs/r/receipts/wait-1.json", Receipt)
    assert receipt.status == "done"
    assert receipt.seconds >= 4.0
    assert receipt.spent_usd > 0
    state = Ledger(world.store, world.clock, str(world.pod)).state("r")
    assert (state.closed, state.reservations) == (True, {})
    assert state.settled_usd["wait-1"] == receipt.spent_usd
    assert settle_run(world, "r") == []


@pytest.mark.parametrize(
    ("component", "inputs", "message"),
    [
        (component_with_limit_input, {"cpu_limit": "1"}, "has an input cpu_limit, which KFP overwrites"),
        (component_with_origin_input, {}, "has an input origin, which is an argument of routed"),
        (wait, {"seconds": 1.0, "origin": own_stage(some_module)}, "does not say which code does its work"),
        (waiting, {}, "is a pipeline, which has no pod of its own: route its steps"),
    ],
)
def test_a_component_that_would_fail_silently_is_refused(
    component: Any, inputs: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):

        @dsl.pipeline(name="refused")
        def refused() -> None:
            routed(component, (NEED,), parameters(), **inputs)


@pytest.mark.parametrize("name", ["settle", "route-trains"])
def test_no_stage_has_the_label_of_a_router_or_an_exit_step(name: str) -> None:
    with pytest.raises(UsageError, match=f"wait cannot be a stage called {name}"):

        @dsl.pipeline(name="refused")
        def refused() -> None:
            routed(wait, (Need(stage=name),), parameters(), seconds=1.0)
