"""Pods on a real cluster: pending ones are read with the scheduler's message and ended only if unchanged."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import yaml
from kind_cluster import SECURITY, Kind

from shoestring.backends.kubernetes.api import connect
from shoestring.backends.kubernetes.stage_pods import KubePendingPods
from shoestring.backends.local import WallClock
from shoestring.config.world import IMAGES
from shoestring.core.interfaces import StagePod

pytestmark = pytest.mark.kind

NAME = "never-scheduled"
# By label: pods of routers and exit steps are never ended, since they are not routed.
OTHERS = {"route-train": "router-never-scheduled", "settle": "exit-step-never-scheduled"}


@pytest.fixture
def pending_pods(kind: Kind) -> Iterator[KubePendingPods]:
    yield KubePendingPods(connect(kind.context), "default", WallClock())
    kind.kubectl("delete", "pod", NAME, *OTHERS.values(), "--now", "--ignore-not-found", namespace="default")


def create_pod(
    kind: Kind, image: str = IMAGES["base"], name: str = NAME, stage: str = "train", **spec: Any
) -> None:
    """Create a pod like an engine does for a stage, a router or the exit step."""
    container = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "Never",
        "command": ["sleep", "600"],
        "securityContext": SECURITY,
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {"shoestring.dev/stage": stage, "shoestring.dev/run": "r-1"},
        },
        "spec": {"restartPolicy": "Never", "containers": [container]} | spec,
    }
    kind.apply(yaml.safe_dump(pod), namespace="default")


def wait_for_pod(pending_pods: KubePendingPods, is_ready: Callable[[StagePod], object]) -> StagePod:
    until_s = time.monotonic() + 60
    while time.monotonic() < until_s:
        if found := [pod for pod in pending_pods.pods() if is_ready(pod)]:
            return found[0]
        time.sleep(0.2)
    raise AssertionError(f"only {pending_pods.pods()}")


def test_a_pod_that_no_node_takes_has_the_schedulers_message_and_is_ended_if_unchanged(
    kind: Kind, pending_pods: KubePendingPods
) -> None:
    create_pod(kind, nodeSelector={"there": "is-none"})
    pod = wait_for_pod(pending_pods, lambda pod: pod.reason)
    assert (pod.run_id, pod.stage, pod.node) == ("r-1", "train", "")
    assert (pod.ref.namespace, pod.ref.name) == ("default", NAME)
    assert "nodes are available" in pod.reason
    assert not pending_pods.end(replace(pod, version="1"), "TimedOut", pod.reason)
    assert [each.version for each in pending_pods.pods()] == [pod.version]
    assert pending_pods.end(pod, "TimedOut", pod.reason)
    assert not pending_pods.end(pod, "TimedOut", pod.reason)
    (ended,) = pending_pods.pods()
    assert (ended.pending, ended.lifetime.alive, ended.lifetime.started_at) == (False, False, None)
    assert ended.lifetime.reason == f"TimedOut: {pod.reason}"


def test_a_pod_that_cannot_start_has_its_node_and_its_containers_reason(
    kind: Kind, pending_pods: KubePendingPods
) -> None:
    create_pod(kind, image="registry.example.com/there-is-none:1")
    pod = wait_for_pod(pending_pods, lambda pod: pod.node and pod.reason)
    assert "ErrImageNeverPull" in pod.reason
    assert pending_pods.end(pod, "TimedOut", pod.reason)
    # Its node treats it as ended, too, and releases it.
    kind.kubectl("delete", "pod", NAME, "--timeout", "60s", namespace="default")


def test_pending_routers_and_exit_steps_are_listed_apart(kind: Kind, pending_pods: KubePendingPods) -> None:
    for stage, name in OTHERS.items():
        create_pod(kind, name=name, stage=stage, nodeSelector={"there": "is-none"})
    create_pod(kind, nodeSelector={"there": "is-none"})
    pod = wait_for_pod(pending_pods, lambda pod: True)
    assert [each.ref for each in pending_pods.pods()] == [pod.ref] and pod.stage == "train"
    assert {each.stage: each.ref.name for each in pending_pods.waiting_steps()} == OTHERS
