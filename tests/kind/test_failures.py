"""Failures on a cluster: a run ends well on another pool or later, and its ledger verifies."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from engine_scenarios.argo_engine import ArgoEngine
from engine_scenarios.books import (
    check_books,
    check_dollars,
    decision,
    receipts,
    wait_for_checkpoint,
    wait_for_decision,
)
from engine_scenarios.engine import Job, StartedRun
from engine_scenarios.recipes import LONG_RAIN, RAIN, write_recipe
from engine_scenarios.waiting import wait_for
from kind_cluster import Kind, run
from world_changes import POOL_LABEL, pool_of, read_world_file, reap_now, restored_files, write_world_file

from shoestring.config.world import IMAGES
from shoestring.pipelines.argo import workflow_template
from shoestring.pipelines.train import train_pipeline
from shoestring.routing.question_parts import stage_memory_gb

pytestmark = pytest.mark.kind


def end(engine: ArgoEngine, started: StartedRun) -> None:
    """Terminate a run whose rest no test reads, and check its books."""
    engine.terminate(started.engine_id)
    assert started.wait().not_done().status in ("stopped", "failed")
    check_books(engine, started.run_id)


def reap_when_late(kind: Kind, engine: ArgoEngine, started: StartedRun, late_s: float) -> None:
    """Reap at once, without waiting for the reaper, when the pod of ingest is `late_s` old."""
    wait_for(lambda: engine.pods(started, "ingest") or None, "the pod of ingest")
    time.sleep(late_s)
    reap_now(kind)


def test_a_pod_that_no_node_takes_times_out_and_its_stage_is_routed_to_another_pool(
    argo: Kind, engine: ArgoEngine, tmp_path: Path
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
        started = engine.start(Job(write_recipe(tmp_path, RAIN)))
        first = wait_for_decision(engine, started.run_id, "ingest")
        reap_when_late(argo, engine, started, 7.0)
        second = wait_for_decision(engine, started.run_id, "ingest", attempt=2)
        assert pool_of(argo, engine, started, "ingest") == "cpu-spot"
        end(engine, started)
    assert first.choice and first.choice.pool == f"{name}/1"
    assert second.choice and second.choice.pool.startswith("cpu-spot/")
    # A sentence on several formats is in it several times.
    (why,) = {refusal.sentence for refusal in second.refusals if name in refusal.sentence}
    assert (
        why.startswith("excluded until ") and f"for a node of {name} (spot): 0/4 nodes are available" in why
    )
    stock_outs = [*engine.store.list(f"learned/stock-outs/{name}")]
    assert stock_outs == [f"learned/stock-outs/{name}-spot.json"]


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
def test_a_training_survives_a_store_outage_of_a_minute(
    argo: Kind, engine: ArgoEngine, tmp_path: Path
) -> None:
    started = engine.start(Job(write_recipe(tmp_path, LONG_RAIN)))
    wait_for_decision(engine, started.run_id, "train")
    wait_for_checkpoint(engine, started.run_id)
    with frozen_s3(argo):
        time.sleep(60)
    summary = started.wait().done()
    assert [stage.attempts for stage in summary.stages] == [1, 1, 1, 1]
    assert summary.spent_usd <= summary.budget_usd
    check_dollars(engine, started, "train")
    check_books(engine, started.run_id)


@contextmanager
def little_memory(kind: Kind, memory_gb: float) -> Iterator[None]:
    """Let a daemonset take nearly all memory of cpu-spot's node, which makes its share small."""
    (node,) = kind.get("nodes", "--selector", f"{POOL_LABEL}=cpu-spot")["items"]
    has_kib = int(node["status"]["allocatable"]["memory"].removesuffix("Ki"))
    taken = f"{has_kib - int(memory_gb * 1e9) // 1024}Ki"
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
def understated_memory(kind: Kind, memory_gb: float) -> Iterator[None]:
    """Apply a WorkflowTemplate whose training declares less memory than it takes."""
    template: dict[str, Any] = workflow_template(train_pipeline)
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


@pytest.mark.nightly
def test_a_training_that_ran_out_of_memory_gets_more_and_ends(
    argo: Kind, engine: ArgoEngine, tmp_path: Path
) -> None:
    with understated_memory(argo, 0.05), little_memory(argo, 0.2):
        started = engine.start(Job(write_recipe(tmp_path, RAIN)))
        run_id = started.run_id

        def trained() -> bool | None:
            return any(each.status == "done" for each in receipts(engine, run_id, "train")) or None

        wait_for(trained, "a training that is done", timeout_s=240.0)
        end(engine, started)
    # The memory of a training varies by about 10%, so one growth may not be enough.
    *killed, _ = engine.pods(started, "train")
    assert killed and [end_reason(pod) for pod in killed] == ["OOMKilled"] * len(killed)
    made = [decision(engine, run_id, "train", attempt + 1) for attempt in range(len(killed) + 1)]
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
