"""When a pod lived, and what the cluster says of its end, read off its status."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from shoestring.backends.kubernetes.api import moment_of
from shoestring.backends.kubernetes.cluster import life_of

SCHEDULED = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-07-30T10:00:00Z"}
WAITS = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "lastTransitionTime": "2026-07-30T10:00:00Z",
}
TURNED = {"type": "Ready", "status": "False", "lastTransitionTime": "2026-07-30T10:07:00Z"}
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


def waits_for(reason: str) -> dict[str, Any]:
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
    ("found", "why"),
    [
        (pod("Running", RUNS), ""),
        (pod("Running", RUNS, ended(3)), ""),
        (pod("Pending", waits_for("ImagePullBackOff")), "ImagePullBackOff"),
        (pod("Pending", waits_for("ContainerCreating")), "ContainerCreating"),
    ],
)
def test_a_pod_that_has_a_node_is_alive_since_it_was_given_one(found: dict[str, Any], why: str) -> None:
    life = life_of(found, at(8))
    assert (life.alive, life.started_at, life.finished_at, life.reason) == (True, at(0), None, why)


def test_a_pod_that_no_node_took_is_alive_and_has_not_begun() -> None:
    life = life_of(pod("Pending", conditions=(WAITS,)), at(8))
    assert (life.alive, life.started_at, life.finished_at, life.reason) == (True, None, None, "Pending")


@pytest.mark.parametrize(
    ("found", "minute", "why"),
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
                conditions=(SCHEDULED, TURNED),
                reason="Evicted",
                message="The node was low on resource: memory. ",
            ),
            7,
            "Evicted: The node was low on resource: memory.",
        ),
        (pod("Failed", ended(6, "Error", 137), reason="DeadlineExceeded"), 6, "DeadlineExceeded"),
    ],
)
def test_a_pod_that_ended_did_so_with_its_last_container_and_says_why(
    found: dict[str, Any], minute: int, why: str
) -> None:
    life = life_of(found, at(8))
    assert (life.alive, life.started_at, life.finished_at, life.reason) == (False, at(0), at(minute), why)


def test_of_a_pod_that_was_given_up_nothing_but_the_books_says_when() -> None:
    life = life_of(
        pod("Failed", waits_for("ImagePullBackOff"), conditions=(SCHEDULED, TURNED), reason="GivenUp"), at(8)
    )
    assert (life.alive, life.started_at, life.finished_at) == (False, at(0), None)


def test_memory_that_an_init_container_ran_out_of_is_told_too() -> None:
    assert (
        life_of(pod("Failed", initContainerStatuses=[ended(2, "OOMKilled", 137)]), at(8)).reason == "OOMKilled"
    )


def test_where_no_condition_tells_when_it_was_scheduled_its_start_stands_in() -> None:
    assert life_of(
        pod("Running", RUNS, conditions=(), startTime="2026-07-30T10:02:00Z"), at(8)
    ).started_at == at(2)


LEFT_BEHIND = {"metadata": {"deletionTimestamp": "2026-07-30T10:07:00Z"}} | pod(
    "Running", RUNS, initContainerStatuses=[ended(1)]
)


def test_a_deleted_pod_has_its_grace_and_a_minute_more() -> None:
    assert life_of(LEFT_BEHIND, at(6)).alive and life_of(LEFT_BEHIND, at(8)).alive


def test_a_pod_whose_node_does_not_answer_any_more_ended_when_it_should_have() -> None:
    life = life_of(LEFT_BEHIND, at(8) + timedelta(seconds=1))
    assert (life.alive, life.started_at, life.finished_at) == (False, at(0), at(7))


def test_a_deleted_pod_that_ended_did_so_with_its_last_container() -> None:
    found = {"metadata": {"deletionTimestamp": "2026-07-30T10:07:00Z"}} | pod(
        "Failed", ended(5, "Error", 143)
    )
    assert life_of(found, at(30)).finished_at == at(5)


@pytest.mark.parametrize("off_s", [-3600, 0, 3600])
def test_how_old_a_pod_is_does_not_depend_on_the_clock_of_its_node(off_s: int) -> None:
    life = life_of(pod("Running", RUNS), at(8))
    assert life.age_s(at(8) + timedelta(seconds=off_s)) == 480.0


def test_a_server_says_when_it_answered_and_one_that_does_not_is_no_trouble() -> None:
    assert moment_of({"date": "Thu, 30 Jul 2026 10:08:00 GMT"}) == at(8)
    assert moment_of({}) is None
    assert moment_of({"date": "yesterday"}) is None
