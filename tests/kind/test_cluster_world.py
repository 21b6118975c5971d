"""The interfaces on a real cluster: pools from its nodes, capacity less its pods, and lifetimes of pods."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from engine_scenarios.waiting import wait_for
from kind_cluster import Kind, a_pod

from shoestring.backends.kubernetes.api import KubeApi, connect
from shoestring.backends.kubernetes.cluster import KubeCluster
from shoestring.backends.kubernetes.world_files import Machine, NodePool
from shoestring.backends.local import WallClock
from shoestring.core.interfaces import PodLifetime
from shoestring.core.pod_ref import LabelledPod
from shoestring.core.types import Market, NodeCapacity
from shoestring.routing.placement import RUN_LABEL

pytestmark = pytest.mark.kind

GROWS = NodePool(
    name="big", labels={"shoestring.dev/pool": "big"}, machine=Machine(cores=64, memory_gb=256), max_nodes=2
)
SPOT_NODE = "worker2"


@pytest.fixture(scope="module", autouse=True)
def no_runs(kind: Kind) -> None:
    running = ("pods", "--selector", RUN_LABEL, "--field-selector", "status.phase=Running")
    wait_for(
        lambda: None if kind.get(*running)["items"] else True, "the pods of runs have ended", timeout_s=300.0
    )


@pytest.fixture(scope="module")
def kube(kind: Kind) -> KubeApi:
    return connect(kind.context)


def cluster(kube: KubeApi, *declared: NodePool) -> KubeCluster:
    """Return a cluster that has read nothing yet."""
    return KubeCluster(declared, [], None, WallClock(), lambda: kube)


def capacity(kube: KubeApi, pool: str) -> NodeCapacity:
    found = {each.name: each.capacity for each in cluster(kube).pools()}[pool]
    assert found
    return found


def wait_until(read: Callable[[], PodLifetime], done: Callable[[PodLifetime], object]) -> PodLifetime:
    stop_s = time.monotonic() + 90
    while not done(life := read()):
        assert time.monotonic() < stop_s, life
        time.sleep(0.2)
    return life


def test_every_worker_is_a_pool_and_the_control_plane_is_none(kube: KubeApi) -> None:
    pools = {pool.name: pool for pool in cluster(kube, GROWS).pools()}
    assert {pool.node_pool for pool in pools.values()} == {"cpu-on-demand", "cpu-spot", "gpu-spot", "big"}
    assert list(pools["cpu-spot/1"].markets) == [Market.SPOT]
    assert list(pools["cpu-on-demand/1"].markets) == [Market.ON_DEMAND]
    assert pools["gpu-spot/2gpu"].gpu_count == 2
    assert [toleration.key for toleration in pools["gpu-spot/1gpu"].markets[Market.SPOT].tolerations] == [
        "nvidia.com/gpu"
    ]
    assert pools["big/64"].capacity == NodeCapacity(
        nodes=0, max_nodes=2, free_shares=0, free_cores=0, free_memory_gb=0
    )
    assert pools["big/64"].startup_s == 120


def test_a_cordoned_node_has_no_capacity(kind: Kind, kube: KubeApi) -> None:
    before = capacity(kube, "cpu-spot/1")
    assert (before.unschedulable, before.free_shares) == (0, 1)
    kind.kubectl("cordon", f"{kind.name}-{SPOT_NODE}")
    try:
        after = capacity(kube, "cpu-spot/1")
        assert (after.nodes, after.unschedulable, after.free_shares) == (1, 1, 0)
    finally:
        kind.kubectl("uncordon", f"{kind.name}-{SPOT_NODE}")


def test_a_pod_takes_the_capacity_that_it_requests_until_it_ends(kind: Kind, kube: KubeApi) -> None:
    before = capacity(kube, "cpu-spot/1")
    with a_pod(kind, "filler", cpu="1500m", nodeSelector={"shoestring.dev/pool": "cpu-spot"}) as pod:
        wait_until(lambda: cluster(kube).lifetime(pod), lambda life: life.started_at)
        after = capacity(kube, "cpu-spot/1")
        assert after.free_shares == 0
        assert before.free_cores - after.free_cores == pytest.approx(1.5)
    assert capacity(kube, "cpu-spot/1").free_shares == before.free_shares


def test_a_pod_that_no_node_takes_is_pending_and_has_not_started(kind: Kind, kube: KubeApi) -> None:
    before = capacity(kube, "cpu-spot/1").pending_pods
    with a_pod(kind, "too-large", cpu="64", nodeSelector={"shoestring.dev/pool": "cpu-spot"}) as pod:
        life = wait_until(lambda: cluster(kube).lifetime(pod), lambda life: life.reason)
        assert (life.alive, life.started_at, life.reason) == (True, None, "Pending")
        assert capacity(kube, "cpu-spot/1").pending_pods == before + 1
    assert cluster(kube).lifetime(pod) == PodLifetime(alive=False)


def test_the_lifetime_of_a_pod_is_from_its_scheduling_to_its_last_container(
    kind: Kind, kube: KubeApi
) -> None:
    with a_pod(kind, "fails", "sleep 2; exit 3") as pod:
        life = wait_until(lambda: cluster(kube).lifetime(pod), lambda life: not life.alive)
        assert life.started_at and life.finished_at
        assert 2 <= (life.finished_at - life.started_at).total_seconds() < 60
        assert life.reason == "Error, exit code 3"
        another = replace(pod, uid="0b5a4f6e-8a0c-4c67-9c3f-1d2e3f4a5b6c")
        assert cluster(kube).lifetime(another) == PodLifetime(alive=False)


def test_a_pod_that_is_referenced_by_its_labels_has_the_same_lifetime(kind: Kind, kube: KubeApi) -> None:
    known = LabelledPod("default", "shoestring.dev/stage=wait,pipeline/runid=r-1")
    with a_pod(kind, "labelled", "sleep 1") as pod:
        kind.kubectl("label", "pod", "labelled", *known.selector.split(","), namespace="default")
        life = wait_until(lambda: cluster(kube).lifetime(known), lambda life: life.finished_at)
        assert life.started_at
        assert life == replace(cluster(kube).lifetime(pod), asked_at=life.asked_at)
    assert cluster(kube).lifetime(known) == PodLifetime(alive=False)


def test_a_pod_that_ran_out_of_memory_is_reported(kind: Kind, kube: KubeApi) -> None:
    with a_pod(kind, "hungry", "python3 -c 'bytearray(10**9)'") as pod:
        assert (
            wait_until(lambda: cluster(kube).lifetime(pod), lambda life: not life.alive).reason == "OOMKilled"
        )


READ = """
import json, sys
from shoestring.core.errors import ShoestringError
from shoestring.backends.local import WallClock
from shoestring.backends.kubernetes.cluster import KubeCluster
from shoestring.backends.kubernetes.world_files import NodePool
from shoestring.backends.kubernetes.api import connect
notes, declared = [], tuple(map(NodePool.model_validate_json, json.loads(sys.argv[1])))
cluster = KubeCluster(declared, notes, None, WallClock(), lambda: connect("as-account"))
try:
    pools = [[pool.name, pool.capacity is None] for pool in cluster.pools()]
    print(json.dumps({"pools": pools, "notes": notes}))
