"""Pods that are named by their labels, which an engine may have made several times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import urllib3
from kube_server import KubeServer, kube_server

from shoestring.backends.kubernetes.api import KubeApi
from shoestring.backends.kubernetes.cluster import KubeCluster
from shoestring.backends.local import WallClock
from shoestring.core.interfaces import PodLifetime
from shoestring.core.pod_ref import LabelledPod

KNOWN = LabelledPod("ns", "shoestring.dev/stage=theirs,pipeline/runid=r-1")


@pytest.fixture
def kube() -> Iterator[KubeServer]:
    with kube_server() as server:
        yield server


def lifetime(kube: KubeServer, item: str = "") -> PodLifetime:
    api = KubeApi(f"http://127.0.0.1:{kube.port}", urllib3.PoolManager(), dict)
    cluster = KubeCluster((), [], None, WallClock(), lambda: api)
    return cluster.lifetime(replace(KNOWN, item=item))


def put(
    kube: KubeServer, name: str, minute: int, phase: str, *, accepted: bool = True, node: str = ""
) -> None:
    """Add a pod that was created in this minute; a node accepted it at once. `node`: of the Workflow."""
    at, status = f"2026-07-30T10:{minute:02}:00Z", {"phase": phase}
    scheduled = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": at}]
    kube.put("ns", "pods", name, status=status | ({"conditions": scheduled} if accepted else {}))
    pod: dict[str, Any] = kube.objects[f"/api/v1/namespaces/ns/pods/{name}"]
    pod["metadata"]["creationTimestamp"] = at
    if node:
        pod["metadata"]["annotations"] = {"workflows.argoproj.io/node-name": node}


def test_the_newest_pod_is_reported_with_those_before_it_in_order(kube: KubeServer) -> None:
    for name, minute in (("b", 20), ("a", 10), ("c", 0)):
        put(kube, name, minute, "Running" if name == "b" else "Failed")
    found = lifetime(kube)
    assert found.alive and found.started_at and found.started_at.minute == 20
    assert [each.started_at and each.started_at.minute for each in found.earlier] == [0, 10]
    assert not any(each.alive for each in found.earlier)


def test_a_pod_that_no_node_has_accepted_yet_is_newer_than_one_that_ended(kube: KubeServer) -> None:
    put(kube, "old", 0, "Failed")
    put(kube, "new", 10, "Pending", accepted=False)
    assert (lifetime(kube).alive, lifetime(kube).started_at) == (True, None)


def test_a_component_without_a_pod_is_not_alive(kube: KubeServer) -> None:
    assert lifetime(kube) == PodLifetime(alive=False)


def test_the_items_of_a_loop_share_their_labels_and_not_their_pods(kube: KubeServer) -> None:
    for number, phase in enumerate(("Failed", "Running")):
        name = f"wf.loop.iteration-iterations({number}:{number}).iteration-item.work.executor(0)"
        put(kube, f"pod-{number}", 10 * number, phase, node=name)
    put(kube, "alone", 30, "Failed", node="wf.root.work.executor(0)")
    assert [lifetime(kube, item).alive for item in ("", "0", "1", "2")] == [False, False, True, False]
    assert lifetime(kube, "1").started_at and not lifetime(kube, "1").earlier
    assert lifetime(kube, "2").started_at is None
