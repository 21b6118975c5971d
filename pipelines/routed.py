"""A stage with its router in front of it. No other code applies a placement to a KFP task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kfp import dsl, kubernetes

from shoestring.components.route import route
from shoestring.components.settle import settle
from shoestring.core.errors import UsageError
from shoestring.core.record import SCHEMA_VERSION, argument_json
from shoestring.core.types import Need
from shoestring.data.job import DEFAULT_GRACE_S, Job
from shoestring.pipelines.external_containers import command_of, metered_component
from shoestring.pipelines.loops import within_loops
from shoestring.pipelines.pods import configure_pod, configure_step
from shoestring.pipelines.producers import find_producers
from shoestring.pipelines.setters import refuse_setters
from shoestring.routing.branches import ways
from shoestring.routing.dag import build_dag
from shoestring.routing.dag import stages_from as stages_from
from shoestring.routing.loop_items import Loop
from shoestring.routing.placement import ROUTE, SETTLE, STAGE_LABEL, is_stage
from shoestring.runtime.admission.stage_request import RemainingStages
from shoestring.runtime.admission.stages import own_stage as own_stage
from shoestring.runtime.admission.stages import stage_names
from shoestring.stages.command import grace_of
from shoestring.stages.work import Origin

# More would not help often: a lost pod is created again on the same pool.
STAGE_RETRIES = 1
ROUTED_ARGUMENTS = {"upstream", "side_input", "after", "origin", "metered"}
# Inputs of a task through which KFP applies a placement.
PLACEMENT_INPUTS = {
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
    """The pipeline's own parameters, which every step is given: values or KFP channels.

    `recipe`: a Job in a pipeline of commands, which has no recipe.
    """

    world: Any
    run_id: Any
    recipe: Any
    budget_usd: Any
    deadline_s: Any
    seed: Any


def routed(
    component: Any,
    needs: Sequence[Need],
    run: RunParameters,
    /,
    upstream: Any = "",
    side_input: Any = "",
    after: Any = (),
    origin: Origin | None = None,
    metered: bool = False,
    **inputs: Any,
) -> dsl.PipelineTask:
    """Put a router in front of one stage, which waits for all that the stage waits for (`find_producers`,
    and `.after()` of the returned task), and place the stage's pod by the router's outputs.

    Args:
        component: is passed `inputs`. Without an input `decision_key` it is external: see `external_task`.
        needs: the NEED of this stage and of every later stage, in order, since the router plans ahead; where
            stages branch, `stages_from(NEEDS, STAGE)`.
        upstream: key of the manifest of the data that the stage reads; empty for the first stage.
        side_input: key of a second object that the stage reads. A change of either changes its result.
        after: tasks that it waits for without reading their outputs.
        origin: for an author's own stage, `own_stage(module)`.
        metered: whether the external component of a pipeline of commands has a meter, which its image needs.

    KFP's cache is off for both tasks: a task that KFP skips would never settle what its router reserved.
    The returned task refuses REFUSED_SETTERS. Raises UsageError if the component cannot be routed.
    """
    stage, is_external = needs[0].stage, "decision_key" not in (component.component_spec.inputs or {})
    check_component(component, needs, is_external, origin)
    check_job(component, stage, run, is_external, metered)
    needs, loops, items = within_loops(needs)
    producers = find_producers(needs, inputs, upstream, side_input, after)
    remaining = remaining_stages(component, needs, loops, run, origin, metered or not is_external)
    routing = router(run, remaining, upstream, side_input, items)
    producers.precede(routing)
    values = inputs | ({"origin": argument_json(origin)} if origin else {})
    make = command_task if metered else external_task if is_external else stage_task
    component = metered_component(component, stage, grace_of(needs[0])) if metered else component
    task = make(component, stage, run, routing.outputs, values).set_display_name(stage)
    return refuse_setters(forward_after(apply_placement(task, routing.outputs), routing), stage)


def remaining_stages(
    component: Any,
    needs: Sequence[Need],
    loops: tuple[Loop, ...],
    run: RunParameters,
    origin: Origin | None,
    has_supervisor: bool,
) -> RemainingStages:
    """Return the stages that a router on Kubeflow, or on the local runner, is given: with the job and the
    command, in a pipeline of commands.
    """
    remaining = RemainingStages(
        schema_version=SCHEMA_VERSION,
        engine="kubeflow",
        needs=tuple(needs),
        origin=origin,
        metered=has_supervisor,
        loops=loops,
    )
    if not isinstance(run.recipe, Job):
        return remaining
    command = command_of(component, grace_of(needs[0]) if has_supervisor else DEFAULT_GRACE_S)
    return remaining.model_copy(update={"job": run.recipe, "command": command})


def stage_task(
    component: Any, stage: str, run: RunParameters, decided: Any, inputs: dict[str, Any]
) -> dsl.PipelineTask:
    """Return the task of a stage of Shoestring or of an author, in the image of its decision.

    Kubeflow creates its pod once more after an eviction by the kubelet and after an exit code. That pod gets
    an attempt of its own, or ends at once where another attempt would end like the first.
    """
    return command_task(component, stage, run, decided, inputs).set_container_image(decided["image"])


def command_task(
    component: Any, stage: str, run: RunParameters, decided: Any, inputs: dict[str, Any]
) -> dsl.PipelineTask:
    """Return the task of a stage in its component's own image; retried as in `stage_task`."""
    job_id, decision_key = dsl.PIPELINE_JOB_ID_PLACEHOLDER, decided["decision_key"]
    task = component(world=run.world, run_id=run.run_id, job_id=job_id, decision_key=decision_key, **inputs)
    return configure_pod(task, stage).set_retry(STAGE_RETRIES)


