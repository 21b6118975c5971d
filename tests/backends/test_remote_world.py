"""`--on CONTEXT`: a cluster's world, read from outside with rights to read only, on a real S3 server."""

from __future__ import annotations

import io
import json
import re
import threading
from pathlib import Path

import pytest
from remote_lab import NAMESPACE, RemoteLab
from s3_server import ADMIN, READER, environment

from shoestring.backends.folder_store import FolderStore
from shoestring.core import store_layout
from shoestring.core.record import record_bytes
from shoestring.runtime.records.run_setup import EngineJob


def test_commands_that_read_need_no_right_to_write_and_leave_nothing_behind(
    lab: RemoteLab, tmp_path: Path
) -> None:
    before, run, out = lab.objects(), lab.run_id, tmp_path / "out"
    month = next(path.name for path in (lab.finished.store / "ledger").glob("20??-??"))
    for line in (
        ("runs", "--json"),
        ("runs", "compare", run, run),
        ("explain", run, "--stage", "train"),
        ("replay", run),
        ("hindsight",),
        ("actuals",),
        ("ledger", "show", run),
        ("ledger", "heads"),
        ("ledger", "verify"),
        ("approvals",),
        ("policy", "show"),
        ("policy", "compare"),
        ("prices", "show"),
        ("export", "focus", "--month", month, "--out", out / "focus.csv"),
        ("watch", run),
    ):
        ran = lab.on(*line)
        assert ran.code == 0, f"{line}: {ran.out}{ran.err}"
    assert lab.objects() == before
    assert lab.kube.written == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kubeconfig", "out"]


def test_the_run_of_a_cluster_reads_as_it_does_where_it_ran(lab: RemoteLab) -> None:
    listed = [each["run_id"] for each in lab.finished.again("runs", "--json").json]
    assert [each["run_id"] for each in lab.on("runs", "--json").json] == listed
    here = lab.finished.again("ledger", "show", lab.run_id, "--json").json
    assert lab.on("ledger", "show", lab.run_id, "--json").json == here
    assert lab.on("explain", lab.run_id).out == lab.finished.again("explain", lab.run_id).out


def test_explaining_a_run_without_records_names_the_command_that_shows_its_workflow(lab: RemoteLab) -> None:
    ran = lab.on("explain", "refused-1")
    assert ran.code == 2 and "there is no run called 'refused-1'" in ran.err
    assert "has no records: shoestring watch refused-1 --on lab --namespace shoestring" in ran.err


def test_a_report_is_made_again_without_writing_to_the_store(lab: RemoteLab, tmp_path: Path) -> None:
    lab.s3.minio().remove_object(lab.location.bucket, f"{lab.location.root}runs/{lab.run_id}/report.html")
    before = lab.objects()
    model = FolderStore(lab.finished.store)
    for key in model.list("blobs/"):
        data = model.fetch(key).read_bytes()
        lab.s3.minio().put_object(lab.location.bucket, lab.location.root + key, io.BytesIO(data), len(data))
    ran = lab.on("report", lab.run_id, "--out", tmp_path / "out")
    assert ran.code == 0, ran.err
    assert lab.run_id in (tmp_path / "out" / "report.html").read_text()
    after = {key: version for key, version in lab.objects().items() if "/blobs/" not in key}
    assert after == before


def test_the_worlds_own_policy_and_prices_are_read(lab: RemoteLab) -> None:
    assert lab.on("policy", "show", "--json").json["policy"]["queue_delay_s"] == 60.0
    assert {each["pool"] for each in lab.on("prices", "show", "--json").json["prices"]} >= {"gpu/1gpu"}


def test_a_price_list_beside_the_prices_is_read_too(lab: RemoteLab) -> None:
    rows = "machine,market,usd_per_hour,as_of,source\ngpu,on-demand,0.70,2026-07-30,list\n"
    prices = "catalogues: [list.csv]\n"
    lab.kube.put(NAMESPACE, "configmaps", "shoestring-prices", data={"prices.yaml": prices, "list.csv": rows})
    ran = lab.on("policy", "show")
    assert ran.code == 0, ran.err


def test_another_namespace_is_named_with_namespace(lab: RemoteLab) -> None:
    lab.kube.objects.clear()
    lab.install("team")
    missing = lab.on("runs")
    assert missing.code == 2
    assert "there is no ConfigMap shoestring-world in namespace shoestring of lab" in missing.err
    assert "with --namespace" in missing.err
    assert lab.on("runs", "--namespace", "team").code == 0


def test_credentials_of_the_environment_need_no_right_to_read_the_secret(lab: RemoteLab) -> None:
    lab.kube.denied.append("/secrets/")
    refused = lab.on("runs")
    assert refused.code == 2
    assert "does not allow you to get secrets in namespace shoestring (" in refused.err
    assert "Role shoestring-store-reader of manifests/base/readers.yaml; or set" in refused.err
    assert "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in refused.err
    assert lab.on("runs", **environment(READER)).code == 0


def test_a_missing_secret_is_reported_with_the_alternative(lab: RemoteLab) -> None:
    del lab.kube.objects[f"/api/v1/namespaces/{NAMESPACE}/secrets/shoestring-s3"]
    ran = lab.on("runs")
    assert ran.code == 2
    assert "has no Secret shoestring-s3" in ran.err
    assert "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in ran.err


def test_a_plan_on_a_cluster_uses_its_pools_and_writes_nothing(lab: RemoteLab) -> None:
    before = lab.objects()
    ran = lab.on("plan", lab.finished.recipe, "--budget", "5", "--deadline", "86400", "--json")
    assert {stage["pool"].split("/")[0] for stage in ran.json["stages"]} <= {"cpu-spot", "gpu"}, ran.err
    assert ran.code == 0, ran.err
    assert ran.json["question"]["engine"]["engine"] == "argo"
    assert (lab.objects(), lab.kube.written) == (before, [])


