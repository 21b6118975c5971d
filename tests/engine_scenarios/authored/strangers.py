"""Components of another author after `ingest`: one that ends well, one that fails, one that never ends."""

from kfp import dsl

from shoestring.components.ingest import ingest
from shoestring.config.world import IMAGES
from shoestring.core.types import Need
from shoestring.pipelines.routed import RunParameters, routed, settle_step
from shoestring.stages import ingest as ingest_stage

STAGE = "theirs"
CHAIN = (ingest_stage.NEED, Need(stage=STAGE, setup_s=2.0))


# An image with Python and kfp, which Kubeflow needs to call a function. The components do not use the rest.
@dsl.component(base_image=IMAGES["base"], install_kfp_package=False)
def announce(text: str) -> str:
    print(text)
    return text


@dsl.component(base_image=IMAGES["base"], install_kfp_package=False)
def fail(text: str) -> str:
    raise SystemExit(f"this component fails, given {text}")


@dsl.component(base_image=IMAGES["base"], install_kfp_package=False)
def sleep(text: str) -> str:
    import time

    time.sleep(36000)
    return text


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


good = after_ingest("scenario-good", announce)
broken = after_ingest("scenario-broken", fail)
endless = after_ingest("scenario-endless", sleep)