except ShoestringError as error:
    print(json.dumps({type(error).__name__: str(error)}))
"""


def read_without_rights(kind: Kind, folder: Path, *declared: NodePool) -> Any:
    """Return what a process reads with only the token of namespace default's account."""
    config = json.loads(kind.kubectl("config", "view", "--minify", "--raw", "--output", "json"))
    token = kind.kubectl("create", "token", "default", namespace="default").strip()
    config["contexts"] = [
        {"name": "as-account", "context": {"cluster": config["clusters"][0]["name"], "user": "account"}}
    ]
    config["current-context"] = "as-account"
    config["users"] = [{"name": "account", "user": {"token": token}}]
    (folder / "kubeconfig").write_text(json.dumps(config))
    variables = os.environ | {"KUBECONFIG": str(folder / "kubeconfig")}
    pools = json.dumps([pool.model_dump_json() for pool in declared])
    done = subprocess.run([sys.executable, "-c", READ, pools], env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_without_the_right_to_read_nodes_only_declared_pools_are_used_with_a_note(
    kind: Kind, tmp_path: Path
) -> None:
    found = read_without_rights(kind, tmp_path, GROWS)
    assert [name for name, _ in found["pools"]] == [f"big/{size}" for size in (1, 2, 4, 8, 16, 32, 64)]
    assert all(unknown for _, unknown in found["pools"])
    (note,) = found["notes"]
    assert "the cluster does not allow you to list nodes" in note
    assert "manifests/base/accounts.yaml; until then only pools of pools.yaml are used" in note


def test_without_that_right_and_declared_pools_the_missing_right_is_named(kind: Kind, tmp_path: Path) -> None:
    found = read_without_rights(kind, tmp_path)
    assert "does not allow you to list nodes" in found["WorldError"]
    assert (
        "or declare pools with their machine in pools.yaml, which need no such right" in found["WorldError"]
    )
