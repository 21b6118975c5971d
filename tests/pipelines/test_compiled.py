"""The compiled pipeline, held to a golden file and to what KFP's driver silently demands."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.drive import compile_to

GOLDEN = Path(__file__).parent / "golden" / "train.yaml"
STAGES = ("ingest", "preprocess", "train", "evaluate")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any], dict[str, Any]]:
    path = tmp_path_factory.mktemp("compiled") / "train.yaml"
    compile_to(path)
    pipeline, platform = yaml.safe_load_all(path.read_text())
    return path.read_text(), pipeline, platform


def tasks(pipeline: dict[str, Any]) -> dict[str, Any]:
    inner = {
        name: task for component in pipeline["components"].values() for name, task in component.get("dag", {}).get("tasks", {}).items()
    }
    return inner | pipeline["root"]["dag"]["tasks"]


def test_it_is_the_golden_file(compiled: tuple[str, dict[str, Any], dict[str, Any]]) -> None:
    assert compiled[0] == GOLDEN.read_text(), f"if the change is meant: shoestring compile --out {GOLDEN.relative_to(Path.cwd())}"


def test_the_engines_cache_is_off_on_every_task(compiled: tuple[str, dict[str, Any], dict[str, Any]]) -> None:
    found = tasks(compiled[1])
    assert len([name for name in found if "route" in name]) == 4
    assert {name for name, task in found.items() if task.get("cachingOptions", {}).get("enableCache")} == set()


@pytest.mark.parametrize("stage", STAGES)
def test_every_part_of_a_placement_comes_from_the_stages_own_router(
    stage: str, compiled: tuple[str, dict[str, Any], dict[str, Any]]
) -> None:
    _, pipeline, platform = compiled
    task = tasks(pipeline)[stage]
    router = next(name for name in task["dependentTasks"] if name.startswith("route"))
    container = pipeline["deploymentSpec"]["executors"][f"exec-{stage}"]["container"]
    for value in (
        container["resources"][name] for name in ("resourceCpuLimit", "resourceCpuRequest", "resourceMemoryLimit", "resourceMemoryRequest")
    ):
        assert f"pipelinechannel--{router}-" in value
    for value in (*container["resources"]["accelerator"].values(), container["image"]):
        assert f"pipelinechannel--{router}-" in value
    placed = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"][f"exec-{stage}"]
    assert placed["nodeSelector"]["nodeSelectorJson"]["taskOutputParameter"]["producerTask"] == router
    assert placed["tolerations"][0]["tolerationJson"]["taskOutputParameter"]["producerTask"] == router
    assert placed["nodeAffinity"][0]["nodeAffinityJson"]["taskOutputParameter"]["producerTask"] == router


def test_a_routers_outputs_have_the_types_that_the_driver_does_not_drop(compiled: tuple[str, dict[str, Any], dict[str, Any]]) -> None:
    outputs = compiled[1]["components"]["comp-route"]["outputDefinitions"]["parameters"]
    types = {name: output["parameterType"] for name, output in outputs.items()}
    assert types == {
        "node_selector": "STRUCT",
        "tolerations": "LIST",
        "affinity": "STRUCT",
        **dict.fromkeys(("cpu", "memory", "accelerator", "accelerator_count", "image", "decision_key"), "STRING"),
    }


def test_no_component_has_an_input_that_a_placement_overwrites(compiled: tuple[str, dict[str, Any], dict[str, Any]]) -> None:
    taken = {"cpu_request", "cpu_limit", "memory_request", "memory_limit", "accelerator_type", "accelerator_count", "base_image"}
    for component in compiled[1]["components"].values():
        if "executorLabel" in component:
            assert not taken & set(component.get("inputDefinitions", {}).get("parameters", {}))