def external_task(
    component: Any, stage: str, run: RunParameters, decided: Any, inputs: dict[str, Any]
) -> dsl.PipelineTask:
    """Return the task of an external component, which only gets its inputs and its placement, in its own
    image.

    The exit step settles it by its pod's times. It is not retried: a second pod would run it again from the
    beginning, whatever the reason of the first end was.
    """
    task = component(**inputs).set_caching_options(False)
    kubernetes.add_pod_label(task, STAGE_LABEL, stage)
    return task


def router(
    run: RunParameters, needs: RemainingStages, upstream: Any, side_input: Any, items: Any
) -> dsl.PipelineTask:
    """Return the task that routes the first stage of `needs`. `items`: the list of the innermost loop around
    it, which the run makes; None: it is none.
    """
    stage = needs.needs[0].stage
    task = route(
        needs=argument_json(needs, exclude_defaults=True),
        world=run.world,
        run_id=run.run_id,
        job_id=dsl.PIPELINE_JOB_ID_PLACEHOLDER,
        recipe="" if isinstance(run.recipe, Job) else run.recipe,
        budget_usd=run.budget_usd,
        deadline_s=run.deadline_s,
        seed=run.seed,
        upstream=upstream,
        side_input=side_input,
        **({} if items is None else {"items": items}),
    )
    return configure_step(task, f"{ROUTE}{stage}").set_display_name(f"route {stage}")


def check_component(component: Any, needs: Sequence[Need], is_external: bool, origin: Origin | None) -> None:
    """Check what would make KFP or its driver fail without a message. Raises UsageError."""
    name, inputs, stage = component.name, set(component.component_spec.inputs or {}), needs[0].stage
    if not is_stage(stage):
        raise UsageError(
            f"{name} cannot be a stage called {stage}: that name is reserved for pods of routers and of the "
            "exit step; rename the stage"
        )
    if component.component_spec.implementation.graph is not None:
        raise UsageError(f"{name} is a pipeline, which has no pod of its own: route its steps")
    if reserved := sorted(inputs & PLACEMENT_INPUTS):
        raise UsageError(
            f"{name} has an input {reserved[0]}, which KFP overwrites when the pod is placed: rename the "
            "input"
        )
    if is_external and (reserved := sorted(inputs & ROUTED_ARGUMENTS)):
        raise UsageError(
            f"{name} has an input {reserved[0]}, which is an argument of routed(): rename the input"
        )
    if ("origin" in inputs) != (origin is not None):
        fix = (
            "give it inputs decision_key and origin, as `shoestring new` does"
            if origin
            else "pass routed() origin=own_stage(MODULE)"
        )
        raise UsageError(f"{name} does not say which code does its work: {fix}")
    check_needs(component, needs)


def check_job(component: Any, stage: str, run: RunParameters, is_external: bool, metered: bool) -> None:
    """Raise UsageError for a stage that does not fit the run's recipe, or its job."""
    name = component.name
    if not isinstance(run.recipe, Job):
        if metered:
            raise UsageError(
                f"{name} has metered=True, which is for pipelines of commands: give RunParameters a Job "
                "instead of a recipe, or leave it out"
            )
        return
    if not is_external:
        raise UsageError(f"{name} reads a recipe, and this pipeline has a Job: give RunParameters a recipe")
    if stage in stage_names():
        raise UsageError(f"{name} cannot be a stage called {stage}, which is one of Shoestring's: rename it")


def check_needs(component: Any, needs: Sequence[Need]) -> None:
    """Raise UsageError if the stages of `needs` and their branches do not form a DAG that can be planned."""
    try:
        build_dag(needs)
        ways(needs)
    except ValueError as error:
        raise UsageError(f"{component.name}: {error}") from None


def settle_step(run: RunParameters) -> dsl.PipelineTask:
    """Return the exit step, for a `dsl.ExitHandler` around all routed stages of a pipeline.

    Without it, nothing settles what the stages leave reserved.
    """
    task = settle(world=run.world, run_id=run.run_id, job_id=dsl.PIPELINE_JOB_ID_PLACEHOLDER)
    return configure_step(task, SETTLE)


def apply_placement(task: dsl.PipelineTask, decided: Any) -> dsl.PipelineTask:
    """Apply a router's outputs to a task.

    Their types are what KFP's driver demands: a wrong type fails silently.
    """
    kubernetes.add_node_selector_json(task, decided["node_selector"])
    kubernetes.add_toleration_json(task, decided["tolerations"])
    kubernetes.add_node_affinity_json(task, decided["affinity"])
    task.set_cpu_request(decided["cpu"]).set_cpu_limit(decided["cpu"])
    task.set_memory_request(decided["memory"]).set_memory_limit(decided["memory"])
    task.set_accelerator_type(decided["accelerator"]).set_accelerator_limit(decided["accelerator_count"])
    # Without this, cpu, memory and accelerator are unknown inside an exit handler, and the local runner loses
    # the order.
    task.register_pipeline_channels(
        [decided[name] for name in ("cpu", "memory", "accelerator", "accelerator_count")]
    )
    return task


def forward_after(task: dsl.PipelineTask, routing: dsl.PipelineTask) -> dsl.PipelineTask:
    """Make `task.after()` apply to its router as well, which would otherwise decide too early."""
    after = task.after

    def both_after(*tasks: Any) -> dsl.PipelineTask:
        routing.after(*tasks)
        return after(*tasks)

    task.after = both_after
    return task
