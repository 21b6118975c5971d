"""Pending pods as the API shows them to the reaper."""

from __future__ import annotations

import gzip
import json
import socket
from base64 import b64encode
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
import urllib3
from kube_server import KubeServer

from shoestring.backends.kubernetes.api import KubeApi
from shoestring.backends.kubernetes.cluster import KubeCluster
from shoestring.backends.kubernetes.pod_lifetime import ENDED_ANNOTATION
from shoestring.backends.kubernetes.stage_pods import KubePendingPods, stage_pod, stage_pods
from shoestring.backends.local import WallClock
from shoestring.core.errors import ClusterError
from shoestring.core.interfaces import EndNotice
from shoestring.core.pod_ref import ClusterPod

STAGE = {"shoestring.dev/stage": "train"}
NOW = datetime(2026, 7, 30, 10, 9, tzinfo=UTC)
UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/3 nodes are available: 3 Insufficient cpu.",
}


def item(labels: dict[str, str], *, node: str | None = None, **status: Any) -> dict[str, Any]:
    meta = {
        "name": "a.pod",
        "namespace": "ns",
        "uid": "7d9f",
        "resourceVersion": "42",
        "creationTimestamp": "2026-07-30T10:00:00Z",
        "labels": labels,
    }
    return {
        "metadata": meta,
        "spec": {"nodeName": node} if node else {},
        "status": {"phase": "Pending"} | status,
    }


@pytest.mark.parametrize(
    ("labels", "run_id"),
    [
        ({"shoestring.dev/run": "r-1", "pipeline/runid": "k-1"}, "r-1"),
        ({"pipeline/runid": "k-1"}, "k-1"),
        ({}, ""),
    ],
)
def test_a_run_is_identified_by_shoestrings_label_or_else_by_kubeflows(
    labels: dict[str, str], run_id: str
) -> None:
    pod = stage_pod(item(STAGE | labels, conditions=[UNSCHEDULABLE]), NOW)
    assert (pod.run_id, pod.stage, str(pod.ref), pod.version) == (run_id, "train", "ns.7d9f.a.pod", "42")
    assert pod.since == datetime(2026, 7, 30, 10, tzinfo=UTC)
    assert (pod.node, pod.reason) == ("", UNSCHEDULABLE["message"])


def waiting_container(reason: str, message: str = "") -> dict[str, Any]:
    return {"state": {"waiting": {"reason": reason} | ({"message": message} if message else {})}}


@pytest.mark.parametrize(
    ("containers", "reason"),
    [
        ([waiting_container("ContainerCreating")], ""),
        (
            [waiting_container("ImagePullBackOff", "Back-off pulling image")],
            "ImagePullBackOff: Back-off pulling image",
        ),
        (
            [
                waiting_container("ErrImageNeverPull"),
                waiting_container("PodInitializing"),
                waiting_container("ErrImageNeverPull"),
            ],
            "ErrImageNeverPull",
        ),
        ([], ""),
    ],
)
def test_a_pod_on_a_node_waits_for_its_containers(containers: list[dict[str, Any]], reason: str) -> None:
    scheduled = [{"type": "PodScheduled", "status": "True"}]
    pod = stage_pod(item(STAGE, node="worker", conditions=scheduled, containerStatuses=containers), NOW)
    assert (pod.node, pod.reason) == ("worker", reason)


def test_a_pod_that_the_scheduler_has_not_seen_has_no_reason() -> None:
    assert stage_pod(item(STAGE), NOW).reason == ""


def test_a_pod_of_a_loop_is_one_of_its_item() -> None:
    pod = item(STAGE)
    name = "wf.root.for-loop-1.iteration-iterations(2:2).iteration-item.train.executor(1)"
    pod["metadata"]["annotations"] = {"workflows.argoproj.io/node-name": name}
    assert stage_pod(pod, NOW).stage == "train.2"


def test_only_pods_of_stages_are_ever_ended() -> None:
    labels = [{"shoestring.dev/stage": name} for name in ("train", "settle", "route-train", "router")]
    assert [pod.stage for pod in stage_pods(map(item, labels), NOW)] == ["train", "router"]


def test_only_a_pod_that_has_not_started_and_is_not_deleted_is_pending() -> None:
    leaving = item(STAGE)
    leaving["metadata"]["deletionTimestamp"] = "2026-07-30T10:05:00Z"
    pods = [item(STAGE), item(STAGE, phase="Running"), item(STAGE, phase="Failed"), leaving]
    assert [(pod.pending, pod.lifetime.alive) for pod in stage_pods(pods, NOW)] == [
        (True, True),
        (False, True),
        (False, False),
        (False, False),
    ]


def test_a_pod_that_its_node_still_ends_is_ending_and_one_without_a_node_is_to_be_ended_again() -> None:
    annotation = {"annotations": {ENDED_ANNOTATION: "Silent: why"}}
    pods = [item(STAGE, node="worker", phase="Running"), item(STAGE)]
    for each in pods:
        each["metadata"] |= annotation
    assert [pod.ending for pod in stage_pods([*pods, item(STAGE, node="worker")], NOW)] == [
        True,
        False,
        False,
    ]


