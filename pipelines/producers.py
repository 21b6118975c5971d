"""What the router of a stage waits for: every task that produces something that the stage needs.

The compiled pipeline holds it as the `dependentTasks` of the router. Kubeflow runs those, and the
WorkflowTemplate is derived from them, so both engines wait for the same tasks.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kfp import dsl
from kfp.dsl import pipeline_channel, pipeline_context, tasks_group

from shoestring.core.errors import UsageError
from shoestring.core.types import Need
from shoestring.pipelines.external_containers import has_own_meter
from shoestring.routing.dag import build_dag
from shoestring.routing.placement import ROUTE, STAGE_LABEL
from shoestring.runtime.admission.stage_request import RemainingStages


@dataclass(frozen=True)
class Producers:
    """`channels`: outputs of tasks, or of groups of tasks. `tasks`: tasks whose outputs need not be read."""

    channels: list[Any]
    tasks: list[Any]

    def precede(self, task: dsl.PipelineTask) -> None:
        """Make `task` wait for all of them."""
        # A group cannot be named in after(), but the output of a group makes a task wait for it.
        task.register_pipeline_channels(self.channels)
        task.after(*self.tasks)


def find_producers(
    needs: Sequence[Need], inputs: Mapping[str, Any], upstream: Any, side_input: Any, after: Any
) -> Producers:
    """Return what the router of `needs[0]` waits for.

    These are the producers of `inputs` (also within lists, dsl.Collected, dsl.OneOf and text), of `upstream`
    and of `side_input`; the tasks of `after`; and the stages that the Need comes after.

    Raises:
        UsageError: the stage reads data without naming its upstream; or a stage that it comes after cannot be
            waited for.
    """
    stage, pipeline = needs[0].stage, open_pipeline(needs[0].stage)
    data = produced_channels([*inputs.values()])
    if data and not upstream:
        check_reads_no_data(stage, data)
    channels = produced_channels([*inputs.values(), upstream, side_input])
    tasks = [*after] if isinstance(after, Sequence) else [after]
    for name in stages_before(needs, pipeline):
        tasks += [
            task for task in stage_tasks(name, pipeline) if must_be_named(task, stage, channels, pipeline)
        ]
    return Producers(channels, tasks)


def open_pipeline(stage: str) -> Any:
    """Return the pipeline that is being compiled. Raises UsageError: there is none."""
    pipeline = pipeline_context.Pipeline.get_default_pipeline()
    if pipeline is None:
        raise UsageError(
            f"routed() of {stage} is not in a pipeline: call it in a function with @dsl.pipeline"
        )
    return pipeline


def produced_channels(values: list[Any]) -> list[Any]:
    """Return the channels in `values` that a task or a group of tasks produces, in a fixed order."""
    channels = pipeline_channel.extract_pipeline_channels_from_any(values)
    produced = sorted((each for each in channels if each.task_name), key=lambda each: each.pattern)
    # KFP's compiler changes a dsl.Collected for the task that reads it, so that only one task can have it.
    return [copy.copy(each) if isinstance(each, dsl.Collected) else each for each in produced]


def check_reads_no_data(stage: str, channels: list[Any]) -> None:
    """Raise UsageError if what a stage without upstream reads goes back to a data set of Shoestring."""
    if sources := data_sources(channels):
        raise UsageError(
            f"{stage} reads what {channels[0].task_name} returns, but its upstream is empty, so its router "
            f'would not know the data: pass routed() upstream=X.outputs["Output"], where X is what routed() '
            f"of {sources[0]} returned"
        )


def data_sources(channels: list[Any]) -> list[str]:
    """Return the nearest stages behind `channels` that write a data set; external components and commands
    write none.
    """
    waiting, reached, sources = [each.task for each in channels], set[str](), list[str]()
    for task in waiting:
        if task.name in reached:
            continue
        reached.add(task.name)
        if isinstance(task, tasks_group.TasksGroup):
            waiting += [*task.tasks, *task.groups]
        elif "decision_key" in task.inputs and not has_own_meter(task.component_spec):
            sources.append(pod_label(task))
        else:
            waiting += [each.task for each in task.channel_inputs if each.task_name]
    return sources


def stages_before(needs: Sequence[Need], pipeline: Any) -> tuple[str, ...]:
    """Return the stages that `needs[0]` comes after. Raises UsageError: one that it names is not routed."""
    stage, names = needs[0].stage, needs[0].after
    if names is None:
        return implied_before(stage, pipeline)
    if missing := [name for name in names if not any(stage_tasks(name, pipeline))]:
        raise UsageError(
            f"{stage} comes after {missing[0]}, which this pipeline has not routed before it: call routed() "
            f"of {missing[0]} first, or take it out of `after` in the Need of {stage}"
        )
    return names


def implied_before(stage: str, pipeline: Any) -> tuple[str, ...]:
    """Return the stages before one whose Need has no `after`, by the Needs of the routers before it."""
    for task in pipeline.tasks.values():
        if pod_label(task).startswith(ROUTE):
            needs = RemainingStages.model_validate_json(task.inputs["needs"]).needs
            names = [need.stage for need in needs]
            if stage in names[1:]:
                return tuple(names[index] for index in build_dag(needs).before[names.index(stage)])
    return ()


def stage_tasks(stage: str, pipeline: Any) -> Iterator[Any]:
    """Yield the tasks of a stage; the branches of a dsl.If may have one each."""
    return (task for task in pipeline.tasks.values() if pod_label(task) == stage)


def pod_label(task: Any) -> str:
    """Return the name of a stage, `route-STAGE`, `settle`, or nothing for a task that is not routed."""
    labels = task.platform_config.get("kubernetes", {}).get("podMetadata", {}).get("labels", {})
    return str(labels.get(STAGE_LABEL, ""))


def must_be_named(task: Any, stage: str, channels: list[Any], pipeline: Any) -> bool:
    """Return False if a group around a task is waited for by one of the channels.

    Raises UsageError if a group around the task can only be waited for in that way.
    """
    closed = [group for group in groups_around(task) if not any(group is each for each in pipeline.groups)]
    waited = {channel.task_name for channel in channels}
    # The compiler makes one of all items into an output of the loop.
    collected = {channel.task_name for channel in channels if isinstance(channel, dsl.Collected)}
    if task.name in collected or any(group.name in waited for group in closed):
        return False
    if closed:
        name, given = pod_label(task), "Collected" if isinstance(closed[0], dsl.ParallelFor) else "OneOf"
        raise UsageError(
            f"{stage} comes after {name}, which is inside a dsl.{type(closed[0]).__name__}: pass routed() "
            f"its output in dsl.{given}, or give the Need of {stage} an `after` without {name}"
        )
    return True


def groups_around(task: Any) -> Iterator[Any]:
    group = task.parent_task_group
    while group is not None:
        yield group
        group = group.parent_task_group
