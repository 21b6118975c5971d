"""A loop over a list that its first stage makes, with items of different lengths, and a stage that reads what
all of them wrote.
"""

from decimal import Decimal
from typing import List  # noqa: UP035  KFP knows the type of an item by it

from kfp import dsl

from shoestring.config.world import IMAGES
from shoestring.core.types import Need
from shoestring.data.job import Job
from shoestring.pipelines.routed import RunParameters, routed, settle_step, stages_from

JOB = Job(name="scenario-loops", budget_usd=Decimal("0.02"))
IMAGE = IMAGES["base"]
SECONDS = (9, 2, 14, 4, 11, 1, 6, 3)
STAGES = (
    Need(stage="lists", after=(), setup_s=2.0),
    Need(stage="item", items=8, after=("lists",), setup_s=10.0),
    Need(stage="last", after=("item",), setup_s=2.0),
)


@dsl.container_component
def listing(texts: str, found: dsl.OutputPath(List[int])):  # noqa: UP006
    return dsl.ContainerSpec(IMAGE, ["sh", "-c", 'printf %s "$0" > "$1"'], [texts, found])


@dsl.container_component
def wait(seconds: int, said: dsl.OutputPath(str)):
    return dsl.ContainerSpec(IMAGE, ["sh", "-c", 'sleep "$0" && printf %s "$0" > "$1"'], [seconds, said])


@dsl.container_component
def hear(words: list, expected: str):
    command = ["sh", "-c", 'test "$(echo "$0" | tr -dc 0-9,)" = "$1"']
    return dsl.ContainerSpec(IMAGE, command, [words, expected])


@dsl.pipeline(name="scenario-loops")
def pipeline(
    run_id: str = "", world: str = "", budget_usd: str = "", deadline_s: float = 0.0, seed: int = -1
) -> None:
    run = RunParameters(world, run_id, JOB, budget_usd, deadline_s, seed)
    with dsl.ExitHandler(settle_step(run), name="spend"):
        lists = routed(listing, STAGES, run, texts=str([*SECONDS]))
        with dsl.ParallelFor(lists.outputs["found"], parallelism=2) as seconds:
            item = routed(wait, stages_from(STAGES, "item"), run, seconds=seconds)
        words = dsl.Collected(item.outputs["said"])
        routed(hear, stages_from(STAGES, "last"), run, words=words, expected=",".join(map(str, SECONDS)))
