"""A pipeline of commands: one without a meter, one with, and one that reads what both wrote."""

from decimal import Decimal

from kfp import dsl

from shoestring.config.world import IMAGES
from shoestring.core.types import Need
from shoestring.data.job import Job
from shoestring.pipelines.routed import RunParameters, routed, settle_step
from shoestring.stages.command import command_need

JOB = Job(name="scenario-commands", budget_usd=Decimal("0.01"))
FIRST, METERED, LAST = "begins", "counts", "ends"
IMAGE = IMAGES["base"]
STAGES = (
    Need(stage=FIRST, setup_s=2.0),
    command_need(METERED, memory_gb=0.2, grace_s=3.0),
    Need(stage=LAST, setup_s=2.0),
)
COUNT = r"""
import json, os, pathlib, sys, time
files = pathlib.Path(os.environ["SHOESTRING_CHECKPOINTS"])
path, number = files / "count", 0
if path.exists():
    number = int(path.read_text())
print("counts from", number, flush=True)
while not json.loads(pathlib.Path(os.environ["SHOESTRING_BUDGET"]).read_text())["should_stop"]:
    number += 1
    (files / "count.new").write_text(str(number))
    (files / "count.new").rename(path)
    progress = json.dumps({"samples": number, "loss": 1 / number})
    pathlib.Path(os.environ["SHOESTRING_PROGRESS"]).write_text(progress)
    time.sleep(0.7)
pathlib.Path(sys.argv[1]).write_text(str(number) + "\n")
pathlib.Path(sys.argv[3]).write_text("two lines\n\n")
as_written = len("{{=1+1}}") == 8 and len("{{workflow.name}}") == 17
sys.exit(0 if os.environ["MODE"] == "slow" and sys.argv[2] == "well" and as_written else 3)
"""
# An output of a metered command arrives without one of its newlines.
END = """test "$0" = well && test "$1" -gt 3 && test "$2" = 'two lines
'"""


@dsl.container_component
def begin(word: str, said: dsl.OutputPath(str)):
    return dsl.ContainerSpec(IMAGE, ["sh", "-c", 'printf %s "$0" > "$1"'], [word, said])


@dsl.container_component
def count(word: str, number: dsl.OutputPath(int), text: dsl.OutputPath(str)):
    return dsl.ContainerSpec(IMAGE, ["python3", "-c", COUNT], [number, word, text])


@dsl.container_component
def end(word: str, number: int, text: str):
    return dsl.ContainerSpec(IMAGE, ["sh", "-c", END], [word, number, text])


@dsl.pipeline(name="scenario-commands")
def commands(
    run_id: str = "", world: str = "", budget_usd: str = "", deadline_s: float = 0.0, seed: int = -1
) -> None:
    run = RunParameters(world, run_id, JOB, budget_usd, deadline_s, seed)
    with dsl.ExitHandler(settle_step(run), name="spend"):
        said = routed(begin, STAGES, run, word="well").outputs["said"]
        counted = routed(count, STAGES[1:], run, metered=True, word=said)
        counted.set_env_variable("MODE", "slow")
        written = {name: counted.outputs[name] for name in ("number", "text")}
        routed(end, STAGES[2:], run, word=said, **written)
