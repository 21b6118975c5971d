"""Claim: a router reads 1,000 nodes and 5,000 pods and turns them into pools in less than 3 s and with less
than 200 MB.

KUBECONFIG=FILE python bench/kind/pools.py CONTEXT

CONTEXT is an API server without nodes, such as a bare etcd and api-apiserver. The nodes and pods are written
there first, and stay.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from machine import describe

from shoestring.backends.kubernetes.api import Item, KubeApi, connect
from shoestring.backends.kubernetes.cluster import KubeCluster
from shoestring.backends.kubernetes.rights import Right
from shoestring.backends.local import WallClock

NODES, PODS, POOLS, REPEATS = 1000, 5000, 20, 5
# Labels, annotations, images and managed fields that managed clusters add to objects.
BALLAST = {f"example.com/annotation-{number}": "x" * 60 for number in range(20)}


def node_item(number: int) -> Item:
    labels = {
        "cloud.google.com/gke-nodepool": f"pool-{number % POOLS}",
        "kubernetes.io/hostname": f"node-{number}",
    }
    resources = {"cpu": "15890m", "memory": "58Gi", "pods": "110", "ephemeral-storage": "47060071478"}
    images = [
        {"names": [f"registry.example/image-{each}@sha256:{'0' * 64}"], "sizeBytes": 10**8}
        for each in range(30)
    ]
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    return {
        "metadata": {"name": f"node-{number}", "labels": labels, "annotations": BALLAST},
        "status": {"allocatable": resources, "capacity": resources, "conditions": [ready], "images": images},
    }


def pod_item(number: int) -> Item:
    resources = {"requests": {"cpu": "250m", "memory": "512Mi"}, "limits": {"memory": "512Mi"}}
    env = [{"name": f"SETTING_{each}", "value": "x" * 20} for each in range(15)]
    containers = [
        {"name": name, "image": "registry.example/app:1", "resources": resources, "env": env}
        for name in ("app", "proxy")
    ]
    owners = [
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet" if number % 2 else "ReplicaSet",
            "name": "app",
            "uid": f"{number}",
        }
    ]
    return {
        "metadata": {"name": f"pod-{number}", "annotations": BALLAST, "ownerReferences": owners},
        "spec": {"nodeName": f"node-{number % NODES}", "containers": containers},
    }


def fill(api: KubeApi) -> None:
    if next(api.list("/api/v1/nodes", Right("list", "nodes")), None):
        return

    def create_all(path: str, items: Iterable[Item]) -> None:
        right = Right("create", path.rpartition("/")[2])
        with ThreadPoolExecutor(16) as writers:
            for _ in writers.map(lambda item: api.create(path, item, right), items):
                pass

    create_all("/api/v1/nodes", map(node_item, range(NODES)))
    create_all("/api/v1/namespaces/default/pods", map(pod_item, range(PODS)))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("context")
    api = connect(parser.parse_args().context)
    fill(api)
    wall_s, cpu_s = [], []
    for _ in range(REPEATS):
        start = time.perf_counter(), time.process_time()
        pools = KubeCluster((), [], None, WallClock(), lambda: api).pools()
        wall_s.append(time.perf_counter() - start[0])
        cpu_s.append(time.process_time() - start[1])
    print(
        describe(),
        f"{NODES} nodes, {PODS} pods -> {len(pools)} pools of {len({pool.node_pool for pool in pools})} node "
        "pools",
        sep="\n",
    )
    print("\n| seconds | median | slowest |\n|---|---|---|")
    for name, seconds in (
        ("from the request to pools", wall_s),
        ("of these, computing in the router", cpu_s),
    ):
        print(f"| {name} | {statistics.median(seconds):.2f} | {max(seconds):.2f} |")
    print(f"\npeak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000:.0f} MB")


if __name__ == "__main__":
    main()
