"""The loops around a routed stage: what its router is given of them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from kfp import dsl
from kfp.dsl import for_loop, pipeline_channel

from shoestring.core.errors import UsageError
from shoestring.core.types import Need
from shoestring.pipelines.producers import implied_before, open_pipeline
from shoestring.routing.loop_items import Loop
from shoestring.runtime.admission.stages import is_builtin


def loops_around(stage: str) -> tuple[tuple[Loop, ...], Any]:
    """Return the loops around a stage, the outermost first, and the list of the innermost one, if the run
    makes it and KFP can pass it on; None: it cannot, as it does not pass a list through a condition or a loop
    within its own loop.

    Raises UsageError: a loop is over artifacts, or over a list that KFP cannot compile.
    """
    loops, made = list[Loop](), None
    groups = open_pipeline(stage).groups
    for group in groups:
        if not isinstance(group, dsl.ParallelFor):
            continue
        argument = group.loop_argument
        if isinstance(argument, for_loop.LoopArtifactArgument):
            raise UsageError(
                f"{stage} is in a dsl.ParallelFor over artifacts: loop over a list of values, such as their "
                "names, which its route step can read"
            )
        items = argument.items_or_pipeline_channel
        if isinstance(items, pipeline_channel.PipelineChannel):
            made = items if group is groups[-1] else None
            loops.append(Loop(at_once=group.parallelism_limit))
        else:
            if any(isinstance(item, pipeline_channel.PipelineChannel) for item in items):
                raise UsageError(
                    f"{stage} is in a dsl.ParallelFor over a list that holds outputs of tasks, which KFP "
                    "cannot compile: let one task make the whole list"
                )
            loops.append(Loop(items=tuple(items), at_once=group.parallelism_limit))
    return tuple(loops), made


def within_loops(needs: Sequence[Need]) -> tuple[tuple[Need, ...], tuple[Loop, ...], Any]:
    """Return the stages of a router, with what `loops_around` returns of the first one.

    Raises UsageError: it cannot be in these loops, or its Need does not have their number of items.
    """
    first, later = needs[0], needs[1:]
    loops, made = loops_around(first.stage)
    if not loops:
        return tuple(needs), (), None
    if is_builtin(first.stage) or first.elastic:
        raise UsageError(
            f"{first.stage} is in a dsl.ParallelFor, and all of its items would do the same work: loop over "
            "a stage or a component of your own, which does not take all that its budget buys"
        )
    lengths = [len(loop.items) for loop in loops if loop.items is not None]
    if len(lengths) == len(loops) and first.items != prod(lengths):
        raise UsageError(
            f"{first.stage} is in a loop of {prod(lengths)} items, and the stages before it hold money for "
            f"{first.items}: give its Need items={prod(lengths)}"
        )
    if first.after is None:
        names = implied_before(first.stage, open_pipeline(first.stage))
        first = first.model_copy(update={"after": names})
    return (first, *later), loops, made
