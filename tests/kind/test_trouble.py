"""What goes wrong on a cluster, and what becomes of a run: it ends well elsewhere or later, and the books hold."""

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
from kind_cluster import Kind, a_pod
from on_argo import (
    POOL_LABEL,
    RAIN,
    RUN_LABEL,
    STAGE_LABEL,
    Going,
    Pods,
    compiled,
    decided,
    decision,
    file_of_world,
    kept,
    node_pools,
    put_file,
    recipe,
    refused,
    soon,
    stage_pod,
    stop,
)

from shoestring.backends.local import WallClock
from shoestring.config.world import IMAGES
from shoestring.core.interfaces import Store
from shoestring.core.receipt import Receipt
from shoestring.data.run_records import read_record
from shoestring.routing.offers.factors import stage_memory_gb
from shoestring.spending.audit.verify import load_anchors, verify
from shoestring.spending.ledger.ledger import Ledger

pytestmark = pytest.mark.kind


def books_hold(store: Store, run_id: str) -> None:
    state = Ledger(store, WallClock(), "test").state(run_id)
    assert state.closed and state.reservations == {}
    verify(store, load_anchors(store))


def sweep_when_late(kind: Kind, going: Going, late_s: float) -> None:
    """The sweeper's job, before its minute is up, when the pod of ingest has waited."""
    pods = ("pods", "--selector", f"{RUN_LABEL}={going.run_id},{STAGE_LABEL}=ingest")
    soon(lambda: kind.get(*pods)["items"] or None, "the pod of ingest")
    time.sleep(late_s)
    kind.kubectl("create", "job", "--from", "cronjob/shoestring-sweeper", f"sweeps-{uuid4().hex[:8]}")


def test_a_pod_that_no_node_takes_is_given_up_and_its_stage_goes_elsewhere(
    argo: Kind, store: Store, tmp_path: Path
) -> None:
    # A name of its own: a stock-out is remembered longer than this test lasts.
    name = f"grows-{uuid4().hex[:8]}"
    with kept(argo, "pools", "prices", "policy") as (pools, prices, policy):
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
            put_file(argo, file, yaml.safe_dump(content))
        going = Going(argo, recipe(tmp_path, RAIN))
        first = decided(store, going, "ingest")
        sweep_when_late(argo, going, 7.0)
        second = decided(store, going, "ingest", attempt=2)
        assert node_pools(argo)[stage_pod(argo, going.run_id, "ingest")["spec"]["nodeName"]] == "cpu-spot"
        stop(argo, going)
    assert first.choice and first.choice.pool == f"{name}/1"
    assert second.choice and second.choice.pool.startswith("cpu-spot/")
    (why,) = [sentence for sentence in refused(second) if name in sentence]
    assert (
        why.startswith("left out until ") and f"for a node of {name} (spot): 0/4 nodes are available" in why
    )
    assert [*store.list(f"learned/stockouts/{name}")] == [f"learned/stockouts/{name}-spot.json"]
    books_hold(store, going.run_id)


def allocatable(kind: Kind) -> dict[str, str]:
    """Of cpu-spot's one node."""
    (node,) = kind.get("nodes", "--selector", f"{POOL_LABEL}=cpu-spot")["items"]
    return dict(node["status"]["allocatable"])


def test_a_pool_that_somebody_else_fills_is_left_out_with_the_numbers(
    argo: Kind, store: Store, rain: str, leave: Callable[[Going], None]
) -> None:
    most = f"{int(allocatable(argo)['cpu']) * 1000 - 500}m"
    with a_pod(argo, "filler", cpu=most, nodeSelector={POOL_LABEL: "cpu-spot"}):
        soon(
            lambda: argo.get("pod", "filler", namespace="default")["spec"].get("nodeName"),
            "a node for the filler",
        )
        going = Going(argo, rain)
        made = decided(store, going, "ingest")
        assert (
            node_pools(argo)[stage_pod(argo, going.run_id, "ingest")["spec"]["nodeName"]] == "cpu-on-demand"
        )
        leave(going)
    numbers = re.compile(
        r"no room: cpu-spot's one node has 0\.\d+ cores and [\d.]+ GB free, 1 core and [\d.]+ GB are asked"
    )
    assert any(map(numbers.fullmatch, refused(made))), refused(made)


