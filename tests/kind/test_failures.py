"""Failures on a cluster: a run ends well on another pool or later, and its ledger verifies."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from argo_runs import (
    POOL_LABEL,
    RAIN,
    RUN_LABEL,
    STAGE_LABEL,
    PodHistory,
    StartedRun,
    compiled,
    decision,
    node_pools,
    read_world_file,
    reap_now,
    refusals_of,
    restored_files,
    stage_pod,
    stop_run,
    wait_for,
    wait_for_decision,
    write_recipe,
    write_world_file,
)
from kind_cluster import Kind, a_pod

from shoestring.backends.local import WallClock
from shoestring.config.world import IMAGES
from shoestring.core.interfaces import Store
from shoestring.core.receipt import Receipt
from shoestring.data.run_records import read_record
from shoestring.routing.question import stage_memory_gb
from shoestring.spending.audit.verify import load_anchors, verify
from shoestring.spending.ledger.ledger import Ledger

pytestmark = pytest.mark.kind


def check_ledger(store: Store, run_id: str) -> None:
    state = Ledger(store, WallClock(), "test").state(run_id)
    assert state.closed and state.reservations == {}
    verify(store, load_anchors(store))


def reap_when_late(kind: Kind, started: StartedRun, late_s: float) -> None:
    """Reap at once, without waiting for the reaper, when the pod of ingest is `late_s` old."""
    pods = ("pods", "--selector", f"{RUN_LABEL}={started.run_id},{STAGE_LABEL}=ingest")
    wait_for(lambda: kind.get(*pods)["items"] or None, "the pod of ingest")
    time.sleep(late_s)
    reap_now(kind)


def test_a_pod_that_no_node_takes_times_out_and_its_stage_is_routed_to_another_pool(
    argo: Kind, store: Store, tmp_path: Path
) -> None:
    # A unique name: a stock-out is remembered for longer than this test takes.
    name = f"grows-{uuid4().hex[:8]}"
    with restored_files(argo, "pools", "prices", "policy") as (pools, prices, policy):
        machine = {"cores": 1, "memory_gb": 4}
        pools["pools"].append(
            {
                "name": name,
                "labels": {POOL_LABEL: name},
                "market": "spot",
                "machine": machine,
                "max_nodes": 1,
                "startup_s": 1,
            }
        )
        prices["prices"].append(
            prices["prices"][0] | {"pool": name, "market": "spot", "usd_per_hour": "0.001"}
        )
        for file, content in (
            ("pools", pools),
            ("prices", prices),
            ("policy", policy | {"queue_delay_s": 5}),
        ):
            write_world_file(argo, file, yaml.safe_dump(content))
        started = StartedRun(argo, write_recipe(tmp_path, RAIN))
        first = wait_for_decision(store, started, "ingest")
        reap_when_late(argo, started, 7.0)
        second = wait_for_decision(store, started, "ingest", attempt=2)
        assert node_pools(argo)[stage_pod(argo, started.run_id, "ingest")["spec"]["nodeName"]] == "cpu-spot"
        stop_run(argo, started)
    assert first.choice and first.choice.pool == f"{name}/1"
    assert second.choice and second.choice.pool.startswith("cpu-spot/")
    (why,) = [sentence for sentence in refusals_of(second) if name in sentence]
    assert (
        why.startswith("excluded until ") and f"for a node of {name} (spot): 0/4 nodes are available" in why
    )
    assert [*store.list(f"learned/stock-outs/{name}")] == [f"learned/stock-outs/{name}-spot.json"]
    check_ledger(store, started.run_id)


def allocatable(kind: Kind) -> dict[str, str]:
    """Return the allocatable resources of cpu-spot's one node."""
    (node,) = kind.get("nodes", "--selector", f"{POOL_LABEL}=cpu-spot")["items"]
    return dict(node["status"]["allocatable"])


def test_a_pool_that_other_pods_fill_is_refused_with_the_numbers(
    argo: Kind, store: Store, rain: str, stop_later: Callable[[StartedRun], None]
) -> None:
    most = f"{int(allocatable(argo)['cpu']) * 1000 - 500}m"
    with a_pod(argo, "filler", cpu=most, nodeSelector={POOL_LABEL: "cpu-spot"}):
        wait_for(
            lambda: argo.get("pod", "filler", namespace="default")["spec"].get("nodeName"),
            "a node for the filler",
        )
        started = StartedRun(argo, rain)
        made = wait_for_decision(store, started, "ingest")
        assert (
            node_pools(argo)[stage_pod(argo, started.run_id, "ingest")["spec"]["nodeName"]] == "cpu-on-demand"
        )
        stop_later(started)
    numbers = re.compile(
        r"no capacity: the node of cpu-spot has 0\.\d+ cores and [\d.]+ GB free, "
        r"a pod requests 1 core and [\d.]+ GB"
    )
    assert any(map(numbers.fullmatch, refusals_of(made))), refusals_of(made)


