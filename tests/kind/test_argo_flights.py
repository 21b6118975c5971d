"""Runs on a real cluster with Argo Workflows: each stage on its chosen pool, within the budget, settled by
its pod's times.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

import pytest
import yaml
from argo_runs import (
    EndedRun,
    PodHistory,
    StartedRun,
    decision,
    node_pools,
    paid_and_lived_usd,
    read_world_file,
    refusals_of,
    restored_files,
    stage_pod,
    stop_run,
    wait_for,
    wait_for_decision,
    write_recipe,
    write_world_file,
)
from engine_scenarios.recipes import LONG_RAIN
from kind_cluster import ROOT, Kind, run

from shoestring.backends.local import WallClock
from shoestring.core import store_layout
from shoestring.core.interfaces import Store
from shoestring.core.receipt import Receipt
from shoestring.data.run_records import read_record
from shoestring.spending.audit.verify import load_anchors, verify
from shoestring.spending.ledger.ledger import Ledger

pytestmark = pytest.mark.kind

STAGES = ("ingest", "preprocess", "train", "evaluate")


def test_the_flights_run_succeeds_and_every_stage_ran_on_its_chosen_pool(
    argo: Kind, store: Store, pods: PodHistory, flights: EndedRun
) -> None:
    summary, pools = flights.summary, node_pools(argo)
    assert (summary.status, [stage.name for stage in summary.stages]) == ("done", list(STAGES))
    keys = store.list(store_layout.receipts(flights.run_id))
    receipts = {key.rpartition("/")[2]: read_record(store, key, Receipt) for key in keys}
    ends = {name: (receipt.cause, receipt.reason) for name, receipt in receipts.items()}
    assert ends == {f"{stage}-1.json": ("", "") for stage in STAGES}
    assert summary.quality["log_loss"] < summary.quality["log_loss_class_prior"]
    for stage in STAGES:
        (pod,) = pods.of_stage(flights.run_id, stage)
        made = decision(store, flights.run_id, stage)
        assert made.choice and made.placement
        assert f"{pools[pod['spec']['nodeName']]}/{made.placement.cpu}" == made.choice.pool
        (main,) = [container for container in pod["spec"]["containers"] if container["name"] == "main"]
        assert main["resources"]["requests"] == main["resources"]["limits"]
        assert (main["resources"]["limits"]["cpu"], main["image"]) == (
            made.placement.cpu,
            made.placement.image,
        )
        assert pod["spec"]["nodeSelector"] == made.placement.node_selector


def test_its_report_is_in_the_store_and_its_ledger_verifies(store: Store, flights: EndedRun) -> None:
    assert b"<html" in store.fetch(f"runs/{flights.run_id}/report.html").read_bytes()
    assert verify(store, load_anchors(store)).as_text()


def test_the_settled_amounts_equal_the_cost_of_the_pods_lifetimes_within_1_percent(
    store: Store, pods: PodHistory, flights: EndedRun
) -> None:
    state = Ledger(store, WallClock(), "test").state(flights.run_id)
    assert state.closed and state.reservations == {}
    for stage in STAGES:
        (pod,) = pods.of_stage(flights.run_id, stage)
        paid_usd, lived_usd = paid_and_lived_usd(store, flights.run_id, stage, pod)
        assert abs(paid_usd - lived_usd) <= max(lived_usd / 100, Decimal("0.000001")), stage


def test_only_the_workflow_and_its_stored_records_remain(argo: Kind, flights: EndedRun) -> None:
    def gone() -> bool | None:
        return (
            None if argo.get("pods", "--selector", f"shoestring.dev/run={flights.run_id}")["items"] else True
        )

    assert wait_for(gone, "the pods of a run that is over are deleted")
    assert not [
        each
        for each in argo.get("workflowtaskresults")["items"]
        if flights.run_id in each["metadata"]["name"]
    ]


def test_watching_a_finished_run_shows_its_steps_and_its_summary(argo: Kind, flights: EndedRun) -> None:
    line = ["shoestring", "watch", flights.run_id, "--on", argo.context]
    said = subprocess.run([sys.executable, "-m", *line], cwd=ROOT, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    told = [text.split(":")[0] for text in said.stdout.splitlines()]
    assert told[:9] == [step for stage in STAGES for step in (f"route {stage}", stage)] + ["settle"]
    assert f"{flights.run_id}: done" in said.stdout


def test_a_budget_that_is_too_small_is_refused_in_seconds_with_nothing_pending(argo: Kind, rain: str) -> None:
    ended = StartedRun(argo, rain, "--budget", "0.000001").wait()
    assert (ended.code, ended.summary.status) == (1, "refused")
    assert "the smallest budget that is enough is $" in ended.err
    workflow = argo.get("workflow", ended.run_id)
    pods = [node["displayName"] for node in workflow["status"]["nodes"].values() if node["type"] == "Pod"]
    assert sorted(name.partition(".")[2] or name for name in pods) == ["onExit(0)", "route"]
    argo.kubectl("delete", "workflow", ended.run_id)


def test_a_changed_price_changes_the_pool_of_the_next_run(argo: Kind, store: Store, rain: str) -> None:
    with restored_files(argo, "prices") as (prices,):
        for row in prices["prices"]:
            row["usd_per_hour"] = "0.01" if row["pool"] == "cpu-on-demand" else row["usd_per_hour"]
        write_world_file(argo, "prices", yaml.safe_dump(prices))
        started = StartedRun(argo, rain)
        made = wait_for_decision(store, started, "ingest")
        assert made.choice and made.choice.pool.startswith("cpu-on-demand/")
        assert (
            node_pools(argo)[stage_pod(argo, started.run_id, "ingest")["spec"]["nodeName"]] == "cpu-on-demand"
        )
    ended = stop_run(argo, started)
    assert (ended.code, ended.summary.status) in ((1, "stopped"), (1, "failed"))
    assert Ledger(store, WallClock(), "test").state(started.run_id).reservations == {}


def test_a_cordoned_pool_is_refused_with_the_reason(
    argo: Kind, store: Store, rain: str, stop_later: Callable[[StartedRun], None]
) -> None:
    (spot,) = [name for name, pool in node_pools(argo).items() if pool == "cpu-spot"]
    argo.kubectl("cordon", spot)
    try:
        started = StartedRun(argo, rain)
        made = wait_for_decision(store, started, "ingest")
    finally:
        argo.kubectl("uncordon", spot)
    stop_later(started)
    assert made.choice and made.choice.pool.startswith("cpu-on-demand/")
    assert [
        sentence for sentence in refusals_of(made) if "cpu-spot" in sentence and "cordoned" in sentence
    ], refusals_of(made)


@contextmanager
def frozen_s3(kind: Kind) -> Iterator[None]:
    """Stop the S3 server's process on its node, so that it accepts connections but does not answer."""
    node = kind.get("pods", "--selector", "app.kubernetes.io/name=s3")["items"][0]["spec"]["nodeName"]
    process = run("docker", "exec", node, "pgrep", "--exact", "weed").strip()
    run("docker", "exec", node, "kill", "-STOP", process)
    try:
        yield
    finally:
        run("docker", "exec", node, "kill", "-CONT", process)


