"""Pipelines for Kubeflow's Retry: a command that ends well once it finds a checkpoint, and a component of
another author that always fails, after a while.
"""

from decimal import Decimal

from kfp import dsl

from shoestring.config.world import IMAGES
from shoestring.core.types import Need
from shoestring.data.job import Job
from shoestring.pipelines.routed import RunParameters, routed, settle_step
from shoestring.stages.command import command_need

FIRST, LEARNS, READS, THEIRS = "begins", "learns", "reads", "theirs"
IMAGE = IMAGES["base"]
STAGES = (
    Need(stage=FIRST, setup_s=2.0),
    command_need(LEARNS, memory_gb=0.2, grace_s=3.0),
    Need(stage=READS, setup_s=2.0),
)
FAILS = (STAGES[0], Need(stage=THEIRS, setup_s=20.0))
LEARN = r"""
import os, pathlib, sys
path = pathlib.Path(os.environ["SHOESTRING_CHECKPOINTS"]) / "half"
if not path.exists():
    path.write_text(sys.argv[1])
    sys.exit("the first half is learned")
pathlib.Path(sys.argv[2]).write_text(path.read_text() + ", the second half")
"""


@dsl.container_component
def begin(word: str, said: dsl.OutputPath(str)):
    return dsl.ContainerSpec(IMAGE, ["sh", "-c", 'printf %s "$0" > "$1"'], [word, said])


@dsl.container_component
def learn(word: str, learned: dsl.OutputPath(str)):
    return dsl.ContainerSpec(IMAGE, ["python3", "-c", LEARN], [word, learned])


@dsl.container_component
def read(learned: str):
    expected = "well, the second half"
    return dsl.ContainerSpec(IMAGE, ["sh", "-c", f'test "$0" = "{expected}"'], [learned])


@dsl.container_component
def fail(word: str):
    return dsl.ContainerSpec(IMAGE, ["sh", "-c", 'sleep 20; echo "it failed, $0"; exit 3'], [word])


def job(name: str) -> Job:
    return Job(name=name, budget_usd=Decimal("0.01"))


@dsl.pipeline(name="scenario-stage-retried")
def stage(
    run_id: str = "", world: str = "", budget_usd: str = "", deadline_s: float = 0.0, seed: int = -1
) -> None:
    run = RunParameters(world, run_id, job("stage-retried"), budget_usd, deadline_s, seed)
    with dsl.ExitHandler(settle_step(run), name="spend"):
        said = routed(begin, STAGES, run, word="well").outputs["said"]
        learned = routed(learn, STAGES[1:], run, metered=True, word=said).outputs["learned"]
        routed(read, STAGES[2:], run, learned=learned)


@dsl.pipeline(name="scenario-component-retried")
def component(
    run_id: str = "", world: str = "", budget_usd: str = "", deadline_s: float = 0.0, seed: int = -1
) -> None:
    run = RunParameters(world, run_id, job("component-retried"), budget_usd, deadline_s, seed)
    with dsl.ExitHandler(settle_step(run), name="spend"):
        said = routed(begin, FAILS, run, word="well").outputs["said"]
        routed(fail, FAILS[1:], run, word=said)
