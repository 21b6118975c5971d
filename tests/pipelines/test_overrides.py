"""What a task takes after `routed()`, and what it refuses: what would change what its route step decided."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from kfp import compiler, dsl, kubernetes

from shoestring.cli.authoring.upload import read_pipeline
from shoestring.components.ingest import ingest
from shoestring.core.errors import UsageError
from shoestring.core.types import Need
from shoestring.pipelines import argo
from shoestring.pipelines.argo import workflow_template
from shoestring.pipelines.argo_templates import container_defaults
from shoestring.pipelines.kubeflow import write
from shoestring.pipelines.routed import RunParameters, routed, settle_step
from shoestring.pipelines.setters import REFUSED_SETTERS
from shoestring.stages.ingest import NEED as INGEST

RUN = RunParameters(world="", run_id="", recipe="", budget_usd="", deadline_s=0.0, seed=0)
STAGES = (INGEST, Need(stage="theirs", setup_s=2.0))
Change = Callable[[dsl.PipelineTask], Any]


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def echo(text: str) -> str:
    return text


@dsl.container_component
def say(text: str):  # type: ignore[no-untyped-def]
    return dsl.ContainerSpec("alpine:3.20", ["echo"], [text])


def changed(ours: Change = id, theirs: Change = id, component: Any = echo) -> Any:
    """Return a pipeline of a stage of Shoestring and one of its author, each changed after `routed()`."""

    @dsl.pipeline(name="changed")
    def pipeline() -> None:
        with dsl.ExitHandler(settle_step(RUN), name="spend"):
            first = routed(ingest, STAGES, RUN)
            ours(first)
            theirs(routed(component, STAGES[1:], RUN, upstream=first.outputs["Output"], text="hello"))

    return pipeline


@pytest.mark.parametrize("setter", REFUSED_SETTERS)
def test_what_a_route_step_decides_is_refused_by_the_task_with_its_name(setter: str) -> None:
    assert hasattr(dsl.PipelineTask, setter)

    def change(task: dsl.PipelineTask) -> None:
        getattr(task, setter)("1")

    with pytest.raises(UsageError, match=rf"^ingest: leave out {setter}\(\) after routed\(\): "):
        changed(ours=change)
    with pytest.raises(UsageError, match=rf"^theirs: leave out {setter}\(\) after routed\(\): "):
        changed(theirs=change)


def test_every_setter_of_a_task_is_refused_or_known_to_be_kept() -> None:
    """A version of KFP with a new setter is looked at before it is allowed."""
    setters = {name for name in dir(dsl.PipelineTask) if name.startswith(("set_", "add_", "ignore_"))}
    assert setters - {*REFUSED_SETTERS} == {"set_display_name", "set_env_variable", "set_debug_pause"}


PLACES: dict[str, Change] = {
    r"kubernetes.add_node_selector\(\)": lambda task: kubernetes.add_node_selector(task, "pool", "large"),
    r"kubernetes.add_toleration\(\)": lambda task: kubernetes.add_toleration(
        task, key="spot", operator="Exists", effect="NoSchedule"
    ),
    r"kubernetes.add_node_affinity\(\)": lambda task: kubernetes.add_node_affinity(
        task, match_expressions=[{"key": "zone", "operator": "In", "values": ["a"]}]
    ),
    r'kubernetes.add_pod_label\("shoestring.dev/stage", \.\.\.\)': lambda task: kubernetes.add_pod_label(
        task, "shoestring.dev/stage", "other"
    ),
}


@pytest.mark.parametrize("call", PLACES)
def test_a_place_that_kfps_extension_sets_is_refused_by_compile_and_upload(call: str, tmp_path: Path) -> None:
    sentence = rf"{call} after routed\(\) changes what its route step decides"
    for name, pipeline in (
        ("ingest", changed(ours=PLACES[call])),
        ("say", changed(theirs=PLACES[call], component=say)),
    ):
        path = tmp_path / f"{name}.yaml"
        with pytest.raises(UsageError, match=f"^{name}: {sentence}"):
            write(pipeline, path)
        with pytest.raises(UsageError, match=f"^{name}: {sentence}"):
            argo.write(pipeline, path)
        # KFP's own compiler knows nothing of it.
        compiler.Compiler().compile(pipeline, str(path))
        with pytest.raises(UsageError, match=f"^{name}: {sentence}"):
            read_pipeline(path)


def add_all(task: dsl.PipelineTask) -> None:
    task.set_env_variable("MODE", "fast").set_display_name("a name of their own")
    kubernetes.use_secret_as_env(task, "token", {"value": "TOKEN"})
    kubernetes.mount_pvc(task, "data", mount_path="/data")
    kubernetes.add_pod_label(task, "team", "vision")
    kubernetes.add_pod_annotation(task, "sidecar.istio.io/inject", "false")
    kubernetes.set_image_pull_policy(task, "Always")


def test_everything_else_stays(tmp_path: Path) -> None:
    spec, platform = yaml.safe_load_all(write(changed(add_all, add_all), tmp_path / "all.yaml").read_text())
    configs = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    tasks = spec["components"]["comp-exit-handler-1"]["dag"]["tasks"]
    for name in ("ingest", "echo"):
        container, config = (
            spec["deploymentSpec"]["executors"][f"exec-{name}"]["container"],
            configs[f"exec-{name}"],
        )
        assert {"name": "MODE", "value": "fast"} in container["env"]
        assert tasks[name]["taskInfo"]["name"] == "a name of their own"
        assert "token" in [each["secretName"] for each in config["secretAsEnv"]]
        assert [each["mountPath"] for each in config["pvcMount"]] == ["/data"]
        assert config["podMetadata"]["labels"]["team"] == "vision"
        assert config["podMetadata"]["annotations"] == {"sidecar.istio.io/inject": "false"}
        assert config["imagePullPolicy"] == "Always"


def test_everything_else_stays_on_argo(tmp_path: Path) -> None:
    def add_more(task: dsl.PipelineTask) -> None:
        add_all(task)
        kubernetes.use_secret_as_volume(task, "keys", "/keys", optional=True)
        kubernetes.use_config_map_as_env(task, "modes", {"key": "KEY"}, optional=True)
        kubernetes.use_config_map_as_volume(task, "modes", "/modes")
        kubernetes.use_field_path_as_env(task, "NODE", "spec.nodeName")
        kubernetes.empty_dir_mount(task, "scratch", "/cache", medium="Memory", size_limit="1Gi")
        kubernetes.set_image_pull_secrets(task, ["registry"])

    spec = workflow_template(changed(add_more, add_more, component=say))["spec"]
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    templates = {each["name"]: each for each in spec["templates"]}
    for name, common in (("ingest", container_defaults()), ("theirs", {"env": [], "volumeMounts": []})):
        template, container = templates[name], templates[name]["container"]
        assert template["metadata"]["labels"]["shoestring.dev/stage"] == name
        assert template["metadata"]["labels"]["team"] == "vision"
        assert template["metadata"]["annotations"] == {"sidecar.istio.io/inject": "false"}
        assert container["imagePullPolicy"] == "Always"
        assert container["env"] == [
            *common["env"],
            {"name": "MODE", "value": "fast"},
            variable("TOKEN", "secretKeyRef", name="token", key="value", optional=False),
            variable("KEY", "configMapKeyRef", name="modes", key="key", optional=True),
            variable("NODE", "fieldRef", fieldPath="spec.nodeName"),
        ]
        assert template["volumes"] == [
            {"name": "own-1", "secret": {"secretName": "keys", "optional": True}},
            {"name": "own-2", "configMap": {"name": "modes", "optional": False}},
            {"name": "own-3", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "own-4", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
        ]
        assert container["volumeMounts"] == [
            *common["volumeMounts"],
            *({"name": f"own-{number}", "mountPath": path} for number, path in enumerate(PATHS, 1)),
        ]
    assert "annotations" not in templates["route"]["metadata"]


PATHS = ("/keys", "/modes", "/data", "/cache")


def variable(name: str, kind: str, /, **source: Any) -> dict[str, Any]:
    return {"name": name, "valueFrom": {kind: source}}


@dsl.pipeline(name="alone")
def alone() -> None:
    routed(ingest, STAGES, RUN)


@dsl.pipeline(name="partly")
def partly() -> None:
    routed(echo, (Need(stage="theirs", setup_s=2.0, after=()),), RUN, text="hello")
    with dsl.ExitHandler(settle_step(RUN), name="spend"):
        routed(ingest, (INGEST,), RUN)


@pytest.mark.parametrize(("pipeline", "router"), [(alone, "route"), (partly, "route")])
def test_a_stage_that_no_exit_step_settles_is_neither_compiled_nor_uploaded(
    pipeline: Any, router: str, tmp_path: Path
) -> None:
    path, sentence = tmp_path / "alone.yaml", f"^{router} reserves money, and no exit step settles it: put"
    with pytest.raises(UsageError, match=sentence):
        write(pipeline, path)
    compiler.Compiler().compile(pipeline, str(path))
    with pytest.raises(UsageError, match=sentence):
        read_pipeline(path)


def test_the_exit_steps_of_nested_pipelines_settle_their_stages_and_not_those_of_others(
    tmp_path: Path,
) -> None:
    @dsl.pipeline(name="inner")
    def inner() -> None:
        with dsl.ExitHandler(settle_step(RUN), name="spend"):
            routed(ingest, STAGES, RUN)
            routed(echo, (Need(stage="inner", setup_s=2.0),), RUN, text="hello")

    @dsl.pipeline(name="outer")
    def outer() -> None:
        inner()
        # KFP gives both route steps one name, as they are in two pipelines.
        with dsl.ExitHandler(settle_step(RUN), name="spend"):
            routed(echo, (Need(stage="outer", setup_s=2.0),), RUN, text="hello")

    assert read_pipeline(write(outer, tmp_path / "outer.yaml")) == ("outer", False)
