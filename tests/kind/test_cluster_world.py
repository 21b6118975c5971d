"""The seams on a real cluster: its nodes are pools, its pods take room, and it says when a pod lived."""

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
from kind_cluster import Kind, a_pod
from on_argo import RUN_LABEL, soon

from shoestring.backends.kubernetes.api import Kube, connect
from shoestring.backends.kubernetes.cluster import KubeCluster
from shoestring.backends.kubernetes.world_files import Machine, NodePool
from shoestring.backends.local import WallClock
from shoestring.core.interfaces import PodLifetime
from shoestring.core.types import Market, NodeCapacity

pytestmark = pytest.mark.kind

GROWS = NodePool(
    name="big", labels={"shoestring.dev/pool": "big"}, machine=Machine(cores=64, memory_gb=256), max_nodes=2
)
SPOT_NODE = "worker2"


@pytest.fixture(scope="module")
def kube(kind: Kind) -> Kube:
    return connect(kind.context)


def cluster(kube: Kube, *declared: NodePool) -> KubeCluster:
    """One that has read nothing yet."""
    return KubeCluster(declared, [], "", WallClock(), lambda: kube)


def room(kube: Kube, pool: str) -> NodeCapacity:
    found = {each.name: each.capacity for each in cluster(kube).pools()}[pool]
    assert found
    return found


def until(look: Callable[[], PodLifetime], done: Callable[[PodLifetime], object]) -> PodLifetime:
    stop_s = time.monotonic() + 90
    while not done(life := look()):
        assert time.monotonic() < stop_s, life
        time.sleep(0.2)
    return life


def test_every_worker_is_a_pool_and_the_control_plane_is_none(kube: Kube) -> None:
    pools = {pool.name: pool for pool in cluster(kube, GROWS).pools()}
    assert {pool.node_pool for pool in pools.values()} == {"cpu-on-demand", "cpu-spot", "gpu-spot", "big"}
    assert list(pools["cpu-spot/1"].markets) == [Market.SPOT]
    assert list(pools["cpu-on-demand/1"].markets) == [Market.ON_DEMAND]
    assert pools["gpu-spot/2gpu"].gpu_count == 2
    assert [toleration.key for toleration in pools["gpu-spot/1gpu"].markets[Market.SPOT].tolerations] == [
        "nvidia.com/gpu"
    ]
    assert pools["big/64"].capacity == NodeCapacity(nodes=0, max_nodes=2, free_shares=0, free_cores=0, free_memory_gb=0)
    assert pools["big/64"].startup_s == 120


def test_a_cordoned_node_gives_no_room(kind: Kind, kube: Kube) -> None:
    before = room(kube, "cpu-spot/1")
    assert (before.unschedulable, before.free_shares) == (0, 1)
    kind.kubectl("cordon", f"{kind.name}-{SPOT_NODE}")
    try:
        after = room(kube, "cpu-spot/1")
        assert (after.nodes, after.unschedulable, after.free_shares) == (1, 1, 0)
    finally:
        kind.kubectl("uncordon", f"{kind.name}-{SPOT_NODE}")


def test_a_pod_takes_the_room_that_it_asked_for_and_gives_it_back(kind: Kind, kube: Kube) -> None:
    running = ("pods", "--selector", RUN_LABEL, "--field-selector", "status.phase=Running")
    soon(lambda: None if kind.get(*running)["items"] else True, "runs that were told to stop have left")
    before = room(kube, "cpu-spot/1")
    with a_pod(kind, "filler", cpu="1500m", nodeSelector={"shoestring.dev/pool": "cpu-spot"}) as uid:
        until(lambda: cluster(kube).lifetime(uid), lambda life: life.started_at)
        after = room(kube, "cpu-spot/1")
        assert after.free_shares == 0
        assert before.free_cores - after.free_cores == pytest.approx(1.5)
    assert room(kube, "cpu-spot/1").free_shares == before.free_shares


