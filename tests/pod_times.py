"""When a pod ran, by the times in its status."""

from __future__ import annotations

from datetime import datetime
from typing import Any


def parse_time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def scheduled_at(pod: dict[str, Any]) -> datetime:
    """Return when a node accepted a pod."""
    conditions = pod["status"]["conditions"]
    return parse_time(
        next(each["lastTransitionTime"] for each in conditions if each["type"] == "PodScheduled")
    )


def container_end(pod: dict[str, Any]) -> datetime | None:
    """Return when the last container of a pod ended; None: one has not ended."""
    states = [each["state"].get("terminated") for each in pod["status"].get("containerStatuses", [])]
    if not states or not all(states):
        return None
    return max(parse_time(state["finishedAt"]) for state in states)


def lived_s(pod: dict[str, Any]) -> float:
    """Return the seconds from a pod's scheduling to the end of its last container."""
    ended = container_end(pod)
    assert ended
    return (ended - scheduled_at(pod)).total_seconds()
