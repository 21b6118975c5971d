"""What the API server says of a pod that has not begun, as the sweeper sees it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from shoestring.backends.kubernetes.stage_pods import stage_pod, stage_pods

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
def test_a_run_is_known_by_our_label_and_else_by_kubeflows(labels: dict[str, str], run_id: str) -> None:
    pod = stage_pod(item(STAGE | labels, conditions=[UNSCHEDULABLE]), NOW)
    assert (pod.run_id, pod.stage, pod.pod_uid, pod.version) == (run_id, "train", "ns.7d9f.a.pod", "42")
    assert pod.since == datetime(2026, 7, 30, 10, tzinfo=UTC)
    assert (pod.node, pod.reason) == ("", UNSCHEDULABLE["message"])


def waits(reason: str, message: str = "") -> dict[str, Any]:
    return {"state": {"waiting": {"reason": reason} | ({"message": message} if message else {})}}


@pytest.mark.parametrize(
    ("containers", "why"),
    [
        ([waits("ContainerCreating")], ""),
        ([waits("ImagePullBackOff", "Back-off pulling image")], "ImagePullBackOff: Back-off pulling image"),
        (
            [waits("ErrImageNeverPull"), waits("PodInitializing"), waits("ErrImageNeverPull")],
            "ErrImageNeverPull",
        ),
        ([], ""),
    ],
)
def test_on_a_node_it_waits_for_its_containers(containers: list[dict[str, Any]], why: str) -> None:
    scheduled = [{"type": "PodScheduled", "status": "True"}]
    pod = stage_pod(item(STAGE, node="worker", conditions=scheduled, containerStatuses=containers), NOW)
    assert (pod.node, pod.reason) == ("worker", why)


def test_a_pod_that_nobody_has_looked_at_yet_waits_for_no_stated_reason() -> None:
    assert stage_pod(item(STAGE), NOW).reason == ""


def test_of_a_runs_pods_only_a_stage_is_ever_given_up() -> None:
    labels = [{"shoestring.dev/stage": name} for name in ("train", "settle", "route-train", "router")]
    assert [pod.stage for pod in stage_pods(map(item, labels), NOW)] == ["train", "router"]


def test_only_what_has_not_begun_and_is_not_leaving_waits() -> None:
    leaving = item(STAGE)
    leaving["metadata"]["deletionTimestamp"] = "2026-07-30T10:05:00Z"
    pods = [item(STAGE), item(STAGE, phase="Running"), item(STAGE, phase="Failed"), leaving]
    assert [(pod.pending, pod.lifetime.alive) for pod in stage_pods(pods, NOW)] == [
        (True, True),
        (False, True),
        (False, False),
        (False, False),
    ]


def test_a_node_has_a_pod_from_the_moment_that_it_took_it() -> None:
    taken = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-07-30T10:02:00Z"}]
    pod = stage_pod(item(STAGE, node="worker", conditions=taken), NOW)
    assert (pod.since, pod.lifetime.started_at) == (
        datetime(2026, 7, 30, 10, tzinfo=UTC),
        datetime(2026, 7, 30, 10, 2, tzinfo=UTC),
    )
