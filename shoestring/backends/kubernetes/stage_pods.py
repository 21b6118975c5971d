"""Stage pods of one namespace, and the end of those that have not begun: for the sweeper, which alone has the right to it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from shoestring.backends.kubernetes.api import Kube, connect
from shoestring.backends.kubernetes.cluster import GIVEN_UP, life_of
from shoestring.backends.local import WallClock
from shoestring.core.errors import ClusterError
from shoestring.core.interfaces import Clock, StagePod
from shoestring.routing.placement import KUBEFLOW_RUN_LABEL, RUN_LABEL, STAGE_LABEL, is_stage

# https://kubernetes.io/docs/concepts/containers/images/#imagepullbackoff and its like: without one, a container is being made.
BEGINS = ("ContainerCreating", "PodInitializing", "")


class KubeWaiting:
    def __init__(self, kube: Kube, namespace: str, clock: Clock) -> None:
        self._kube, self._path, self._clock = kube, f"/api/v1/namespaces/{namespace}/pods", clock
        self._where = f"in namespace {namespace}"

    def pods(self) -> tuple[StagePod, ...]:
        """Raises ClusterError."""
        found = self._kube.list(
            self._path,
            f"list pods {self._where}",
            labelSelector=STAGE_LABEL,
            fieldSelector="status.phase!=Succeeded",
        )
        return stage_pods(found, self._kube.answered_at or self._clock.now())

    def end(self, pod: StagePod) -> bool:
        """Raises ClusterError.

        The pod is said to have failed, which the scheduler and its node both take for its end. It is not deleted: Argo makes a pod
        again, in the same place, of which it saw nothing but that it was Pending before it was gone.
        """
        _, uid, name = pod.pod_uid.split(".", 2)
        where = f"it did not begin on {pod.node} in time" if pod.node else "no node took it in time"
        failed = {
            "phase": "Failed",
            "reason": GIVEN_UP,
            "message": where + (f": {pod.reason}" if pod.reason else ""),
        }
        return self._kube.set_status(
            f"{self._path}/{name}", failed, f"patch pods/status {self._where}", uid=uid, version=pod.version
        )


def stage_pods(items: Iterable[Mapping[str, Any]], now: datetime) -> tuple[StagePod, ...]:
    """The stages' own. Routers and exit steps have such a label too, and nobody would route them elsewhere."""
    return tuple(stage_pod(item, now) for item in items if is_stage(item["metadata"]["labels"][STAGE_LABEL]))


def stage_pod(item: Mapping[str, Any], now: datetime) -> StagePod:
    meta, status = item["metadata"], item.get("status") or {}
    labels, node = meta["labels"], (item.get("spec") or {}).get("nodeName") or ""
    return StagePod(
        pod_uid=f"{meta['namespace']}.{meta['uid']}.{meta['name']}",
        run_id=labels.get(RUN_LABEL) or labels.get(KUBEFLOW_RUN_LABEL) or "",
        stage=labels[STAGE_LABEL],
        since=datetime.fromisoformat(meta["creationTimestamp"]),
        node=node,
        # One that is leaving waits no more.
        pending=status.get("phase") == "Pending" and not meta.get("deletionTimestamp"),
        reason=_container_waits_for(status) if node else _scheduler_says(status),
        version=meta["resourceVersion"],
        lifetime=life_of(item, now),
    )


def _scheduler_says(status: Mapping[str, Any]) -> str:
    """Like "0/3 nodes are available: 3 Insufficient cpu." """
    said = [
        each.get("message", "") for each in status.get("conditions") or [] if each["type"] == "PodScheduled"
    ]
    return " ".join(filter(None, said))


def _container_waits_for(status: Mapping[str, Any]) -> str:
    containers = [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]
    waits = [(each.get("state") or {}).get("waiting") or {} for each in containers]
    said = [
        f"{wait['reason']}: {wait.get('message', '')}".rstrip(": ")
        for wait in waits
        if wait.get("reason", "") not in BEGINS
    ]
    return "; ".join(dict.fromkeys(said))


def open_waiting() -> KubeWaiting:
    """Of the namespace that this pod is in. Raises ClusterError."""
    namespace = os.environ.get("SHOESTRING_POD_NAMESPACE")
    if not namespace:
        raise ClusterError(
            "which namespace is to be swept? Set SHOESTRING_POD_NAMESPACE, as manifests/base/sweeper.yaml does"
        )
    return KubeWaiting(connect(), namespace, WallClock())
