"""The stage pods of one namespace, its route and exit steps, and the right to end them, which only the
reaper's account has.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from shoestring.backends.kubernetes.api import Item, KubeApi, connect
from shoestring.backends.kubernetes.pod_lifetime import (
    ENDED_ANNOTATION,
    container_statuses,
    item_of_pod,
    pod_lifetime,
)
from shoestring.backends.kubernetes.rights import REAPER, Right
from shoestring.backends.local import WallClock
from shoestring.core.attempt_id import item_stage
from shoestring.core.errors import ClusterError
from shoestring.core.interfaces import Clock, EndReason, StagePod
from shoestring.core.pod_ref import ClusterPod
from shoestring.routing.placement import KUBEFLOW_RUN_LABEL, RUN_LABEL, STAGE_LABEL, is_stage

NODE_NOT_READY = "NodeNotReady"
"""The reason that the cluster gives a pod for not being ready once its node does not answer."""
STARTING_REASONS = ("ContainerCreating", "PodInitializing", "")
"""Reasons with which a waiting container is being created.

Any other, such as ImagePullBackOff, is an obstacle.
"""


class KubePendingPods:
    """The stage pods of one namespace."""

    def __init__(self, api: KubeApi, namespace: str, clock: Clock) -> None:
        self._api, self._path, self._clock = api, f"/api/v1/namespaces/{namespace}/pods", clock
        self._namespace = namespace

    def pods(self) -> tuple[StagePod, ...]:
        """Return all stage pods that have not succeeded. Raises ClusterError."""
        return stage_pods(*self._listed("status.phase!=Succeeded"))

    def waiting_steps(self) -> tuple[StagePod, ...]:
        """Return the pods of route and exit steps that no node has accepted. Raises ClusterError."""
        return waiting_steps(*self._listed("status.phase=Pending"))

    def _listed(self, phase: str) -> tuple[Iterator[Item], datetime]:
        """Return Shoestring's pods in a phase, page by page, and the time by the server's clock."""
        right = self._right("list", "pods")
        found = self._api.list(self._path, right, labelSelector=STAGE_LABEL, fieldSelector=phase)
        return found, self._api.server_time or self._clock.now()

    def end(self, pod: StagePod, reason: EndReason, message: str) -> bool:
        """End a pod; return False if it changed since it was read. Raises ClusterError.

        Its node ends it at its deadline, which is brought to its first second: it kills the containers after
        the pod's grace period, and then reports a failed pod. The annotation keeps the reason. A status alone
        does not end a running pod: its kubelet writes its own over it within 10 s. It ends a pod that has no
        node, and, for the engine, one whose node does not answer. The pod is not deleted: its times are still
        to be read, and Argo recreates, in the same place, a pod that it only saw as Pending before it
        disappeared.
        """
        path, uid = f"{self._path}/{pod.ref.name}", pod.ref.uid
        overdue = {
            "metadata": {"annotations": {ENDED_ANNOTATION: f"{reason}: {message}"}},
            "spec": {"activeDeadlineSeconds": 1},
        }
        if not self._api.patch(path, overdue, self._right("patch", "pods"), uid=uid, version=pod.version):
            return False
        if pod.node_lost or not pod.node:
            failed = {"status": {"phase": "Failed", "reason": reason, "message": message}}
            self._api.patch(f"{path}/status", failed, self._right("patch", "pods/status"), uid=uid)
        return True

    def _right(self, verb: str, resource: str) -> Right:
        return Right(verb, resource, self._namespace, REAPER)


def stage_pods(items: Iterable[Mapping[str, Any]], now: datetime) -> tuple[StagePod, ...]:
    """Return the pods of stages.

    Routers and exit steps carry the label, too, but are not routed, so they are left out.
    """
    return tuple(stage_pod(item, now) for item in items if is_stage(item["metadata"]["labels"][STAGE_LABEL]))


def waiting_steps(items: Iterable[Mapping[str, Any]], now: datetime) -> tuple[StagePod, ...]:
    """Return the pods of route and exit steps that no node has accepted."""
    steps = (stage_pod(item, now) for item in items if not is_stage(item["metadata"]["labels"][STAGE_LABEL]))
    return tuple(pod for pod in steps if pod.pending and not pod.node)


def stage_pod(item: Mapping[str, Any], now: datetime) -> StagePod:
    meta, status = item["metadata"], item.get("status") or {}
    labels, node = meta["labels"], (item.get("spec") or {}).get("nodeName") or ""
    ready = [each for each in status.get("conditions") or [] if each["type"] == "Ready"]
    return StagePod(
        ref=ClusterPod(meta["namespace"], meta["uid"], meta["name"]),
        run_id=labels.get(RUN_LABEL) or labels.get(KUBEFLOW_RUN_LABEL) or "",
        stage=item_stage(labels[STAGE_LABEL], item_of_pod(item)),
        since=datetime.fromisoformat(meta["creationTimestamp"]),
        node=node,
        # A pod that is being deleted is no longer pending.
        pending=status.get("phase") == "Pending" and not meta.get("deletionTimestamp"),
        reason=_container_obstacle(status) if node else _scheduler_message(status),
        version=meta["resourceVersion"],
        lifetime=pod_lifetime(item, now),
        ending=bool(node) and ENDED_ANNOTATION in (meta.get("annotations") or {}),
        node_lost=any(each.get("reason") == NODE_NOT_READY for each in ready),
    )


def _scheduler_message(status: Mapping[str, Any]) -> str:
    """Return the scheduler's message, such as "0/3 nodes are available: 3 Insufficient cpu."."""
    messages = [
        each.get("message", "") for each in status.get("conditions") or [] if each["type"] == "PodScheduled"
    ]
    return " ".join(filter(None, messages))


def _container_obstacle(status: Mapping[str, Any]) -> str:
    """Return why containers do not start, such as "ImagePullBackOff: ..."; empty while they are being
    created.
    """
    waiting = [(each.get("state") or {}).get("waiting") or {} for each in container_statuses(status)]
    reasons = [
        f"{each['reason']}: {each.get('message', '')}".rstrip(": ")
        for each in waiting
        if each.get("reason", "") not in STARTING_REASONS
    ]
    return "; ".join(dict.fromkeys(reasons))


def open_pending_pods(context: str | None = None, namespace: str = "") -> KubePendingPods:
    """Return the stage pods of a namespace of a kubeconfig's context; without them, of this pod's namespace.

    Raises ClusterError.
    """
    namespace = namespace or os.environ.get("SHOESTRING_POD_NAMESPACE", "")
    if not namespace:
        raise ClusterError(
            "the namespace to reap is not known: set SHOESTRING_POD_NAMESPACE, as manifests/base/reaper.yaml "
            "does"
        )
    return KubePendingPods(connect(context), namespace, WallClock())