def test_broken_prices_are_replaced_by_the_last_good_copy_and_the_decision_says_so(
    argo: Kind, store: Store, tmp_path: Path, stop_later: Callable[[StartedRun], None]
) -> None:
    with restored_files(argo, "prices"):
        started = StartedRun(argo, write_recipe(tmp_path, RAIN))
        first = wait_for_decision(store, started, "ingest")
        write_world_file(argo, "prices", "prices: [")
        second = wait_for_decision(store, started, "preprocess")
        stop_later(started)
    assert [
        note
        for note in second.question.notes
        if "prices.yaml" in note and "the last good copy is used" in note
    ], second.question.notes
    assert (first.question.notes, second.question.quotes) == ((), first.question.quotes)


@contextmanager
def little_memory(kind: Kind, memory_gb: float) -> Iterator[None]:
    """Let a daemonset take nearly all memory of cpu-spot's node, which makes its share small."""
    taken = f"{int(allocatable(kind)['memory'].removesuffix('Ki')) - int(memory_gb * 1e9) // 1024}Ki"
    container = {
        "name": "main",
        "image": IMAGES["base"],
        "command": ["sleep", "infinity"],
        "resources": {"requests": {"memory": taken}},
    }
    pod = {
        "metadata": {"labels": {"app": "takes-memory"}},
        "spec": {
            "nodeSelector": {POOL_LABEL: "cpu-spot"},
            "containers": [container],
            "terminationGracePeriodSeconds": 0,
        },
    }
    spec = {"selector": {"matchLabels": {"app": "takes-memory"}}, "template": pod}
    daemons = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "takes-memory"},
        "spec": spec,
    }
    kind.apply(yaml.safe_dump(daemons), namespace="default")
    try:
        kind.kubectl("rollout", "status", "daemonset/takes-memory", "--timeout", "60s", namespace="default")
        yield
    finally:
        kind.kubectl("delete", "daemonset", "takes-memory", "--cascade=foreground", namespace="default")


@contextmanager
def understated_memory(kind: Kind, template: dict[str, Any], memory_gb: float) -> Iterator[None]:
    """Apply a template whose training declares less memory than it takes."""
    changed = json.loads(json.dumps(template))
    for parameter in parameters_named(changed, "needs"):
        needs = json.loads(parameter["value"])
        for need in needs["needs"]:
            need |= (
                {"memory_fixed_gb": memory_gb, "memory_bytes_per_row": 0} if need["stage"] == "train" else {}
            )
        parameter["value"] = json.dumps(needs)
    try:
        kind.apply(yaml.safe_dump(changed))
        yield
    finally:
        kind.apply(yaml.safe_dump(template))


def end_reason(pod: dict[str, Any]) -> str:
    (main,) = [each for each in pod["status"]["containerStatuses"] if each["name"] == "main"]
    return str(main["state"]["terminated"]["reason"])


def parameters_named(template: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Return all parameters of this name that tasks are given."""
    tasks = [task for each in template["spec"]["templates"] for task in each.get("dag", {}).get("tasks", [])]
    return [
        each
        for task in tasks
        for each in task.get("arguments", {}).get("parameters", [])
        if each["name"] == name
    ]


def finished_training(store: Store, run_id: str) -> Receipt | None:
    receipts = (read_record(store, key, Receipt) for key in store.list(f"runs/{run_id}/receipts/train-"))
    return next((each for each in receipts if each.status == "done"), None)


@pytest.mark.nightly
def test_a_training_that_ran_out_of_memory_gets_more_and_ends(
    argo: Kind, store: Store, pods: PodHistory, tmp_path: Path
) -> None:
    with understated_memory(argo, compiled(tmp_path), 0.05), little_memory(argo, 0.2):
        started = StartedRun(argo, write_recipe(tmp_path, RAIN))
        wait_for(lambda: finished_training(store, started.run_id), "a training that is done", timeout_s=240.0)
        stop_run(argo, started)
    run_id = started.run_id
    # The memory of a training varies by about 10%, so one growth may not be enough.
    *killed, _ = pods.of_stage(run_id, "train")
    assert killed and [end_reason(pod) for pod in killed] == ["OOMKilled"] * len(killed)
    made = [decision(store, run_id, "train", attempt + 1) for attempt in range(len(killed) + 1)]
    assert made[0].choice and made[0].choice.pool.startswith("cpu-spot/")
    growth = yaml.safe_load(read_world_file(argo, "policy"))["memory_growth"]
    for before, after in pairwise(made):
        assert before.placement and before.choice and after.placement
        had_mb, has_mb = (
            int(placement.memory.removesuffix("M")) for placement in (before.placement, after.placement)
        )
        assert (
            has_mb / 1000
            >= stage_memory_gb(after.question.needs[0], after.question.rows)
            >= growth * had_mb / 1000
        )
        said = f"it ran out of the {had_mb / 1000:g} GB of memory that it had on {before.choice.pool}"
        assert [note for note in after.question.notes if said in note]
    check_ledger(store, run_id)