def test_a_pod_whose_node_does_not_answer_is_known_by_its_condition() -> None:
    ready = {"type": "Ready", "status": "False", "reason": "NodeNotReady"}
    lost = item(STAGE, node="worker", phase="Running", conditions=[ready])
    starting = item(STAGE, node="worker", conditions=[ready | {"reason": "ContainersNotReady"}])
    assert [pod.node_lost for pod in stage_pods([lost, starting], NOW)] == [True, False]


def test_a_pods_lifetime_begins_when_a_node_takes_it() -> None:
    taken = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-07-30T10:02:00Z"}]
    pod = stage_pod(item(STAGE, node="worker", conditions=taken), NOW)
    assert (pod.since, pod.lifetime.started_at) == (
        datetime(2026, 7, 30, 10, tzinfo=UTC),
        datetime(2026, 7, 30, 10, 2, tzinfo=UTC),
    )


def test_route_and_exit_steps_without_a_node_are_listed_and_can_be_ended(kube: KubeServer) -> None:
    """One that a node has accepted, and a stage's pod, are not among them."""
    found = {
        "route": item({"shoestring.dev/stage": "route-train"}, conditions=[UNSCHEDULABLE]),
        "settle": item({"shoestring.dev/stage": "settle", "shoestring.dev/run": "r-1"}),
        "placed": item({"shoestring.dev/stage": "route-ingest"}, node="worker"),
        "stage": item(STAGE, conditions=[UNSCHEDULABLE]),
    }
    for name, pod in found.items():
        pod["metadata"]["name"] = name
        kube.objects[f"/api/v1/namespaces/ns/pods/{name}"] = pod
    api = KubeApi(f"http://127.0.0.1:{kube.port}", urllib3.PoolManager(), dict)
    pods = KubePendingPods(api, "ns", WallClock())
    route, settle = pods.waiting_steps()
    assert [(each.ref.name, each.stage, each.run_id) for each in (route, settle)] == [
        ("route", "route-train", ""),
        ("settle", "settle", "r-1"),
    ]
    assert route.reason == UNSCHEDULABLE["message"]
    assert [each.ref.name for each in pods.pods()] == ["stage"]
    assert pods.end(route, "TimedOut", "no node took it in time")
    path = "/api/v1/namespaces/ns/pods/route"
    assert kube.written == [f"PATCH {path}", f"PATCH {path}/status"]


NODES = {
    "wf-1": {"name": "wf.root", "phase": "Failed", "type": "DAG"},
    "wf-2": {"name": "wf.root.if", "phase": "Succeeded", "type": "DAG"},
}

PACKED = b64encode(gzip.compress(json.dumps(NODES).encode())).decode()


def cluster_at(port: int) -> KubeCluster:
    api = KubeApi(f"http://127.0.0.1:{port}", urllib3.PoolManager(), dict)
    return KubeCluster((), [], None, WallClock(), lambda: api)


@pytest.mark.parametrize(
    ("nodes", "phases"),
    [
        ({"nodes": NODES}, ("Failed", "Succeeded", "")),
        ({"compressedNodes": PACKED}, ("Failed", "Succeeded", "")),
        ({"offloadNodeStatusVersion": "fnv:784644189"}, (None, None, None)),
        ({}, ("", "", "")),
    ],
)
def test_the_phase_of_a_workflow_and_of_its_nodes(
    kube: KubeServer, nodes: dict[str, Any], phases: tuple[str | None, ...]
) -> None:
    cluster, path = cluster_at(kube.port), "/apis/argoproj.io/v1alpha1/namespaces/ns/workflows/wf"
    # It was deleted.
    assert (cluster.phase("ns/wf"), cluster.phase("ns/wf", "wf.root")) == ("", "")
    kube.objects[path] = {"status": nodes}
    assert cluster.phase("ns/wf") == ""
    kube.objects[path] = {"status": {"phase": "Running", **nodes}}
    assert cluster.phase("ns/wf") == "Running"
    assert tuple(cluster.phase("ns/wf", name) for name in ("wf.root", "wf.root.if", "wf.other")) == phases
    kube.denied.append(f"get {path}")
    assert (cluster.phase("ns/wf"), cluster.phase("ns/wf", "wf.root")) == (None, None)


def test_a_pod_reads_its_notice_from_its_spec_and_gives_a_silent_server_one_short_try(
    kube: KubeServer,
) -> None:
    pod = ClusterPod("ns", "uid-of-train", "train")
    hook = {"lifecycle": {"preStop": {"sleep": {"seconds": 25}}}}
    spec = {"terminationGracePeriodSeconds": 40, "containers": [{"name": "main"} | hook]}
    kube.put("ns", "pods", "train", spec=spec, status={"phase": "Running"})
    assert cluster_at(kube.port).end_notice(pod) == EndNotice(25)
    assert cluster_at(kube.port).end_notice(replace(pod, uid="another")) == EndNotice(0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with pytest.raises(ClusterError, match="does not answer"):
            cluster_at(silent.getsockname()[1]).end_notice(pod)
        silent.settimeout(0.2)
        silent.accept()
        with pytest.raises(TimeoutError):
            silent.accept()
