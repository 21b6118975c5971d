"""A pipeline with conditions on an output, alone and within an exit step of its author."""

from decimal import Decimal

from kfp import dsl

from shoestring.config.world import IMAGES
from shoestring.core.types import Need
from shoestring.data.job import Job
from shoestring.pipelines.routed import RunParameters, routed, settle_step, stages_from

JOB = Job(name="scenario-conditions", budget_usd=Decimal("0.01"))
IMAGE = IMAGES["base"]
STAGES = (
    Need(stage="first", after=(), setup_s=2.0),
    Need(stage="never", branch="none/taken", after=("first",), setup_s=2.0),
    Need(stage="small", branch="size/small", after=("first",), setup_s=2.0),
    Need(stage="large", branch="size/large", after=("first",), setup_s=20.0),
    Need(stage="last", after=("small", "large"), setup_s=2.0),
)


@dsl.container_component
def announce(word: str, said: dsl.OutputPath(str)):
    return dsl.ContainerSpec(IMAGE, ["sh", "-c", 'printf %s "$0" > "$1"'], [word, said])


@dsl.container_component
def hear(word: str):
    return dsl.ContainerSpec(IMAGE, ["sh", "-c", 'test "$0" = small'], [word])


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def notify(status: dsl.PipelineTaskFinalStatus):
    assert status.state == "SUCCEEDED", status
    assert status.pipeline_task_name.startswith("exit-handler"), status


@dsl.pipeline(name="scenario-conditions")
def pipeline(
    run_id: str = "", world: str = "", budget_usd: str = "", deadline_s: float = 0.0, seed: int = -1
) -> None:
    run = RunParameters(world, run_id, JOB, budget_usd, deadline_s, seed)
    with dsl.ExitHandler(settle_step(run), name="spend"):
        first = routed(announce, STAGES, run, word="small").outputs["said"]
        with dsl.If(first == "never"):
            routed(announce, stages_from(STAGES, "never"), run, word="never")
        with dsl.If(first == "small"):
            small = routed(announce, stages_from(STAGES, "small"), run, word=first)
        with dsl.Else():
            large = routed(announce, stages_from(STAGES, "large"), run, word=first)
        either = dsl.OneOf(small.outputs["said"], large.outputs["said"])
        routed(hear, stages_from(STAGES, "last"), run, word=either)


@dsl.pipeline(name="scenario-own-exit-step")
def notified(
    run_id: str = "", world: str = "", budget_usd: str = "", deadline_s: float = 0.0, seed: int = -1
) -> None:
    with dsl.ExitHandler(notify(), name="theirs"):
        pipeline(run_id=run_id, world=world, budget_usd=budget_usd, deadline_s=deadline_s, seed=seed)