def test_a_pod_that_no_node_takes_waits_and_has_not_begun(kind: Kind, kube: Kube) -> None:
    before = room(kube, "cpu-spot/1").pending_pods
    with a_pod(kind, "too-large", cpu="64", nodeSelector={"shoestring.dev/pool": "cpu-spot"}) as uid:
        life = until(lambda: cluster(kube).lifetime(uid), lambda life: life.reason)
        assert (life.alive, life.started_at, life.reason) == (True, None, "Pending")
        assert room(kube, "cpu-spot/1").pending_pods == before + 1
    assert cluster(kube).lifetime(uid) == PodLifetime(alive=False)


def test_a_pods_life_is_from_its_node_to_its_last_container(kind: Kind, kube: Kube) -> None:
    with a_pod(kind, "fails", "sleep 2; exit 3") as uid:
        life = until(lambda: cluster(kube).lifetime(uid), lambda life: not life.alive)
        assert life.started_at and life.finished_at
        assert 2 <= (life.finished_at - life.started_at).total_seconds() < 60
        assert life.reason == "Error, exit code 3"
        namespace, _, name = uid.split(".")
        assert cluster(kube).lifetime(f"{namespace}.0b5a4f6e-8a0c-4c67-9c3f-1d2e3f4a5b6c.{name}") == PodLifetime(
            alive=False
        )


def test_a_pod_that_is_known_by_its_labels_alone_has_the_same_life(kind: Kind, kube: Kube) -> None:
    known = "default?shoestring.dev/stage=wait,pipeline/runid=r-1"
    with a_pod(kind, "labelled", "sleep 1") as uid:
        kind.kubectl("label", "pod", "labelled", *known.partition("?")[2].split(","), namespace="default")
        life = until(lambda: cluster(kube).lifetime(known), lambda life: life.finished_at)
        assert life.started_at
        assert life == replace(cluster(kube).lifetime(uid), asked_at=life.asked_at)
    assert cluster(kube).lifetime(known) == PodLifetime(alive=False)


def test_a_pod_that_ran_out_of_memory_says_so(kind: Kind, kube: Kube) -> None:
    with a_pod(kind, "hungry", "python3 -c 'bytearray(10**9)'") as uid:
        assert until(lambda: cluster(kube).lifetime(uid), lambda life: not life.alive).reason == "OOMKilled"


SEE = """
import json, sys
from shoestring.core.errors import ShoestringError
from shoestring.backends.local import WallClock
from shoestring.backends.kubernetes.cluster import KubeCluster
from shoestring.backends.kubernetes.world_files import NodePool
from shoestring.backends.kubernetes.api import connect
notes, declared = [], tuple(map(NodePool.model_validate_json, json.loads(sys.argv[1])))
cluster = KubeCluster(declared, notes, "", WallClock(), lambda: connect("as-account"))
try:
    print(json.dumps({"pools": [[pool.name, pool.room is None] for pool in cluster.pools()], "notes": notes}))
except ShoestringError as error:
    print(json.dumps({type(error).__name__: str(error)}))
"""


def seen_by_an_account_without_rights(kind: Kind, folder: Path, *declared: NodePool) -> Any:
    """What a process sees that has nothing but the token of namespace default's account."""
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
    done = subprocess.run([sys.executable, "-c", SEE, pools], env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_without_the_right_to_read_nodes_declared_pools_are_all_there_is_and_a_note_says_so(
    kind: Kind, tmp_path: Path
) -> None:
    found = seen_by_an_account_without_rights(kind, tmp_path, GROWS)
    assert [name for name, _ in found["pools"]] == [f"big/{size}" for size in (1, 2, 4, 8, 16, 32, 64)]
    assert all(unknown for _, unknown in found["pools"])
    (note,) = found["notes"]
    assert "the cluster does not let this service account list nodes" in note
    assert (
        "manifests/base/accounts.yaml; until then the pools that pools.yaml declares are all there is" in note
    )


def test_without_that_right_and_without_declared_pools_the_missing_verb_is_named(
    kind: Kind, tmp_path: Path
) -> None:
    found = seen_by_an_account_without_rights(kind, tmp_path)
    assert "does not let this service account list nodes" in found["WorldError"]
    assert (
        "or declare pools with their machine in pools.yaml, which need no such right" in found["WorldError"]
    )