@pytest.mark.nightly
def test_a_training_resumes_after_its_pod_is_deleted_and_survives_a_store_outage_of_a_minute(
    argo: Kind, store: Store, pods: PodHistory, tmp_path: Path
) -> None:
    started = StartedRun(argo, write_recipe(tmp_path, LONG_RAIN))
    first = wait_for_decision(store, started, "train")
    pod = stage_pod(argo, started.run_id, "train")
    checkpoint = f"runs/{started.run_id}/checkpoints/"
    wait_for(lambda: any(store.list(checkpoint)) or None, "a checkpoint of the training")
    argo.kubectl("delete", "pod", pod["metadata"]["name"])
    second = wait_for_decision(store, started, "train", attempt=2)
    beat = store_layout.heartbeat(started.run_id, str(second.question.attempt_id))
    wait_for(
        lambda: beat in store.list(f"runs/{started.run_id}/") or None, "a heartbeat of the second attempt"
    )
    with frozen_s3(argo):
        time.sleep(60)
    ended = started.wait()
    assert ended.code == 0, ended.err
    assert {stage.name: stage.attempts for stage in ended.summary.stages} == dict.fromkeys(STAGES, 1) | {
        "train": 2
    }
    assert ended.summary.spent_usd <= ended.summary.budget_usd
    state = Ledger(store, WallClock(), "test").state(started.run_id)
    assert state.closed and state.reservations == {}
    verify(store, load_anchors(store))
    paid_usd, lived_usd = paid_and_lived_usd(
        store, started.run_id, "train", *pods.of_stage(started.run_id, "train")
    )
    # The times of a deleted pod cannot be read: its last payment stands, with `pod_exit_s` for its end.
    assert first.choice
    exit_usd = (
        yaml.safe_load(read_world_file(argo, "policy"))["pod_exit_s"] * first.choice.usd_per_hour / 3600
    )
    assert abs(paid_usd - lived_usd) <= lived_usd / 100 + exit_usd
