"""What a routed task does not take any more: the setters of what its route step decides."""

from __future__ import annotations

from functools import partial
from typing import Any, NoReturn

from kfp import dsl

from shoestring.core.errors import UsageError

DECIDED = "its route step decides that"
REFUSED_SETTERS = {
    **dict.fromkeys(
        (
            "set_cpu_request",
            "set_cpu_limit",
            "set_memory_request",
            "set_memory_limit",
            "set_accelerator_type",
            "set_accelerator_limit",
            "set_gpu_limit",
        ),
        f"{DECIDED}, by cores, memory and GPUs in the Need of the stage",
    ),
    "add_node_selector_constraint": f"{DECIDED}, by the pools of pools.yaml and the policy",
    "set_container_image": "its route step knows the image that was passed: pass a component with that image",
    "set_caching_options": "a task that KFP skips never settles its reservation: Shoestring caches results",
    "set_retry": "Shoestring decides by the end of a stage whether another attempt can help",
    "ignore_upstream_failure": "its route step has no budget to plan with after a failure",
}
"""What a task does not take after `routed()`, and why."""


def refuse_setters(task: dsl.PipelineTask, stage: str) -> dsl.PipelineTask:
    """Make the task refuse what would change what its route step decided, or how it is settled."""

    def refused(setter: str, *_: Any, **__: Any) -> NoReturn:
        raise UsageError(f"{stage}: leave out {setter}() after routed(): {REFUSED_SETTERS[setter]}")

    for setter in REFUSED_SETTERS:
        setattr(task, setter, partial(refused, setter))
    return task
