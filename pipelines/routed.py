"""A stage with its router before it. The only code that applies a placement to a KFP task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from kfp import dsl, kubernetes

from shoestring.components.route import route
from shoestring.components.settle import settle
from shoestring.backends.local import WORLD_MOUNT_PATH
from shoestring.core.errors import UsageError
from shoestring.core.types import Need
from shoestring.data.storage.cache import package_digest
from shoestring.routing.dag import stages_from as stages_from
from shoestring.routing.dag import build_dag
from shoestring.routing.placement import ROUTE, SETTLE, STAGE_LABEL, is_stage
from shoestring.runtime.admission.build_question import RemainingStages
from shoestring.stages.work import Origin

# What a pod is given of the world, each from a ConfigMap `shoestring-NAME` with one key, NAME.yaml.
WORLD_FILES = ("world", "pools", "prices", "policy", "budgets")
CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
IDENTITY = {
    "SHOESTRING_POD_NAMESPACE": "metadata.namespace",
    "SHOESTRING_POD_UID": "metadata.uid",
    "SHOESTRING_POD_NAME": "metadata.name",
}
# The user that the images are made for.
USER = 8737
# Inputs of a task by which KFP hands a placement on.
PLACED = {
    "cpu_request",
    "cpu_limit",
    "memory_request",
    "memory_limit",
    "accelerator_type",
    "accelerator_count",
    "base_image",
}


@dataclass(frozen=True)
class RunParameters:
    """The pipeline's own parameters, which every step is given. Values or KFP channels."""

    world: Any
    run_id: Any
    recipe: Any
    budget_usd: Any
    deadline_s: Any
    seed: Any


def own(module: ModuleType, **settings: Any) -> Origin:
    """An author's own stage, for `routed()`: the module that has SHARED and run(work), and the settings that run finds in the work."""
    return Origin(
        module=module.__name__, code=package_digest(module.__name__), settings=settings, shared=module.SHARED
    )


def routed(
    component: Any,
    needs: Sequence[Need],
    run: RunParameters,
    /,
    upstream: Any = "",
    also: Any = "",
    origin: Origin | None = None,
    **inputs: Any,
) -> dsl.PipelineTask:
    """Put a router before one stage and let its outputs place the stage's pod.

    `needs` is the NEED of this stage and of every stage after it, in order: the router looks ahead. Of stages that branch, each says
    what it comes `after`, and `stages_from(all of them, STAGE)` are those that are passed. `upstream` is the key of
    the manifest of the data that the stage reads, empty for the first; `also` of whatever else it reads: the router waits for both, and
    a changed one is a changed result. `origin` is for an author's own stage, as `own(module)` makes it. `inputs` go to the component.

    A component that knows nothing of us (it has no input `decision_key`) is given its inputs and its place, and nothing else: its image
    stays its own, and what it took is settled from its pod's times by the exit step. Nobody stops it at what was reserved for it.

    KFP's own cache is off for both: a task that KFP skips would never settle what its router reserved.

    Raises:
        UsageError: the component cannot be routed as it is.
    """
    stage, is_stranger = needs[0].stage, "decision_key" not in (component.component_spec.inputs or {})
    check(component, stage, is_stranger, origin)
    try:
        build_dag(needs)
    except ValueError as error:
        raise UsageError(f"{component.name}: {error}") from None
    decided = router(
        run, RemainingStages(needs=tuple(needs), origin=origin, metered=not is_stranger), upstream, also
    ).outputs
    if is_stranger:
        task = component(**inputs).set_caching_options(False)
        kubernetes.add_pod_label(task, STAGE_LABEL, stage)
    else:
        given = inputs | ({"origin": origin.model_dump_json()} if origin else {})
        job_id, decision_key = dsl.PIPELINE_JOB_ID_PLACEHOLDER, decided["decision_key"]
        task = pod(
            component(world=run.world, run_id=run.run_id, job_id=job_id, decision_key=decision_key, **given),
            stage,
        )
        task.set_container_image(decided["image"])
    return place(task.set_display_name(stage), decided)


