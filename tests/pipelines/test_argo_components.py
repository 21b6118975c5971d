"""Components of other authors on Argo: their container as it is, and the reasons why one stays Kubeflow's."""

import json
from collections.abc import Callable
from typing import Any, Optional

import pytest
from engine_scenarios.authored.with_exit_step import with_exit_step
from kfp import dsl, kubernetes

from shoestring.components.ingest import ingest
from shoestring.core.errors import UsageError
from shoestring.core.types import Need
from shoestring.pipelines.argo import template_warnings, workflow_template
from shoestring.pipelines.routed import RunParameters, routed
from shoestring.stages import ingest as ingest_stage

CHAIN = (ingest_stage.NEED, Need(stage="count", setup_s=1.0), Need(stage="tell", setup_s=1.0))


@dsl.container_component
def count(
    text: str,
    times: int,
    strict: bool,
    said: dsl.OutputPath(str),
    note: str = "a note",
    unused: Optional[str] = None,  # noqa: UP045
):  # type: ignore
    return dsl.ContainerSpec(
        "alpine:3.20",
        ["sh", "-c", 'echo "$0" > "$1"'],
        [
            text,
            said,
            dsl.ConcatPlaceholder(["--times=", times]),
            dsl.IfPresentPlaceholder("note", then=["--note", note], else_=["--no-note"]),
            dsl.IfPresentPlaceholder("unused", then=["--unused", unused], else_=["--nothing"]),
            strict,
        ],
    )


@dsl.container_component
def tell(word: str):  # type: ignore[no-untyped-def]
    return dsl.ContainerSpec("busybox:1.36", ["echo"], [word])


def build(run: RunParameters) -> None:
    key = routed(ingest, CHAIN, run).outputs["Output"]
    counted = routed(count, CHAIN[1:], run, upstream=key, text=key, times=3, strict=True)
    counted.set_env_variable("COLOUR", "blue")
    routed(tell, CHAIN[2:], run, upstream=key, word=f"{counted.outputs['said']} of {run.run_id}")


@pytest.fixture(scope="module")
def spec() -> Any:
    return workflow_template(with_exit_step("with-components", build))["spec"]


def template(spec: Any, name: str) -> Any:
    return next(each for each in spec["templates"] if each["name"] == name)


def values(parameters: list[Any]) -> dict[str, str]:
    return {each["name"]: each.get("value", "") for each in parameters}


def test_a_container_keeps_its_image_command_and_environment_and_reads_its_inputs_by_name(spec: Any) -> None:
    container = template(spec, "count")["container"]
    assert container == {
        "image": "alpine:3.20",
        "command": ["sh", "-c", 'echo "$0" > "$1"'],
        "args": [
            "{{inputs.parameters.input-text}}",
            "/shoestring/outputs/said",
            "--times={{inputs.parameters.input-times}}",
            "--note",
            "{{inputs.parameters.input-note}}",
            "--nothing",
            "{{inputs.parameters.input-strict}}",
        ],
        "env": [{"name": "COLOUR", "value": "blue"}],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "scratch", "mountPath": "/shoestring/outputs"}],
    }


def test_the_run_passes_keys_outputs_constants_and_its_own_parameters(spec: Any) -> None:
    tasks = {task["name"]: task for task in template(spec, "run")["dag"]["tasks"]}
    key = "{{tasks.ingest.outputs.parameters.key}}"
    assert values(tasks["count"]["arguments"]["parameters"]) == {
        "upstream": key,
        "input-text": key,
        "input-times": "3",
        "input-strict": "true",
        "input-note": "a note",
    }
    assert values(tasks["tell"]["arguments"]["parameters"]) == {
        "upstream": key,
        "input-word": "{{tasks.count.outputs.parameters.said}} of {{workflow.parameters.run_id}}",
    }
    assert (tasks["count"]["depends"], tasks["tell"]["depends"]) == ("ingest", "count && ingest")


def test_its_outputs_are_read_from_files_and_leave_the_pair_of_route_and_stage(spec: Any) -> None:
    (said,) = template(spec, "count")["outputs"]["parameters"]
    assert said == {"name": "said", "valueFrom": {"path": "/shoestring/outputs/said"}}
    (passed,) = template(spec, "count-routed")["outputs"]["parameters"]
    assert passed == {"name": "said", "valueFrom": {"parameter": "{{tasks.stage.outputs.parameters.said}}"}}
    assert template(spec, "tell-routed")["outputs"] == {"parameters": []}


