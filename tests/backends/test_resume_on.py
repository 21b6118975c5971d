"""`run --resume RUN --on CONTEXT`: the Workflow of a run on Argo is created again, under the run's id."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from commands import SMALL_RECIPE
from minio.commonconfig import CopySource
from remote_lab import NAMESPACE, RemoteLab

from shoestring.core import store_layout
from shoestring.core.record import record_bytes
from shoestring.runtime.records.run_setup import EngineJob

ARGO = f"/apis/argoproj.io/v1alpha1/namespaces/{NAMESPACE}"
GIVEN = {"run_id": "mine", "recipe": "{}", "budget_usd": "0.001", "deadline_s": "300.0", "seed": "7"}


def add_template(lab: RemoteLab, name: str = "shoestring-train") -> None:
    lab.kube.objects[f"{ARGO}/workflowtemplates/{name}"] = {"metadata": {"name": name}}


def status_with_summary(lab: RemoteLab, phase: str = "Succeeded") -> dict[str, Any]:
    """Return the status of a Workflow whose exit step wrote the summary of the lab's run."""
    written = {"parameters": [{"name": "summary", "value": lab.finished.ran.out}]}
    step = {"type": "Pod", "name": "end", "displayName": "settle(0)", "templateName": "settle"}
    return {"phase": phase, "nodes": {"end": step | {"startedAt": "1", "phase": phase, "outputs": written}}}


def add_workflow(lab: RemoteLab, name: str, status: dict[str, Any], hour: int = 1, **given: str) -> None:
    meta = {"name": name, "uid": f"uid-{name}", "creationTimestamp": f"2026-11-23T{hour:02d}:00:00Z"}
    listed = [{"name": key, "value": value} for key, value in (GIVEN | given).items()]
    spec = {"workflowTemplateRef": {"name": "shoestring-train"}, "arguments": {"parameters": listed}}
    lab.kube.objects[f"{ARGO}/workflows/{name}"] = {"metadata": meta, "spec": spec, "status": status}


def created(lab: RemoteLab, *before: str) -> dict[str, Any]:
    """Return the one Workflow that was created since `before`."""
    names = [path for path in lab.kube.objects if path.startswith(f"{ARGO}/workflows/")]
    (new,) = [path for path in names if path.rpartition("/")[2] not in before]
    return lab.kube.objects[new]


def parameters_of(workflow: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["value"] for each in workflow["spec"]["arguments"]["parameters"]}


def test_a_run_that_failed_is_started_again_under_its_id_with_what_it_was_given(lab: RemoteLab) -> None:
    add_template(lab)
    add_workflow(lab, "mine", {"phase": "Failed"})
    lab.kube.new_status = status_with_summary(lab)
    ran = lab.on("run", "--resume", "mine", "--budget", "0.002", "--deadline", "600")
    assert ran.code == 0, ran.err
    assert "mine has started and continues without this command" in ran.err
    assert f"{lab.run_id}: done, " in ran.out
    new = created(lab, "mine")
    assert new["metadata"]["name"].startswith("mine-")
    assert new["spec"]["workflowTemplateRef"] == {"name": "shoestring-train"}
    assert parameters_of(new) == GIVEN | {"budget_usd": "0.002000", "deadline_s": "600.0"}


def test_argo_finds_no_template_in_the_recipe_of_a_run(lab: RemoteLab) -> None:
    add_template(lab)
    lab.kube.new_status = status_with_summary(lab)
    recipe = lab.folder / "mine.yaml"
    missing = "read: {missing: ['{{workflow.name}}', '{{=1+1}}']}"
    recipe.write_text(SMALL_RECIPE.replace("planes.csv}", f"planes.csv, {missing}}}"))
    ran = lab.on("run", str(recipe))
    assert ran.code == 0, ran.err
    sent = parameters_of(created(lab))["recipe"]
    read = json.loads(sent)["source"]["planes"]["read"]
    assert "{{" not in sent and read["missing"] == ["{{workflow.name}}", "{{=1+1}}"]


