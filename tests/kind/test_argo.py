"""Runs on a real cluster, by Argo Workflows: every stage where its router said, inside the budget, and the books by the pods' own times."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

import pytest
import yaml
from kind_cluster import ROOT, Kind, run
from on_argo import (
    RAIN,
    Ended,
    Going,
    Pods,
    decided,
    decision,
    file_of_world,
    kept,
    node_pools,
    paid_and_lived_usd,
    put_file,
    recipe,
    refused,
    soon,
    stage_pod,
    stop,
)

from shoestring.backends.local import WallClock
from shoestring.core.interfaces import Store
from shoestring.spending.audit.verify import load_anchors, verify
from shoestring.spending.heartbeat import heartbeat_key
from shoestring.spending.ledger.ledger import Ledger

pytestmark = pytest.mark.kind

STAGES = ("ingest", "preprocess", "train", "evaluate")
# Its training lasts about as long as the store is away.
LONG_RAIN = RAIN.replace("max_epochs: 2", "max_epochs: 50, patience: 100000")


@pytest.fixture(scope="module")
def flights(argo: Kind, store: Store, pods: Pods, own_run: Future[Ended]) -> Ended:
    ended = Going(argo, "flights", "--budget", "0.05", "--deadline", "900").end()
    assert ended.code == 0, ended.err
    return ended


def test_the_flights_run_ends_well_and_every_stage_ran_on_the_pool_that_its_decision_names(
    argo: Kind, store: Store, pods: Pods, flights: Ended
) -> None:
    summary, pools = flights.summary, node_pools(argo)
    assert (summary.status, [stage.name for stage in summary.stages]) == ("done", list(STAGES))
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


def test_its_report_and_receipts_are_in_the_object_store_and_its_ledger_verifies(
    store: Store, flights: Ended
) -> None:
    assert b"<html" in store.fetch(f"runs/{flights.run_id}/report.html").read_bytes()
    receipts = {key.rpartition("/")[2] for key in store.list(f"runs/{flights.run_id}/receipts/")}
    assert receipts == {f"{stage}-1.json" for stage in STAGES}
    assert verify(store, load_anchors(store)).as_text()


def test_what_was_settled_is_what_the_pods_own_times_come_to_within_a_hundredth(
    store: Store, pods: Pods, flights: Ended
) -> None:
    state = Ledger(store, WallClock(), "test").state(flights.run_id)
    assert state.closed and state.reservations == {}
    for stage in STAGES:
        (pod,) = pods.of_stage(flights.run_id, stage)
        paid_usd, lived_usd = paid_and_lived_usd(store, flights.run_id, stage, pod)
        assert abs(paid_usd - lived_usd) <= max(lived_usd / 100, Decimal("0.000001")), stage


def test_nothing_is_left_but_the_workflow_and_what_it_stored(argo: Kind, flights: Ended) -> None:
    def gone() -> bool | None:
        return (
            None if argo.get("pods", "--selector", f"shoestring.dev/run={flights.run_id}")["items"] else True
        )

    assert soon(gone, "the pods of a run that is over are deleted")
    assert not [
        each
        for each in argo.get("workflowtaskresults")["items"]
        if flights.run_id in each["metadata"]["name"]
    ]


def test_watching_a_run_that_is_over_tells_its_steps_and_its_summary(argo: Kind, flights: Ended) -> None:
    line = ["shoestring", "watch", flights.run_id, "--on", argo.context]
    said = subprocess.run([sys.executable, "-m", *line], cwd=ROOT, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    told = [text.split(":")[0] for text in said.stdout.splitlines()]
    assert told[:9] == [step for stage in STAGES for step in (f"route {stage}", stage)] + ["settle"]
    assert f"{flights.run_id}: done" in said.stdout


def test_a_budget_that_is_too_small_is_refused_in_seconds_and_leaves_nothing_pending(
    argo: Kind, rain: str
) -> None:
    ended = Going(argo, rain, "--budget", "0.000001").end()
    assert (ended.code, ended.summary.status) == (1, "refused")
    assert "is the smallest that would work" in ended.err
    workflow = argo.get("workflow", ended.run_id)
    pods = [node["displayName"] for node in workflow["status"]["nodes"].values() if node["type"] == "Pod"]
    assert sorted(name.partition(".")[2] or name for name in pods) == ["onExit(0)", "route"]
    argo.kubectl("delete", "workflow", ended.run_id)


def test_a_changed_price_moves_the_next_run(argo: Kind, store: Store, rain: str) -> None:
    with kept(argo, "prices") as (prices,):
        for row in prices["prices"]:
            row["usd_per_hour"] = "0.01" if row["pool"] == "cpu-on-demand" else row["usd_per_hour"]
        put_file(argo, "prices", yaml.safe_dump(prices))
        going = Going(argo, rain)
        made = decided(store, going, "ingest")
        assert made.choice and made.choice.pool.startswith("cpu-on-demand/")
        assert (
            node_pools(argo)[stage_pod(argo, going.run_id, "ingest")["spec"]["nodeName"]] == "cpu-on-demand"
        )
    ended = stop(argo, going)
    assert (ended.code, ended.summary.status) in ((1, "stopped"), (1, "failed"))
    assert Ledger(store, WallClock(), "test").state(going.run_id).reservations == {}


def test_a_cordoned_pool_is_left_out_and_the_decision_says_why(
    argo: Kind, store: Store, rain: str, leave: Callable[[Going], None]
) -> None:
    (spot,) = [name for name, pool in node_pools(argo).items() if pool == "cpu-spot"]
    argo.kubectl("cordon", spot)
    try:
        going = Going(argo, rain)
        made = decided(store, going, "ingest")
    finally:
        argo.kubectl("uncordon", spot)
    leave(going)
    assert made.choice and made.choice.pool.startswith("cpu-on-demand/")
    assert [sentence for sentence in refused(made) if "cpu-spot" in sentence and "cordoned" in sentence], (
        refused(made)
    )


@contextmanager
def frozen(kind: Kind) -> Iterator[None]:
    """The S3 server takes connections and answers nothing: its process is stopped, by the node that it runs on."""
    node = kind.get("pods", "--selector", "app.kubernetes.io/name=s3")["items"][0]["spec"]["nodeName"]
    process = run("docker", "exec", node, "pgrep", "--exact", "weed").strip()
    run("docker", "exec", node, "kill", "-STOP", process)
    try:
        yield
    finally:
        run("docker", "exec", node, "kill", "-CONT", process)


def test_a_training_whose_pod_is_deleted_goes_on_from_its_checkpoint_and_a_store_that_is_away_for_a_minute_loses_nothing(
    argo: Kind, store: Store, pods: Pods, tmp_path: Path
) -> None:
    going = Going(argo, recipe(tmp_path, LONG_RAIN))
    first = decided(store, going, "train")
    pod = stage_pod(argo, going.run_id, "train")
    checkpoint = f"runs/{going.run_id}/checkpoints/"
    soon(lambda: any(store.list(checkpoint)) or None, "a checkpoint of the training")
    argo.kubectl("delete", "pod", pod["metadata"]["name"])
    second = decided(store, going, "train", attempt=2)
    beat = heartbeat_key(going.run_id, str(second.question.attempt_id))
    soon(lambda: beat in store.list(f"runs/{going.run_id}/") or None, "a heartbeat of the second attempt")
    with frozen(argo):
        time.sleep(60)
    ended = going.end()
    assert ended.code == 0, ended.err
    assert {stage.name: stage.attempts for stage in ended.summary.stages} == dict.fromkeys(STAGES, 1) | {
        "train": 2
    }
    assert ended.summary.spent_usd <= ended.summary.budget_usd
    state = Ledger(store, WallClock(), "test").state(going.run_id)
    assert state.closed and state.reservations == {}
    verify(store, load_anchors(store))
    paid_usd, lived_usd = paid_and_lived_usd(
        store, going.run_id, "train", *pods.of_stage(going.run_id, "train")
    )
    # Nobody can read the times of a pod that is gone: what it paid before it left stands, `pod_exit_s` for its end included.
    assert first.choice
    leaving_usd = (
        yaml.safe_load(file_of_world(argo, "policy"))["pod_exit_s"] * first.choice.usd_per_hour / 3600
    )
    assert abs(paid_usd - lived_usd) <= lived_usd / 100 + leaving_usd
