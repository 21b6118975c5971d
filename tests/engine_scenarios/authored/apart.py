"""Two branches after a first stage: a command with a meter, and a stage that no pool has the memory for."""

from decimal import Decimal

from kfp import dsl

from shoestring.config.world import IMAGES
from shoestring.core.types import Need
from shoestring.data.job import Job
from shoestring.pipelines.routed import RunParameters, routed, settle_step
from shoestring.stages.command import command_need

JOB = Job(name="scenario-apart", budget_usd=Decimal("0.01"))
IMAGE = IMAGES["base"]
FIRST = Need(stage="first", after=(), setup_s=2.0)
SMALL = command_need("small", seconds=30.0, memory_gb=0.2, grace_s=3.0, after=("first",))
HUGE = Need(stage="huge", after=("first",), setup_s=2.0, memory_fixed_gb=1e5)


@dsl.container_component
def wait(seconds: int):
    return dsl.ContainerSpec(IMAGE, ["sh", "-c", 'sleep "$0"'], [seconds])


@dsl.pipeline(name="scenario-apart")
def pipeline(
    run_id: str = "", world: str = "", budget_usd: str = "", deadline_s: float = 0.0, seed: int = -1
) -> None:
    run = RunParameters(world, run_id, JOB, budget_usd, deadline_s, seed)
    with dsl.ExitHandler(settle_step(run), name="spend"):
        routed(wait, [FIRST, SMALL], run, seconds=1)
        routed(wait, [SMALL], run, metered=True, seconds=30)
        routed(wait, [HUGE], run, seconds=1)