def test_a_run_of_another_template_is_started_again_from_it(lab: RemoteLab) -> None:
    add_template(lab, "own")
    add_workflow(lab, "first-of-own", {"phase": "Error"})
    found = lab.kube.objects[f"{ARGO}/workflows/first-of-own"]
    found["spec"]["workflowTemplateRef"] = {"name": "own"}
    lab.kube.new_status = status_with_summary(lab)
    assert lab.on("run", "--resume", "mine").code == 0
    new = created(lab, "first-of-own")
    assert (new["spec"]["workflowTemplateRef"], parameters_of(new)) == ({"name": "own"}, GIVEN)


def test_a_run_without_an_id_of_its_own_is_started_again_under_its_workflows_uid(lab: RemoteLab) -> None:
    add_template(lab)
    add_workflow(lab, "submitted", {"phase": "Failed"}, run_id="")
    lab.kube.new_status = status_with_summary(lab)
    assert lab.on("run", "--resume", "uid-submitted").code == 0
    assert parameters_of(created(lab, "submitted"))["run_id"] == "uid-submitted"


def test_a_run_that_still_runs_is_not_started_twice(lab: RemoteLab) -> None:
    add_workflow(lab, "mine", {"phase": "Failed"}, hour=1)
    add_workflow(lab, "mine-again", {"phase": "Running"}, hour=2)
    ran = lab.on("run", "--resume", "mine")
    assert ran.code == 2
    assert "mine is still running, as Workflow mine-again: follow it with shoestring watch mine" in ran.err
    assert lab.kube.written == []


def test_a_run_that_is_done_is_not_started_again(lab: RemoteLab) -> None:
    add_workflow(lab, "mine", status_with_summary(lab))
    ran = lab.on("run", "--resume", "mine")
    assert (ran.code, lab.kube.written) == (0, [])
    assert "mine is done: nothing was started, and nothing was spent" in ran.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--seed", "8"), "was started with seed 7: a resumed run keeps its seed"),
        (("--campaign", "spring"), "--campaign applies to new runs only"),
        (("--out", "o"), "--out applies to runs on this machine"),
    ],
)
def test_what_a_resumed_run_keeps_cannot_be_given_again(
    lab: RemoteLab, options: tuple[str, ...], message: str
) -> None:
    add_workflow(lab, "mine", {"phase": "Failed"})
    ran = lab.on("run", "--resume", "mine", *options)
    assert (ran.code, message in ran.err, lab.kube.written) == (2, True, [])


def test_a_run_of_kubeflow_is_resumed_by_uploading_it(lab: RemoteLab) -> None:
    add_workflow(lab, "train-x7", {"phase": "Failed"})
    meta = lab.kube.objects[f"{ARGO}/workflows/train-x7"]["metadata"]
    meta["labels"] = {"pipeline/runid": "0d3f-job"}
    ran = lab.on("run", "--resume", "0d3f-job")
    assert ran.code == 2
    assert "resume it with `shoestring upload --run --run-id 0d3f-job`" in ran.err
    record = record_bytes(EngineJob(run_id=lab.run_id))
    key = lab.location.root + store_layout.job("0d3f-job")
    lab.s3.minio().put_object(lab.location.bucket, key, io.BytesIO(record), len(record))
    assert f"--run-id {lab.run_id}`" in lab.on("run", "--resume", "0d3f-job").err


def test_a_run_whose_workflow_was_deleted_is_started_again_from_its_records(lab: RemoteLab) -> None:
    add_template(lab)
    lab.kube.new_status = status_with_summary(lab)
    done = lab.on("run", "--resume", lab.run_id)
    assert (done.code, f"{lab.run_id} is done: there is nothing to resume" in done.err) == (2, True)
    for kind in ("receipts", "heartbeats"):
        lost = f"{lab.location.root}runs/{lab.run_id}/{kind}/evaluate-1.json"
        lab.s3.minio().remove_object(lab.location.bucket, lost)
    key = lab.location.root + store_layout.run_record(lab.run_id)
    record = lab.s3.minio().get_object(lab.location.bucket, key).read().replace(b'"air_time"', b'"{{=1+1}}"')
    lab.s3.minio().put_object(lab.location.bucket, key, io.BytesIO(record), len(record))
    ran = lab.on("run", "--resume", lab.run_id)
    assert ran.code == 0, ran.err
    given = parameters_of(created(lab))
    assert given["run_id"] == lab.run_id
    assert (given["seed"], given["budget_usd"]) == ("7", "0.002500")
    assert '"slice"' in given["recipe"] and "{{" not in given["recipe"]
    assert "{{=1+1}}" in json.loads(given["recipe"])["leaks"]