def test_a_reaper_outside_the_cluster_reaps_the_namespace_that_it_is_given(lab: RemoteLab) -> None:
    ran = lab.on("reap", **environment(ADMIN))
    assert ran.code == 0, ran.err


def test_a_command_that_writes_asks_for_the_right_to(lab: RemoteLab) -> None:
    ran = lab.on("approve", lab.run_id, "--by", "Ann", "--usd", "1")
    assert ran.code == 1
    assert re.search(r"PUT .* access key 'reader' has no permission", ran.err)


@pytest.mark.parametrize(
    ("endpoint", "namespace"),
    [
        ("s3:8333", NAMESPACE),
        ("s3.storage.svc:8333", "storage"),
        ("s3.storage.svc.cluster.local:8333", "storage"),
        ("s3.storage:8333", "storage"),
    ],
)
def test_a_port_is_forwarded_to_a_store_that_is_a_service(
    lab: RemoteLab, relay: dict[str, str], endpoint: str, namespace: str
) -> None:
    lab.install(endpoint=endpoint)
    lab.kube.put("storage", "services", "s3")
    ran = lab.on("runs", "--json", **relay)
    assert lab.run_id in [each["run_id"] for each in ran.json], ran.err
    line = f"--context lab --namespace {namespace} port-forward --address 127.0.0.1"
    line += " --pod-running-timeout=20s service/s3 :8333"
    assert Path(relay["RELAY_LOG"]).read_text().splitlines() == [line]


def test_a_forwarded_port_that_breaks_is_opened_again(lab: RemoteLab, relay: dict[str, str]) -> None:
    lab.install(endpoint="s3:8333")
    ran = lab.on("runs", "compare", lab.run_id, lab.run_id, "--json", **relay, RELAY_BREAKS="1")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)
    first, second = Path(relay["RELAY_LOG"]).read_text().splitlines()
    assert first.endswith(" :8333")
    assert re.sub(r" \d+:8333$", " :8333", second) == first


def test_a_service_that_cannot_be_reached_is_reported_in_one_sentence(
    lab: RemoteLab, relay: dict[str, str], tmp_path: Path
) -> None:
    lab.install(endpoint="s3:404")
    ran = lab.on("runs", **relay)
    assert ran.code == 1
    assert "cannot forward a port to service s3 in namespace shoestring: error: Service s3" in ran.err
    without = lab.on("runs", PATH=str(tmp_path / "empty"))
    assert without.code == 1
    assert "kubectl, which forwards a port to it, is not installed: install it" in without.err


WORKFLOWS = f"/apis/argoproj.io/v1alpha1/namespaces/{NAMESPACE}/workflows"


def kubeflows_workflow(lab: RemoteLab, job: str, phase: str) -> None:
    """Create the Workflow that Kubeflow makes of its run `job`."""
    steps = {"a": {"type": "Pod", "name": "a", "displayName": "a", "startedAt": "1", "phase": phase}}
    meta = {"name": "train-x7", "uid": "u", "labels": {"pipeline/runid": job}, "creationTimestamp": "1"}
    status = {"phase": phase, "nodes": steps}
    lab.kube.objects[f"{WORKFLOWS}/train-x7"] = {"metadata": meta, "spec": {}, "status": status}


@pytest.mark.parametrize("name", ["0d3f-job", "train-x7"])
def test_a_run_of_kubeflow_is_watched_by_kubeflows_id_and_shows_our_stages(lab: RemoteLab, name: str) -> None:
    kubeflows_workflow(lab, "0d3f-job", "Succeeded")
    record = record_bytes(EngineJob(run_id=lab.run_id))
    key = lab.location.root + store_layout.job("0d3f-job")
    lab.s3.minio().put_object(lab.location.bucket, key, io.BytesIO(record), len(record))
    ran = lab.on("watch", name)
    assert ran.code == 0, ran.err
    stages = [line.split(":")[0] for line in ran.out.splitlines()]
    assert stages[:5] == ["ingest", "preprocess", "train", "evaluate", "overhead"]
    assert f"{lab.run_id}: done, " in ran.out


def test_a_run_whose_first_step_has_not_begun_is_waited_for(lab: RemoteLab) -> None:
    kubeflows_workflow(lab, lab.run_id, "Running")
    record = lab.location.root + store_layout.run_record(lab.run_id)
    minio, bucket = lab.s3.minio(), lab.location.bucket
    data = minio.get_object(bucket, record).read()
    minio.remove_object(bucket, record)
    written = threading.Timer(6.0, minio.put_object, (bucket, record, io.BytesIO(data), len(data)))
    written.start()
    ran = lab.on("watch", lab.run_id)
    written.join()
    assert ran.code == 0, ran.err
    assert f"{lab.run_id}: its first step has not begun" in ran.err
    assert f"{lab.run_id}: done, " in ran.out


def test_a_run_that_its_engine_ended_before_its_first_step_is_not_waited_for(lab: RemoteLab) -> None:
    kubeflows_workflow(lab, "0d3f-job", "Failed")
    ran = lab.on("watch", "0d3f-job")
    assert (ran.code, "0d3f-job ended before its first step began" in ran.err) == (1, True)


def test_a_run_that_neither_the_engine_nor_the_store_knows_is_bad_usage(lab: RemoteLab) -> None:
    lab.kube.denied.append("/workflows")
    ran = lab.on("watch", "nobody")
    assert (ran.code, "there is no run called 'nobody'" in ran.err, lab.run_id in ran.err) == (2, True, True)
