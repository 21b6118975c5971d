"""A loop of eight items: commands with a meter, and one item whose stage no pool has the memory for."""

from decimal import Decimal

from kfp import dsl

from shoestring.config.world import IMAGES
from shoestring.core.types import Need
from shoestring.data.job import Job
from shoestring.pipelines.routed import RunParameters, routed, settle_step
from shoestring.stages.command import command_need

JOB = Job(name="scenario-parted", budget_usd=Decimal("0.02"))
IMAGE = IMAGES["base"]
ITEMS = [*range(8)]
REFUSED = 5
WORK = command_need("work", seconds=15.0, memory_gb=0.2, grace_s=3.0, after=()).model_copy(
    update={"items": 8}
)
HUGE = Need(stage="huge", items=len(ITEMS), after=(), setup_s=2.0, memory_fixed_gb=1e5)


@dsl.container_component
def wait(seconds: int):
    return dsl.ContainerSpec(IMAGE, ["sh", "-c", 'sleep "$0"'], [seconds])


@dsl.pipeline(name="scenario-parted")
def pipeline(
    run_id: str = "", world: str = "", budget_usd: str = "", deadline_s: float = 0.0, seed: int = -1
) -> None:
    run = RunParameters(world, run_id, JOB, budget_usd, deadline_s, seed)
    with (
        dsl.ExitHandler(settle_step(run), name="spend"),
        dsl.ParallelFor(ITEMS, parallelism=2) as number,
    ):
        with dsl.If(number == REFUSED):
            routed(wait, [HUGE], run, seconds=1)
        with dsl.Else():
            routed(wait, [WORK], run, metered=True, seconds=15)