def test_a_run_without_a_summary_ends_with_the_reason_of_its_route_step(lab: RemoteLab) -> None:
    told = {"route": "no run of slice in this store was evaluated", "settle": "the store does not answer"}
    failed = {
        "type": "Pod",
        "phase": "Failed",
        "inputs": {"parameters": [{"name": "stage", "value": "predict"}]},
    }
    steps = {
        name: failed
        | dict.fromkeys(("name", "displayName", "templateName"), name)
        | {"startedAt": at, "message": said}
        for at, (name, said) in zip("12", told.items(), strict=True)
    }
    add_workflow(lab, "mine", {"phase": "Failed", "nodes": steps})
    ran = lab.on("watch", "mine")
    assert ran.code == 1
    assert ran.err.strip().endswith(f"wrote no summary: route predict: failed: {told['route']}")
    del steps["route"]
    assert f"wrote no summary: settle: failed: {told['settle']}" in lab.on("watch", "mine").err


def test_a_run_that_its_first_route_step_refused_to_begin_has_one_reason(lab: RemoteLab) -> None:
    why = "no run of slice in this store was evaluated"
    empty = {"parameters": [{"name": "summary", "value": ""}]}
    route = {"templateName": "route", "phase": "Failed", "message": why, "startedAt": "1"}
    route["inputs"] = {"parameters": [{"name": "stage", "value": "predict"}]}
    settle = {"templateName": "settle", "phase": "Succeeded", "outputs": empty, "startedAt": "2"}
    nodes = {
        each["templateName"]: {
            "type": "Pod",
            "name": each["templateName"],
            "displayName": each["templateName"],
        }
        | each
        for each in (route, settle)
    }
    add_workflow(lab, "mine", {"phase": "Failed", "nodes": nodes})
    ran = lab.on("watch", "mine")
    assert (ran.code, ran.out.splitlines()) == (1, [f"route predict: failed: {why}", "settle: succeeded"])
    assert ran.err.strip().endswith(f"mine ended as Failed: route predict: failed: {why}")


def test_a_prediction_whose_workflow_was_deleted_is_started_again_as_one(lab: RemoteLab) -> None:
    add_template(lab, "shoestring-predict")
    lab.kube.new_status = status_with_summary(lab)
    bucket, root = lab.location.bucket, lab.location.root
    for kind in ("receipts", "heartbeats"):
        lab.s3.minio().remove_object(bucket, f"{root}runs/{lab.run_id}/{kind}/evaluate-1.json")
    made, routed = (
        f"{root}{store_layout.decision(lab.run_id, f'{stage}-1')}" for stage in ("train", "predict")
    )
    lab.s3.minio().copy_object(bucket, routed, CopySource(bucket, made))
    ran = lab.on("run", "--resume", lab.run_id)
    assert ran.code == 0, ran.err
    assert created(lab)["spec"]["workflowTemplateRef"] == {"name": "shoestring-predict"}


def test_the_newest_workflow_of_a_run_is_watched(lab: RemoteLab) -> None:
    add_workflow(lab, "mine", {"phase": "Failed"}, hour=1)
    add_workflow(lab, "mine-again", status_with_summary(lab), hour=2)
    ran = lab.on("watch", "mine")
    assert ran.code == 0, ran.err
    assert "settle: succeeded" in ran.out
    first = lab.on("watch", "uid-mine")
    assert (first.code, "mine ended as Failed" in first.err) == (1, True)
