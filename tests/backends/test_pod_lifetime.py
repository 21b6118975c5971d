"""The lifetime of a pod and the reason of its end, from its status."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from shoestring.backends.kubernetes.api import response_time
from shoestring.backends.kubernetes.pod_lifetime import ENDED_ANNOTATION, end_notice, pod_lifetime
from shoestring.core.interfaces import EndNotice

SCHEDULED = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-07-30T10:00:00Z"}
WAITS = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "lastTransitionTime": "2026-07-30T10:00:00Z",
}
NOT_READY = {"type": "Ready", "status": "False", "lastTransitionTime": "2026-07-30T10:07:00Z"}
DISRUPTED = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "PreemptionByScheduler",
    "lastTransitionTime": "2026-07-30T10:06:00Z",
}


def at(minute: int) -> datetime:
    return datetime(2026, 7, 30, 10, minute, tzinfo=UTC)


def ended(minute: int, reason: str = "Completed", code: int = 0) -> dict[str, Any]:
    return {
        "state": {
            "terminated": {
                "reason": reason,
                "exitCode": code,
                "finishedAt": f"2026-07-30T10:{minute:02d}:00Z",
            }
        }
    }


def waiting_container(reason: str) -> dict[str, Any]:
    return {"state": {"waiting": {"reason": reason}}}


RUNS: dict[str, Any] = {"state": {"running": {"startedAt": "2026-07-30T10:01:00Z"}}}


def pod(
    phase: str,
    *containers: dict[str, Any],
    conditions: tuple[dict[str, Any], ...] = (SCHEDULED,),
    **status: Any,
) -> dict[str, Any]:
    return {
        "status": {"phase": phase, "conditions": list(conditions), "containerStatuses": list(containers)}
        | status
    }


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (pod("Running", RUNS), ""),
        (pod("Running", RUNS, ended(3)), ""),
        (pod("Pending", waiting_container("ImagePullBackOff")), "ImagePullBackOff"),
        (pod("Pending", waiting_container("ContainerCreating")), "ContainerCreating"),
    ],
)
def test_a_pod_with_a_node_is_alive_since_it_was_scheduled(found: dict[str, Any], reason: str) -> None:
    life = pod_lifetime(found, at(8))
    assert (life.alive, life.started_at, life.finished_at, life.reason) == (True, at(0), None, reason)


def test_a_pending_pod_is_alive_and_has_not_started() -> None:
    life = pod_lifetime(pod("Pending", conditions=(WAITS,)), at(8))
    assert (life.alive, life.started_at, life.finished_at, life.reason) == (True, None, None, "Pending")


@pytest.mark.parametrize(
    ("found", "minute", "reason"),
    [
        (pod("Succeeded", ended(4), ended(5)), 5, ""),
        (pod("Failed", ended(4, "Error", 3), ended(5)), 5, "Error, exit code 3"),
        (pod("Failed", ended(5), ended(4, "OOMKilled", 137)), 5, "OOMKilled"),
        (
            pod("Failed", ended(4, "Error", 143), conditions=(SCHEDULED, DISRUPTED)),
            4,
            "PreemptionByScheduler",
        ),
        (
            pod(
                "Failed",
                conditions=(SCHEDULED, NOT_READY),
                reason="Evicted",
                message="The node was low on resource: memory. ",
            ),
            7,
            "Evicted: The node was low on resource: memory.",
        ),
        (pod("Failed", ended(6, "Error", 137), reason="DeadlineExceeded"), 6, "DeadlineExceeded"),
    ],
)
def test_a_finished_pod_ended_with_its_last_container_and_gives_the_reason(
    found: dict[str, Any], minute: int, reason: str
) -> None:
    life = pod_lifetime(found, at(8))
    assert (life.alive, life.started_at, life.finished_at, life.reason) == (False, at(0), at(minute), reason)


def test_the_end_of_a_pod_that_timed_out_is_not_read_from_its_status() -> None:
    life = pod_lifetime(
        pod(
            "Failed",
            waiting_container("ImagePullBackOff"),
            conditions=(SCHEDULED, NOT_READY),
            reason="TimedOut",
        ),
        at(8),
    )
    assert (life.alive, life.started_at, life.finished_at) == (False, at(0), None)


def test_the_reapers_reason_stays_when_the_node_has_written_its_own() -> None:
    ended_at_deadline = pod("Failed", ended(6, "Error", 137), reason="DeadlineExceeded")
    annotation = {"annotations": {ENDED_ANNOTATION: "Silent: its last heartbeat is 31 s old"}}
    life = pod_lifetime({"metadata": annotation} | ended_at_deadline, at(8))
    assert (life.reason, life.finished_at) == ("Silent: its last heartbeat is 31 s old", at(6))


def test_a_pod_that_was_ended_has_no_end_while_one_of_its_containers_runs() -> None:
    life = pod_lifetime(pod("Failed", ended(5), RUNS, reason="Silent"), at(8))
    assert (life.alive, life.finished_at) == (False, None)


def test_an_init_container_that_ran_out_of_memory_is_reported() -> None:
    assert (
        pod_lifetime(pod("Failed", initContainerStatuses=[ended(2, "OOMKilled", 137)]), at(8)).reason
        == "OOMKilled"
    )


def test_without_a_scheduling_condition_the_start_time_is_used() -> None:
    assert pod_lifetime(
        pod("Running", RUNS, conditions=(), startTime="2026-07-30T10:02:00Z"), at(8)
    ).started_at == at(2)


LEFT_BEHIND = {"metadata": {"deletionTimestamp": "2026-07-30T10:07:00Z"}} | pod(
    "Running", RUNS, initContainerStatuses=[ended(1)]
)


def test_a_deleted_pod_is_alive_until_a_minute_after_its_grace_period() -> None:
    assert pod_lifetime(LEFT_BEHIND, at(6)).alive and pod_lifetime(LEFT_BEHIND, at(8)).alive


def test_a_pod_on_an_unreachable_node_ended_with_its_grace_period() -> None:
    life = pod_lifetime(LEFT_BEHIND, at(8) + timedelta(seconds=1))
    assert (life.alive, life.started_at, life.finished_at) == (False, at(0), at(7))


def test_a_deleted_pod_that_finished_ended_with_its_last_container() -> None:
    found = {"metadata": {"deletionTimestamp": "2026-07-30T10:07:00Z"}} | pod(
        "Failed", ended(5, "Error", 143)
    )
    assert pod_lifetime(found, at(30)).finished_at == at(5)


@pytest.mark.parametrize("off_s", [-3600, 0, 3600])
def test_the_age_of_a_pod_does_not_depend_on_the_clock_of_its_node(off_s: int) -> None:
    life = pod_lifetime(pod("Running", RUNS), at(8))
    assert life.age_s(at(8) + timedelta(seconds=off_s)) == 480.0


def test_the_server_time_is_read_from_the_date_header_if_there_is_one() -> None:
    assert response_time({"date": "Thu, 30 Jul 2026 10:08:00 GMT"}) == at(8)
    assert response_time({}) is None
    assert response_time({"date": "yesterday"}) is None


DELETED = {"deletionTimestamp": "2026-07-30T10:05:40Z", "deletionGracePeriodSeconds": 40}
"""Deleted at 10:05."""
ENDED = {"annotations": {ENDED_ANNOTATION: "Silent: no heartbeat"}}
BEGAN = "2026-07-30T10:01:00Z"


@pytest.mark.parametrize(
    ("metadata", "spec", "expected"),
    [
        ({}, {}, EndNotice(25)),
        (DELETED, {}, EndNotice(25, "its pod is being deleted")),
        # A second, shorter deletion.
        (DELETED | {"deletionGracePeriodSeconds": 5}, {}, EndNotice(5, "its pod is being deleted")),
        ({}, {"activeDeadlineSeconds": 3600}, EndNotice(25)),
        ({}, {"activeDeadlineSeconds": 240}, EndNotice(25, "DeadlineExceeded: its pod's 240 s are over")),
        (ENDED, {"activeDeadlineSeconds": 1}, EndNotice(25, "Silent: no heartbeat")),
        (DELETED, {"terminationGracePeriodSeconds": 10}, EndNotice(10, "its pod is being deleted")),
        (DELETED, {"containers": [{"name": "main"}]}, EndNotice(0, "its pod is being deleted")),
        ({}, {"containers": [{"lifecycle": {"preStop": {"exec": {"command": ["sleep"]}}}}]}, EndNotice(0)),
    ],
)
def test_a_pod_has_notice_of_its_end_for_the_seconds_of_its_hook(
    metadata: dict[str, Any], spec: dict[str, Any], expected: EndNotice
) -> None:
    hook = {"lifecycle": {"preStop": {"sleep": {"seconds": 25}}}}
    own = {"terminationGracePeriodSeconds": 40, "containers": [{"name": "wait"}, {"name": "main"} | hook]}
    item = {"metadata": metadata, "spec": own | spec, "status": {"phase": "Running", "startTime": BEGAN}}
    assert end_notice(item, at(5)) == expected