def test_prices_that_somebody_broke_are_replaced_by_the_last_good_ones_and_the_decision_says_so(
    argo: Kind, store: Store, tmp_path: Path, leave: Callable[[Going], None]
) -> None:
    with kept(argo, "prices"):
        going = Going(argo, recipe(tmp_path, RAIN))
        first = decided(store, going, "ingest")
        put_file(argo, "prices", "prices: [")
        second = decided(store, going, "preprocess")
        leave(going)
    assert [
        note
        for note in second.question.notes
        if "prices.yaml" in note and "the last good copy is used" in note
    ], second.question.notes
    assert (first.question.notes, second.question.quotes) == ((), first.question.quotes)


@contextmanager
def little_memory(kind: Kind, memory_gb: float) -> Iterator[None]:
    """Nearly all memory of cpu-spot's node is taken by a daemonset, which makes its share small."""
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
def modest(kind: Kind, template: dict[str, Any], memory_gb: float) -> Iterator[None]:
    """A training that says it needs less memory than it takes."""
    told = json.loads(json.dumps(template))
    for parameter in given(told, "needs"):
        needs = json.loads(parameter["value"])
        for need in needs["needs"]:
            need |= (
                {"memory_fixed_gb": memory_gb, "memory_bytes_per_row": 0} if need["stage"] == "train" else {}
            )
        parameter["value"] = json.dumps(needs)
    try:
        kind.apply(yaml.safe_dump(told))
        yield
    finally:
        kind.apply(yaml.safe_dump(template))


def why_ended(pod: dict[str, Any]) -> str:
    (main,) = [each for each in pod["status"]["containerStatuses"] if each["name"] == "main"]
    return str(main["state"]["terminated"]["reason"])


def given(template: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """A parameter, wherever a task is given it."""
    tasks = [task for each in template["spec"]["templates"] for task in each.get("dag", {}).get("tasks", [])]
    return [
        each
        for task in tasks
        for each in task.get("arguments", {}).get("parameters", [])
        if each["name"] == name
    ]


def trained(store: Store, run_id: str) -> Receipt | None:
    receipts = (read_record(store, key, Receipt) for key in store.list(f"runs/{run_id}/receipts/train-"))
    return next((each for each in receipts if each.status == "done"), None)


def test_a_training_that_ran_out_of_memory_is_given_more_and_ends(
    argo: Kind, store: Store, pods: Pods, rain: str, tmp_path: Path
) -> None:
    with modest(argo, compiled(tmp_path), 0.05), little_memory(argo, 0.2):
        going = Going(argo, rain)
        soon(lambda: trained(store, going.run_id), "a training that is done", timeout_s=240.0)
        stop(argo, going)
    run_id = going.run_id
    # What a training takes differs by a tenth or so, and one growth may be just too little.
    *killed, _ = pods.of_stage(run_id, "train")
    assert killed and [why_ended(pod) for pod in killed] == ["OOMKilled"] * len(killed)
    made = [decision(store, run_id, "train", attempt + 1) for attempt in range(len(killed) + 1)]
    assert made[0].choice and made[0].choice.pool.startswith("cpu-spot/")
    growth = yaml.safe_load(file_of_world(argo, "policy"))["memory_growth"]
    for before, after in pairwise(made):
        assert before.placement and before.choice and after.placement
        had_mb, has_mb = (
            int(placement.memory.removesuffix("M")) for placement in (before.placement, after.placement)
        )
        assert (
            has_mb / 1000 >= stage_memory_gb(after.question.needs[0], after.question.rows) >= growth * had_mb / 1000
        )
        said = f"it ran out of the {had_mb / 1000:g} GB that it had on {before.choice.pool}"
        assert [note for note in after.question.notes if said in note]
    books_hold(store, run_id)