def test_its_router_knows_the_data_and_that_nothing_meters_it_and_the_pair_is_not_retried(spec: Any) -> None:
    pair = template(spec, "count-routed")
    route, stage = pair["dag"]["tasks"]
    given = values(route["arguments"]["parameters"])
    assert given["upstream"] == "{{inputs.parameters.upstream}}" and given["side_input"] == ""
    needs = json.loads(given["needs"])
    assert (needs["metered"], needs["engine"], needs["needs"][0]["stage"]) == (False, "argo", "count")
    assert values(stage["arguments"]["parameters"])["patch"] == "{{tasks.route.outputs.parameters.patch}}"
    assert "retryStrategy" not in pair and "retryStrategy" in template(spec, "ingest-routed")
    assert template(spec, "count")["podSpecPatch"] == "{{inputs.parameters.patch}}"


def test_its_pod_gets_no_credentials_and_the_labels_by_which_it_is_found(spec: Any) -> None:
    assert "templateDefaults" not in spec
    count_, ours = template(spec, "count"), template(spec, "ingest")
    assert count_["metadata"]["labels"] == {
        "shoestring.dev/stage": "count",
        "shoestring.dev/run": "{{workflow.parameters.run_id}}",
    }
    named = {each["name"] for each in ours["container"]["env"]}
    assert "AWS_SECRET_ACCESS_KEY" in named and ours["container"]["command"] == ["shoestring"]


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def python_component(text: str) -> str:
    return text


@dsl.container_component
def with_artifact(text: str, made: dsl.Output[dsl.Artifact]):  # type: ignore[no-untyped-def]
    return dsl.ContainerSpec("alpine:3.20", ["touch"], [made.path, text])


@dsl.container_component
def named_job(text: str):  # type: ignore[no-untyped-def]
    return dsl.ContainerSpec("alpine:3.20", ["echo"], [text, dsl.PIPELINE_JOB_NAME_PLACEHOLDER])


ONE = (Need(stage="count", setup_s=1.0),)


def with_claim_of_a_run(run: RunParameters) -> None:
    kubernetes.add_ephemeral_volume(routed(tell, ONE, run, word="x"), "own", "/own", ["ReadWriteOnce"], "1Gi")


def with_secret_of_a_run(run: RunParameters) -> None:
    kubernetes.use_secret_as_env(routed(tell, ONE, run, word="x"), run.run_id, {"key": "KEY"})


def reading_the_world(run: RunParameters) -> None:
    routed(tell, ONE, run, word=run.world)


def with_what_is_not_routed(run: RunParameters) -> None:
    tell(word="x")
    routed(tell, ONE, run, word="y")


@pytest.mark.parametrize(
    ("stages", "sentence"),
    [
        (
            lambda run: routed(python_component, ONE, run, text="x"),
            "python-component: it is a Python component",
        ),
        (lambda run: routed(with_artifact, ONE, run, text="x"), r"with-artifact has artifacts \(made\)"),
        (lambda run: routed(named_job, ONE, run, text="x"), r"uses \{\{\$.pipeline_job_name\}\}"),
        (with_claim_of_a_run, "tell sets genericEphemeralVolume, which only Kubeflow gives its pod"),
        (with_secret_of_a_run, "tell takes a secretName from an input, which only Kubeflow gives its pod"),
        (reading_the_world, "tell reads world, and on Argo a run has only recipe, run_id"),
        (with_what_is_not_routed, "tell is not routed, and Argo runs routed stages only: route it"),
    ],
)
def test_what_only_kubeflow_can_run_is_refused_with_the_reason(
    stages: Callable[[RunParameters], None], sentence: str
) -> None:
    with pytest.raises(UsageError, match=sentence):
        workflow_template(with_exit_step("with-components", stages))


@pytest.mark.parametrize(
    ("word", "template"),
    [("{{workflow.name}} ran", "{{workflow.name}}"), ("2{{=1+1}}", "{{=1+1}}"), ('{"a": {{', "{{")],
)
def test_text_of_a_container_in_which_argo_finds_a_template_is_named(word: str, template: str) -> None:
    def with_input(run: RunParameters) -> None:
        routed(tell, ONE, run, word=word)

    def with_variable(run: RunParameters) -> None:
        routed(tell, ONE, run, word="x").set_env_variable("TEXT", word)

    def with_word(run: RunParameters) -> None:
        routed(dsl.container_component(worded), ONE, run)

    def worded():  # type: ignore[no-untyped-def]
        return dsl.ContainerSpec("alpine:3.20", ["echo", word])

    for stages in (with_input, with_variable, with_word):
        (sentence,) = template_warnings(with_exit_step("with-components", stages))
        assert f"Argo takes {template} in" in sentence and "of count for a template" in sentence
    assert template_warnings(with_exit_step("with-components", build)) == []
