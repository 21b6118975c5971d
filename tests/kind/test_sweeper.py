"""Pods that no node takes, on a real cluster: seen with what the scheduler says, and ended only as they were seen."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import yaml
from kind_cluster import SECURITY, Kind

from shoestring.backends.kubernetes.api import connect
from shoestring.backends.kubernetes.stage_pods import KubeWaiting
from shoestring.backends.local import WallClock
from shoestring.config.world import IMAGES
from shoestring.core.interfaces import StagePod

pytestmark = pytest.mark.kind

NAME = "waits-in-vain"
# By their label: these wait as long as it takes, since nobody routes them.
OTHERS = {"route-train": "router-waits-in-vain", "settle": "exit-step-waits-in-vain"}


@pytest.fixture
def waiting(kind: Kind) -> Iterator[KubeWaiting]:
    yield KubeWaiting(connect(kind.context), "default", WallClock())
    kind.kubectl("delete", "pod", NAME, *OTHERS.values(), "--now", "--ignore-not-found", namespace="default")


def make(
    kind: Kind, image: str = IMAGES["base"], name: str = NAME, stage: str = "train", **spec: Any
) -> None:
    """A pod as an engine makes it for a stage, a router or the exit step."""
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


def seen(waiting: KubeWaiting, enough: Callable[[StagePod], object]) -> StagePod:
    until_s = time.monotonic() + 60
    while time.monotonic() < until_s:
        if found := [pod for pod in waiting.pods() if enough(pod)]:
            return found[0]
        time.sleep(0.2)
    raise AssertionError(f"only {waiting.pods()}")


def test_a_pod_that_no_node_takes_is_seen_with_the_schedulers_words_and_ended_as_it_was_seen(
    kind: Kind, waiting: KubeWaiting
) -> None:
    make(kind, nodeSelector={"there": "is-none"})
    pod = seen(waiting, lambda pod: pod.reason)
    assert (pod.run_id, pod.stage, pod.node) == ("r-1", "train", "")
    assert pod.pod_uid.startswith("default.") and pod.pod_uid.endswith(f".{NAME}")
    assert "nodes are available" in pod.reason
    assert not waiting.end(replace(pod, version="1"))
    assert [each.version for each in waiting.pods()] == [pod.version]
    assert waiting.end(pod)
    assert not waiting.end(pod)
    (ended,) = waiting.pods()
    assert (ended.pending, ended.lifetime.alive, ended.lifetime.started_at) == (False, False, None)
    assert ended.lifetime.reason == f"GivenUp: no node took it in time: {pod.reason}"


def test_a_pod_that_cannot_begin_is_seen_on_its_node_with_what_its_container_waits_for(
    kind: Kind, waiting: KubeWaiting
) -> None:
    make(kind, image="registry.example.com/there-is-none:1")
    pod = seen(waiting, lambda pod: pod.node and pod.reason)
    assert "ErrImageNeverPull" in pod.reason
    assert waiting.end(pod)
    # Its node, too, holds it to be over, and lets it go.
    kind.kubectl("delete", "pod", NAME, "--timeout", "60s", namespace="default")


def test_a_router_and_an_exit_step_that_wait_are_not_the_sweepers(kind: Kind, waiting: KubeWaiting) -> None:
    for stage, name in OTHERS.items():
        make(kind, name=name, stage=stage, nodeSelector={"there": "is-none"})
    make(kind, nodeSelector={"there": "is-none"})
    pod = seen(waiting, lambda pod: True)
    assert [each.pod_uid for each in waiting.pods()] == [pod.pod_uid] and pod.stage == "train"
