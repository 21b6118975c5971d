"""The compiled pipeline and components equal golden files and meet the undocumented requirements of KFP's
driver.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml

from shoestring.backends.kubernetes.discovery import MARKET_LABEL, SPOT_LABELS
from shoestring.backends.sources.data_variables import DATA_VARIABLES
from shoestring.config.world import WORLD_FILES
from shoestring.pipelines.kubeflow import compile_all

GOLDEN = Path(__file__).parent / "golden"
STAGES = ("ingest", "preprocess", "train", "evaluate")

Compiled = tuple[Path, dict[str, Any], dict[str, Any]]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    """Return the folder of all files and the two documents of the training pipeline."""
    folder = tmp_path_factory.mktemp("compiled")
    compile_all(folder)
    pipeline, platform = yaml.safe_load_all((folder / "train.yaml").read_text())
    return folder, pipeline, platform


def files(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in (*folder.glob("*.yaml"), *folder.glob("components/*.yaml"))
    }


def tasks(pipeline: dict[str, Any]) -> dict[str, Any]:
    inner = {
        name: task
        for component in pipeline["components"].values()
        for name, task in component.get("dag", {}).get("tasks", {}).items()
    }
    return inner | pipeline["root"]["dag"]["tasks"]


def executors(platform: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    return found


def test_the_compiled_files_equal_the_golden_files(compiled: Compiled) -> None:
    assert files(compiled[0]) == files(GOLDEN), (
        f"if the change is meant: shoestring compile --out {GOLDEN.relative_to(Path.cwd())}"
    )


def test_every_component_has_its_own_file(compiled: Compiled) -> None:
    assert {path.stem for path in (compiled[0] / "components").iterdir()} == {
        *STAGES,
        "predict",
        "route",
        "settle",
    }


def test_kfps_cache_is_off_for_every_task(compiled: Compiled) -> None:
    found = tasks(compiled[1])
    assert len([name for name in found if "route" in name]) == 4
    assert {
        name for name, task in found.items() if task.get("cachingOptions", {}).get("enableCache")
    } == set()


def test_kubeflow_retries_each_stage_once_and_neither_a_router_nor_the_exit_step(compiled: Compiled) -> None:
    retries = {
        name: task.get("retryPolicy", {}).get("maxRetryCount", 0)
        for name, task in tasks(compiled[1]).items()
        if "executorLabel" in compiled[1]["components"][task["componentRef"]["name"]]
    }
    assert {name: count for name, count in retries.items() if count} == dict.fromkeys(STAGES, 1)
    assert len(retries) == 2 * len(STAGES) + 1


def test_every_pod_has_the_world_the_credentials_and_its_identity(compiled: Compiled) -> None:
    found = executors(compiled[2])
    assert set(found) == set(compiled[1]["deploymentSpec"]["executors"])
    for given in found.values():
        mounted = {volume["configMapName"]: volume["mountPath"] for volume in given["configMapAsVolume"]}
        assert mounted == {f"shoestring-{name}": f"/etc/shoestring/{name}" for name in WORLD_FILES}
        assert {
            secret["secretName"]: [key["envVar"] for key in secret["keyToEnv"]]
            for secret in given["secretAsEnv"]
        } == {
            "shoestring-s3": ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"],
            "shoestring-data": list(DATA_VARIABLES),
        }
        assert {env["name"]: env["fieldPath"] for env in given["fieldPathAsEnv"]} == {
            "SHOESTRING_POD_NAMESPACE": "metadata.namespace",
            "SHOESTRING_POD_UID": "metadata.uid",
            "SHOESTRING_NODE": "metadata.annotations['workflows.argoproj.io/node-name']",
            "SHOESTRING_POD_NAME": "metadata.name",
            "SHOESTRING_WORKFLOW": "metadata.labels['workflows.argoproj.io/workflow']",
        }
        # A pod without one of them must still start, so that it can report what is missing.
        assert all(volume["optional"] for volume in (*given["configMapAsVolume"], *given["secretAsEnv"]))


def test_no_pod_is_root_and_each_can_write_to_tmp(compiled: Compiled) -> None:
    for given in executors(compiled[2]).values():
        assert given["securityContext"] == {"runAsUser": "8737", "runAsNonRoot": True}
        assert [volume["mountPath"] for volume in given["emptyDirMounts"]] == ["/tmp"]


def test_every_pod_has_the_label_of_its_step(compiled: Compiled) -> None:
    labels = [
        given["podMetadata"]["labels"]["shoestring.dev/stage"] for given in executors(compiled[2]).values()
    ]
    assert sorted(labels) == sorted([*STAGES, *(f"route-{stage}" for stage in STAGES), "settle"])


def test_the_exit_step_runs_after_everything_even_after_a_failure(compiled: Compiled) -> None:
    root = compiled[1]["root"]["dag"]["tasks"]
    assert root["settle"]["triggerPolicy"] == {"strategy": "ALL_UPSTREAM_TASKS_COMPLETED"}
    assert root["settle"]["dependentTasks"] == [name for name in root if name != "settle"]


@pytest.mark.parametrize("stage", STAGES)
def test_every_part_of_a_placement_comes_from_the_stages_own_router(stage: str, compiled: Compiled) -> None:
    _, pipeline, platform = compiled
    task = tasks(pipeline)[stage]
    router = next(name for name in task["dependentTasks"] if name.startswith("route"))
    container = pipeline["deploymentSpec"]["executors"][f"exec-{stage}"]["container"]
    for value in (
        container["resources"][name]
        for name in ("resourceCpuLimit", "resourceCpuRequest", "resourceMemoryLimit", "resourceMemoryRequest")
    ):
        assert f"pipelinechannel--{router}-" in value
    for value in (*container["resources"]["accelerator"].values(), container["image"]):
        assert f"pipelinechannel--{router}-" in value
    placed = executors(platform)[f"exec-{stage}"]
    assert placed["nodeSelector"]["nodeSelectorJson"]["taskOutputParameter"]["producerTask"] == router
    assert placed["tolerations"][0]["tolerationJson"]["taskOutputParameter"]["producerTask"] == router
    assert placed["nodeAffinity"][0]["nodeAffinityJson"]["taskOutputParameter"]["producerTask"] == router


def test_route_and_exit_steps_request_what_they_use_and_prefer_nodes_that_are_not_spot(
    compiled: Compiled,
) -> None:
    """No limit, and no preference names a pool. Where no node is on-demand, they run on any other."""
    _, pipeline, platform = compiled
    steps = [name for name in executors(platform) if name.startswith(("exec-route", "exec-settle"))]
    assert len(steps) == len(STAGES) + 1
    for name in steps:
        resources = pipeline["deploymentSpec"]["executors"][name]["container"]["resources"]
        assert (resources["resourceCpuRequest"], resources["resourceMemoryRequest"]) == ("250m", "320Mi")
        assert not [key for key in resources if "Limit" in key]
        (affinity,) = executors(platform)[name]["nodeAffinity"]
        assert affinity["weight"] == 100
        excluded = {each["key"]: each["values"] for each in affinity["matchExpressions"]}
        assert excluded == {label: [value] for label, value in (SPOT_LABELS | {MARKET_LABEL: "spot"}).items()}
        assert {each["operator"] for each in affinity["matchExpressions"]} == {"NotIn"}


def test_a_routers_outputs_have_the_types_that_the_driver_accepts(compiled: Compiled) -> None:
    outputs = compiled[1]["components"]["comp-route"]["outputDefinitions"]["parameters"]
    types = {name: output["parameterType"] for name, output in outputs.items()}
    assert types == {
        "node_selector": "STRUCT",
        "tolerations": "LIST",
        "affinity": "STRUCT",
        **dict.fromkeys(
            ("cpu", "memory", "accelerator", "accelerator_count", "image", "decision_key"), "STRING"
        ),
    }


def test_no_component_has_an_input_that_a_placement_overwrites(compiled: Compiled) -> None:
    taken = {
        "cpu_request",
        "cpu_limit",
        "memory_request",
        "memory_limit",
        "accelerator_type",
        "accelerator_count",
        "base_image",
    }
    for component in compiled[1]["components"].values():
        if "executorLabel" in component:
            assert not taken & set(component.get("inputDefinitions", {}).get("parameters", {}))
