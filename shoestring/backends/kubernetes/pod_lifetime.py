"""When a pod ran, why it ended and that it is to end, as the API has it; the nodes of a Workflow."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, get_args

from pydantic_core import from_json

from shoestring.backends.kubernetes.api import Item
from shoestring.core.interfaces import EndNotice, EndReason, PodLifetime
from shoestring.core.pod_ref import item_of_node

NODE_ANNOTATION = "workflows.argoproj.io/node-name"
"""Argo sets it on each pod, also for Kubeflow: the name of its node in its Workflow."""
FINISHED_PHASES = ("Succeeded", "Failed")
ENDED_ANNOTATION = "shoestring.dev/ended"
"""Why the reaper ended a pod: an EndReason, and its sentence."""
DELETION_GRACE = timedelta(seconds=60)
"""Added to a deleted pod's deletionTimestamp, which is the end of its grace period, for clock skew and a slow
kubelet.
"""


def pod_lifetime(pod: Mapping[str, Any], now: datetime) -> PodLifetime:
    """Return the lifetime of a pod by its status. `now` is the cluster's time.

    A pod that should have gone DELETION_GRACE ago counts as dead: its node does not answer, and may never
    answer again.
    """
    status, metadata = pod.get("status") or {}, pod.get("metadata") or {}
    deleted = metadata.get("deletionTimestamp")
    due = _parse_time(deleted) if deleted else None
    overdue = due if due and now - due > DELETION_GRACE else None
    is_finished = status.get("phase") in FINISHED_PHASES
    containers = container_statuses(status)
    terminated = [state for each in containers if (state := (each.get("state") or {}).get("terminated"))]
    conditions = {
        each["type"]: each for each in status.get("conditions") or [] if each.get("status") == "True"
    }
    ended = (metadata.get("annotations") or {}).get(ENDED_ANNOTATION) if is_finished else None
    scheduled = (conditions.get("PodScheduled") or {}).get("lastTransitionTime") or status.get("startTime")
    return PodLifetime(
        alive=not is_finished and overdue is None,
        started_at=_parse_time(scheduled) if scheduled else None,
        finished_at=max(_end_times(status, containers), default=None) if is_finished else overdue,
        reason=ended or _reason(status, containers, terminated, conditions),
        asked_at=now,
    )


def item_of_pod(pod: Mapping[str, Any]) -> str:
    """Return the item of a pod's task in the loops around it, by its engine's annotation."""
    return item_of_node((pod["metadata"].get("annotations") or {}).get(NODE_ANNOTATION, ""))


def end_notice(pod: Mapping[str, Any], now: datetime) -> EndNotice:
    """Return the notice of a pod that runs. `now` is the cluster's time.

    Before the first signal its kubelet runs the hooks of its containers, within the grace period; also once
    its activeDeadlineSeconds have passed, which is how the reaper ends a pod.
    """
    metadata, spec, status = pod.get("metadata") or {}, pod.get("spec") or {}, pod.get("status") or {}
    notice_s = min(_hook_s(spec), float(spec.get("terminationGracePeriodSeconds") or 0))
    if metadata.get("deletionTimestamp"):
        # A second deletion may shorten the grace period of the first.
        grace_s = float(metadata.get("deletionGracePeriodSeconds") or 0)
        return EndNotice(min(notice_s, grace_s), "its pod is being deleted")
    deadline_s, began = spec.get("activeDeadlineSeconds"), status.get("startTime")
    if deadline_s is None or not began or now < _parse_time(began) + timedelta(seconds=deadline_s):
        return EndNotice(notice_s)
    ended = (metadata.get("annotations") or {}).get(ENDED_ANNOTATION)
    return EndNotice(notice_s, ended or f"DeadlineExceeded: its pod's {deadline_s} s are over")


def _hook_s(spec: Mapping[str, Any]) -> float:
    """Return the seconds that the preStop hooks of a pod's containers sleep, the shortest of those that have
    one; 0: none has.
    """
    stops = [(each.get("lifecycle") or {}).get("preStop") or {} for each in spec.get("containers") or []]
    sleeps = [float(seconds) for stop in stops if (seconds := (stop.get("sleep") or {}).get("seconds"))]
    return min(sleeps, default=0.0)


def container_statuses(status: Mapping[str, Any]) -> list[Any]:
    return [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]


def _end_times(status: Mapping[str, Any], containers: list[Any]) -> list[datetime]:
    """Return the times at which containers ended; without any, those of the last changes of the pod's
    conditions. Nothing while a container of a pod that was ended still runs.

    An evicted pod may have no container status, but its conditions changed when it ended. Those of a pod that
    the reaper ended did not.
    """
    states = [each.get("state") or {} for each in containers]
    if any("running" in state for state in states):
        return []
    terminated = [state["terminated"] for state in states if state.get("terminated")]
    if ends := [state["finishedAt"] for state in terminated if state.get("finishedAt")]:
        return list(map(_parse_time, ends))
    if status.get("reason") in get_args(EndReason):
        return []
    changes = (each.get("lastTransitionTime") for each in status.get("conditions") or [])
    return [_parse_time(change) for change in changes if change]


def _reason(
    status: Mapping[str, Any], containers: list[Any], terminated: list[Any], conditions: Mapping[str, Any]
) -> str:
    """Return the most informative reason: out of memory, what the cluster did to the pod, an exit code, what
    the pod waits for.
    """
    if any(state.get("reason") == "OOMKilled" for state in terminated):
        return "OOMKilled"
    if disruption := status.get("reason") or (conditions.get("DisruptionTarget") or {}).get("reason"):
        return ": ".join(filter(None, (disruption, status.get("message", "").strip())))
    if failed := [state for state in terminated if state.get("exitCode")]:
        return f"{failed[0].get('reason', 'Error')}, exit code {failed[0]['exitCode']}"
    if status.get("phase") == "Pending":
        waiting = [(each.get("state") or {}).get("waiting", {}).get("reason", "") for each in containers]
        return next(filter(None, waiting), "Pending")
    return ""


def _parse_time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def workflow_nodes(status: Mapping[str, Any]) -> dict[str, Item] | None:
    """Return the nodes in a Workflow's status, by id. A controller packs those of a large Workflow; None: it
    keeps them in a database of its own.
    """
    if packed := status.get("compressedNodes"):
        found: dict[str, Item] = from_json(gzip.decompress(base64.b64decode(packed)))
        return found
    return None if status.get("offloadNodeStatusVersion") else status.get("nodes") or {}


def node_phase(status: Mapping[str, Any], name: str) -> str | None:
    """Return the phase of the node of this name; empty: there is none; None: the nodes are elsewhere."""
    nodes = workflow_nodes(status)
    if nodes is None:
        return None
    return next((str(node.get("phase", "")) for node in nodes.values() if node["name"] == name), "")
