"""The form that all pipelines of this folder have: the parameters of a run, and an exit step."""

from collections.abc import Callable
from typing import Any

from kfp import dsl

from shoestring.pipelines.routed import RunParameters, settle_step


def with_exit_step(name: str, route_stages: Callable[[RunParameters], None]) -> Any:
    """Return a pipeline of the stages that `route_stages` routes."""

    @dsl.pipeline(name=name)
    def pipeline(
        recipe: str,
        run_id: str = "",
        world: str = "",
        budget_usd: str = "",
        deadline_s: float = 0.0,
        seed: int = -1,
    ) -> None:
        run = RunParameters(world, run_id, recipe, budget_usd, deadline_s, seed)
        with dsl.ExitHandler(settle_step(run), name="spend"):
            route_stages(run)

    return pipeline