def router(run: RunParameters, needs: RemainingStages, upstream: Any, also: Any) -> dsl.PipelineTask:
    stage = needs.needs[0].stage
    task = route(
        needs=needs.model_dump_json(exclude_defaults=True),
        world=run.world,
        run_id=run.run_id,
        job_id=dsl.PIPELINE_JOB_ID_PLACEHOLDER,
        recipe=run.recipe,
        budget_usd=run.budget_usd,
        deadline_s=run.deadline_s,
        seed=run.seed,
        upstream=upstream,
        also=also,
    )
    return pod(task, f"{ROUTE}{stage}").set_display_name(f"route {stage}")


def check(component: Any, stage: str, is_stranger: bool, origin: Origin | None) -> None:
    """Say what stands in the way of routing a component, before KFP or its driver goes wrong without a word. Raises UsageError."""
    name, inputs = component.name, set(component.component_spec.inputs or {})
    if not is_stage(stage):
        raise UsageError(
            f"{name} cannot be a stage called {stage}: so are the pods of routers and of the exit step; rename it"
        )
    if component.component_spec.implementation.graph is not None:
        raise UsageError(f"{name} is a pipeline: route its steps, since a pipeline has no pod of its own")
    if taken := sorted(inputs & PLACED):
        raise UsageError(
            f"{name} has an input {taken[0]}, which KFP overwrites when the pod is placed: rename it"
        )
    if is_stranger and (taken := sorted(inputs & {"upstream", "also", "origin"})):
        raise UsageError(f"{name} has an input {taken[0]}, which is a word of routed(): rename it")
    if ("origin" in inputs) != (origin is not None):
        mend = (
            "give it inputs decision_key and origin, as `shoestring new` does"
            if origin
            else "pass routed() origin=own(MODULE)"
        )
        raise UsageError(f"{name} does not say which code does its work: {mend}")


def settled(run: RunParameters) -> dsl.PipelineTask:
    """The exit step, for a `dsl.ExitHandler` around all routed stages of a pipeline: without it nothing is settled that they leave."""
    return pod(settle(world=run.world, run_id=run.run_id, job_id=dsl.PIPELINE_JOB_ID_PLACEHOLDER), SETTLE)


def pod(task: dsl.PipelineTask, stage: str) -> dsl.PipelineTask:
    """What every pod of ours is on a cluster: who it is, the world's files, the store's credentials, no root. KFP's cache is off.

    `stage` is the pod's label: a stage's name, `route-STAGE` or `settle`. KFP's local runner takes no notice of any of this.
    """
    for name in WORLD_FILES:
        # Optional, as the credentials are: a pod that lacks one starts and says which, instead of waiting for it without a word.
        kubernetes.use_config_map_as_volume(
            task, f"shoestring-{name}", f"{WORLD_MOUNT_PATH}/{name}", optional=True
        )
    kubernetes.use_secret_as_env(task, "shoestring-s3", {name: name for name in CREDENTIALS}, optional=True)
    for name, field_path in IDENTITY.items():
        kubernetes.use_field_path_as_env(task, name, field_path)
    kubernetes.empty_dir_mount(task, "scratch", "/tmp")
    kubernetes.set_security_context(task, run_as_user=USER, run_as_non_root=True)
    kubernetes.add_pod_label(task, STAGE_LABEL, stage)
    return task.set_caching_options(False)


def place(task: dsl.PipelineTask, decided: Any) -> dsl.PipelineTask:
    """Apply a router's outputs to a task. Their types are what the driver demands: a wrong one fails silently (docs/design.md)."""
    kubernetes.add_node_selector_json(task, decided["node_selector"])
    kubernetes.add_toleration_json(task, decided["tolerations"])
    kubernetes.add_node_affinity_json(task, decided["affinity"])
    task.set_cpu_request(decided["cpu"]).set_cpu_limit(decided["cpu"])
    task.set_memory_request(decided["memory"]).set_memory_limit(decided["memory"])
    task.set_accelerator_type(decided["accelerator"]).set_accelerator_limit(decided["accelerator_count"])
    # Without this, cpu, memory and accelerator are not known inside an exit handler, and the local runner loses the order.
    task.register_pipeline_channels(
        [decided[name] for name in ("cpu", "memory", "accelerator", "accelerator_count")]
    )
    return task
