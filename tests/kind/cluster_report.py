"""Report the state of the cluster after a failed test, and whether the cluster itself failed."""

from __future__ import annotations

import json
import re
import subprocess
from datetime import UTC, datetime, timedelta
from typing import Any

from engine_scenarios.engine import Place
from kind_cluster import NAMESPACE, Kind

from shoestring.backends.kubernetes.pod_lifetime import ENDED_ANNOTATION
from shoestring.routing.placement import RUN_LABEL

RECENT = timedelta(minutes=10)
"""About as long as the longest test takes."""
MAX_EVENTS, MAX_PODS, MAX_LOG_LINES, MAX_ERROR_LINES = 15, 4, 15, 10
CLUSTER_FAULTS = re.compile(
    r"ErrImagePull|ImagePullBackOff|Failed to pull image|NodeNotReady|[Ff]ailed to (update|renew) lease"
    r"|failed calling webhook|etcdserver: |TLS handshake timeout|The connection to the server \S+ was refused"
)
"""A pull of an image, a node that lost its lease, a webhook or an API server that was not up."""


def cluster_fault(kind: Kind, error: BaseException | None) -> str:
    """Return the cluster's own fault that the error or a recent event names; empty if there is none."""
    recent = (text_of(event) for event in events(kind) if is_recent(event))
    return next((found[0] for text in (str(error), *recent) if (found := CLUSTER_FAULTS.search(text))), "")


def kubectl(kind: Kind, *arguments: str, namespace: str = NAMESPACE) -> str:
    """Return what kubectl printed, also of a failure; empty if it or its server does not answer."""
    try:
        done = Place(kind.context, namespace).try_kubectl(*arguments, timeout_s=30.0)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.out or done.err


def items(kind: Kind, kinds: str) -> list[dict[str, Any]]:
    """Return the objects of all namespaces; none if the API server does not answer."""
    try:
        return list(json.loads(kubectl(kind, "get", kinds, "--all-namespaces", "--output=json"))["items"])
    except ValueError:
        return []


def events(kind: Kind) -> list[dict[str, Any]]:
    """Return the events, oldest first."""
    return sorted(items(kind, "events"), key=time_of)


def time_of(event: dict[str, Any]) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"]["creationTimestamp"])


def text_of(event: dict[str, Any]) -> str:
    return f"{event.get('reason', '')}: {event.get('message', '')}"


def is_recent(event: dict[str, Any]) -> bool:
    return datetime.fromisoformat(time_of(event)) > datetime.now(UTC) - RECENT


def describe_failure(kind: Kind, test: str, failure: str) -> str:
    """Return the failure's error, the last events, and the last log lines of the pods of the runs that the
    failure names; if it names none, of the newest pods that did not succeed.
    """
    errors = [line for line in failure.splitlines() if line.startswith("E ")]
    lines = [f"{test}:", *errors[:MAX_ERROR_LINES]]
    for event in events(kind)[-MAX_EVENTS:]:
        about = f"{event['involvedObject'].get('kind')} {event['involvedObject'].get('name')}"
        lines.append(f"  {time_of(event)} {about}: {text_of(event)}")
    for pod in pods_of(kind, failure):
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        logs = kubectl(kind, "logs", name, "--container=main", f"--tail={MAX_LOG_LINES}", namespace=namespace)
        ended = (pod["metadata"].get("annotations") or {}).get(ENDED_ANNOTATION)
        message = ended or pod["status"].get("message", "its log:")
        lines.append(f"  pod {name}, {pod['status'].get('phase')}, {message}")
        lines += [f"    {line}" for line in logs.splitlines()]
    return "\n".join(lines)


def pods_of(kind: Kind, failure: str) -> list[dict[str, Any]]:
    found = [pod for pod in items(kind, "pods") if RUN_LABEL in (pod["metadata"].get("labels") or {})]
    found.sort(key=lambda pod: str(pod["metadata"]["creationTimestamp"]), reverse=True)
    named = [pod for pod in found if pod["metadata"]["labels"][RUN_LABEL] in failure]
    return (named or [pod for pod in found if pod["status"].get("phase") != "Succeeded"])[:MAX_PODS]
