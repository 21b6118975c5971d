"""Components of another author after `ingest`: one that ends well, one that fails, one that never ends."""

from kfp import dsl

from shoestring.components.ingest import ingest
from shoestring.config.world import IMAGES
from shoestring.core.types import Need
from shoestring.pipelines.routed import RunParameters, routed, settle_step
from shoestring.stages import ingest as ingest_stage

STAGE, READER = "theirs", "reader"
CHAIN = (ingest_stage.NEED, Need(stage=STAGE, setup_s=2.0))
READ_ON = (*CHAIN, Need(stage=READER, setup_s=2.0))


IMAGE = IMAGES["base"]
"""Any image with a shell and Python would do: the components use nothing else of it."""


@dsl.container_component
def announce(text: str, said: dsl.OutputPath(str)):
    return dsl.ContainerSpec(IMAGE, ["sh", "-c", 'echo "$0" | tee "$1"'], [text, said])


@dsl.container_component
def fail(text: str):
    return dsl.ContainerSpec(IMAGE, ["sh", "-c", 'echo "this component fails, given $0"; exit 3'], [text])


@dsl.container_component
def sleep(text: str):
    return dsl.ContainerSpec(IMAGE, ["sleep"], ["36000"])


@dsl.container_component
def hear(word: str, key: str, times: int):
    return dsl.ContainerSpec(IMAGE, ["sh", "-c", 'test "$0" = "$1" && test "$2" = 2'], [word, key, times])


def after_ingest(name: str, component):
    """Return a pipeline of `ingest` and this component."""

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
            key = routed(ingest, CHAIN, run).outputs["Output"]
            routed(component, CHAIN[1:], run, upstream=key, text=key)

    return pipeline


@dsl.pipeline(name="scenario-good")
def good(
    recipe: str,
    run_id: str = "",
    world: str = "",
    budget_usd: str = "",
    deadline_s: float = 0.0,
    seed: int = -1,
) -> None:
    """A second component reads the output of the first."""
    run = RunParameters(world, run_id, recipe, budget_usd, deadline_s, seed)
    with dsl.ExitHandler(settle_step(run), name="spend"):
        key = routed(ingest, READ_ON, run).outputs["Output"]
        said = routed(announce, READ_ON[1:], run, upstream=key, text=key).outputs["said"]
        routed(hear, READ_ON[2:], run, upstream=key, word=said, key=key, times=2)


broken = after_ingest("scenario-broken", fail)
endless = after_ingest("scenario-endless", sleep)
