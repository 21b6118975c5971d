"""The placement of a decision, as the values that KFP's driver and Argo put on a pod."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

from shoestring.core.types import Market, Need, Placement, Pool, Toleration
from shoestring.pricing.throughput import uses_gpu
from shoestring.routing.decision import Decision

GPU_RESOURCE = "nvidia.com/gpu"
# Labels of the pods. STAGE_LABEL holds the name of the stage, ROUTE and that name for its route step, and
# SETTLE for the exit step.
STAGE_LABEL, RUN_LABEL = "shoestring.dev/stage", "shoestring.dev/run"
ROUTE, SETTLE = "route-", "settle"
# Measured on flights (bench/kind/step_cost.py): the five steps take 5.2 CPU-seconds in pods of 22 s, the
# first of them 1.6 in 5, and 215 MiB at its peak, with 50 MiB more for KFP's executor.
STEP_REQUESTS = {"cpu": "250m", "memory": "320Mi"}
"""What the pod of a route or exit step requests."""
# Seconds. A supervisor that is told to stop gives its child 5, and then settles; one that hangs is killed.
POD_GRACE_S = 20
# Kubeflow sets this label on every pod. It holds the job id, which is the run id on Kubeflow.
KUBEFLOW_RUN_LABEL = "pipeline/runid"


def place_stage(pool: Pool, market: Market, need: Need, images: Mapping[str, str]) -> Placement:
    """Return the placement of a stage: a whole machine, or a whole share of a node.

    It requests all cores and all memory of the pool, because the price is for all of them, and as many GPUs
    as the stage can use. Memory is in decimal megabytes, as a pool's is in decimal gigabytes. `images` maps
    short names to full ones; any other name is a full one.
    """
    terms, with_gpu = pool.markets[market], uses_gpu(need, pool)
    image = "train-gpu" if with_gpu and need.image == "train" else need.image
    return Placement(
        node_selector=dict(terms.node_selector),
        tolerations=terms.tolerations,
        affinity={},
        cpu=str(pool.cores),
        memory=f"{int(pool.memory_gb * 1000)}M",
        accelerator=GPU_RESOURCE if with_gpu else "",
        accelerator_count=str(min(need.max_gpus, pool.gpu_count)) if with_gpu else "",
        image=images.get(image, image),
    )


def is_stage(label: str) -> bool:
    """Return whether this is the label of a stage's own pod."""
    return label != SETTLE and not label.startswith(ROUTE)


def placement_of(decision: Decision) -> Placement:
    """Return the placement of a decision. Raises ValueError: it chose nothing."""
    if decision.placement is None:
        raise ValueError(f"the decision for {decision.question.stage} chose nothing, so it has no placement")
    return decision.placement


def driver_outputs(decision: Decision, decision_key: str) -> dict[str, Any]:
    """Return what the route step returns: a dict, a list, a dict and strings.

    No other types work. KFP's driver silently reads a selector that is a string as an empty one, and an
    accelerator count that is a number as none. An empty cpu or memory fails the stage. For a pod without an
    accelerator, the accelerator is "".

    Raises:
        ValueError: the decision chose nothing.
    """
    placement = placement_of(decision)
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


def argo_patch(
    decision: Decision,
    deadline_s: int | None = None,
    *,
    own_image: bool = False,
    command_grace_s: float = 0.0,
) -> str:
    """Return the same placement as a JSON patch of the pod's spec, without the fields that it leaves empty.

    Argo names the container that does the work `main`. Requests equal limits, so that the pod gets what
    it pays for. Kubernetes ends the pod after `deadline_s`. `own_image`: the pod keeps the image of its
    template. `command_grace_s`: seconds that a user's command in it gets between SIGTERM and SIGKILL.

    Raises:
        ValueError: the decision chose nothing.
    """
    placement = placement_of(decision)
    resources = {"cpu": placement.cpu, "memory": placement.memory}
    if placement.accelerator:
        resources[placement.accelerator] = placement.accelerator_count
    spec = {
        "nodeSelector": placement.node_selector,
        "tolerations": as_kubernetes(placement.tolerations),
        "affinity": placement.affinity,
        "activeDeadlineSeconds": deadline_s,
        "terminationGracePeriodSeconds": POD_GRACE_S + ceil(command_grace_s),
        "containers": [
            {
                "name": "main",
                **({} if own_image else {"image": placement.image}),
                "resources": {"requests": resources, "limits": resources},
            }
        ],
    }
    return json.dumps({name: value for name, value in spec.items() if value}, sort_keys=True)


def as_kubernetes(tolerations: Sequence[Toleration]) -> list[dict[str, str]]:
    """Return tolerations in the form of the Kubernetes API."""
    return [toleration.model_dump(exclude_none=True) for toleration in tolerations]
