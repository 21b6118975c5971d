"""A pool and a market as the exact values that reach a pod."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from shoestring.core.types import Placement, Toleration
from shoestring.routing.decision import Decision

GPU_RESOURCE = "nvidia.com/gpu"
# By these a stage's pod is known on a cluster; a router's has the stage's name after ROUTE, the exit step's
# says SETTLE.
STAGE_LABEL, RUN_LABEL = "shoestring.dev/stage", "shoestring.dev/run"
ROUTE, SETTLE = "route-", "settle"
# Kubeflow's own, on every pod: its job id, which is the run's id there.
KUBEFLOW_RUN_LABEL = "pipeline/runid"


def is_stage(label: str) -> bool:
    """Is this the label of a stage's own pod?"""
    return label != SETTLE and not label.startswith(ROUTE)


def placed(decision: Decision) -> Placement:
    """The placement that a decision chose. Raises ValueError when it chose nothing."""
    if decision.placement is None:
        raise ValueError(
            f"the decision for {decision.question.stage} chose nothing: there is nothing to place"
        )
    return decision.placement


def driver_outputs(decision: Decision, decision_key: str) -> dict[str, Any]:
    """What the route step returns: a dict, a list, a dict and strings, nothing else.

    KFP's driver reads a selector that is a string as an empty one, and an accelerator count that is a number
    as none, both without a word; an empty cpu or memory fails the stage. An accelerator of "" is how a pod
    without one is asked for.

    Raises:
        ValueError: the decision chose nothing.
    """
    placement = placed(decision)
    return {
        "node_selector": dict(placement.node_selector),
        "tolerations": as_kubernetes(placement.tolerations),
        "affinity": dict(placement.affinity),
        "cpu": placement.cpu,
        "memory": placement.memory,
        "accelerator": placement.accelerator,
        "accelerator_count": placement.accelerator_count,
        "image": placement.image,
        "decision_key": decision_key,
    }


def argo_patch(decision: Decision) -> str:
    """The same placement as a patch of the pod's spec, in JSON. Argo calls the container that does a
    template's work `main`.

    Requests are limits, so that a pod gets what its price is for. What the placement leaves empty, the patch
    does not touch.

    Raises:
        ValueError: the decision chose nothing.
    """
    placement = placed(decision)
    resources = {"cpu": placement.cpu, "memory": placement.memory}
    if placement.accelerator:
        resources[placement.accelerator] = placement.accelerator_count
    spec = {
        "nodeSelector": placement.node_selector,
        "tolerations": as_kubernetes(placement.tolerations),
        "affinity": placement.affinity,
        "containers": [
            {
                "name": "main",
                "image": placement.image,
                "resources": {"requests": resources, "limits": resources},
            }
        ],
    }
    return json.dumps({name: value for name, value in spec.items() if value}, sort_keys=True)


def as_kubernetes(tolerations: Sequence[Toleration]) -> list[dict[str, str]]:
    return [toleration.model_dump(exclude_none=True) for toleration in tolerations]
