"""A pool and a market as the exact values that reach a pod."""

from __future__ import annotations

from typing import Any

from shoestring.model import Market, Placement, Pool
from shoestring.routing.decision import Decision

GPU_RESOURCE = "nvidia.com/gpu"

IMAGES = {
    "cpu": "ghcr.io/shoestring-ml/shoestring-cpu:0.1.0",
    "gpu": "ghcr.io/shoestring-ml/shoestring-gpu:0.1.0",
}
"""By a pool's `image`; any other name there is a full image name already."""


def place(pool: Pool, market: Market, *, with_gpu: bool) -> Placement:
    """The whole machine: all the cores and memory that the pool declares, which on a cluster is what is allocatable, so no headroom is cut.

    Memory is asked for in decimal megabytes, because a pool's is in decimal gigabytes. One GPU is asked for: a stage uses one.
    """
    terms = pool.markets[market]
    return Placement(
        node_selector=dict(terms.node_selector),
        tolerations=terms.tolerations,
        affinity={},
        cpu=str(pool.cores),
        memory=f"{int(pool.memory_gb * 1000)}M",
        accelerator=GPU_RESOURCE if with_gpu else "",
        accelerator_count="1" if with_gpu else "",
        image=IMAGES.get(pool.image, pool.image),
    )


def driver_outputs(decision: Decision, decision_key: str) -> dict[str, Any]:
    """What the route step returns: a dict, a list, a dict and strings, nothing else.

    KFP's driver reads a selector that is a string as an empty one, and an accelerator count that is a number as none, both without a
    word; an empty cpu or memory fails the stage. An accelerator of "" is how a pod without one is asked for.

    Raises:
        ValueError: the decision chose nothing.
    """
    placement = decision.placement
    if placement is None:
        raise ValueError(f"the decision for {decision.question.stage} chose nothing: there is nothing to place")
    return {
        "node_selector": dict(placement.node_selector),
        "tolerations": [toleration.model_dump(exclude_none=True) for toleration in placement.tolerations],
        "affinity": dict(placement.affinity),
        "cpu": placement.cpu,
        "memory": placement.memory,
        "accelerator": placement.accelerator,
        "accelerator_count": placement.accelerator_count,
        "image": placement.image,
        "decision_key": decision_key,
    }
