"""ingest -> preprocess -> train -> evaluate, each with a router in front of it, and an exit step that always
runs.
"""

from kfp import dsl

from shoestring.components.evaluate import evaluate
from shoestring.components.ingest import ingest
from shoestring.components.preprocess import preprocess
from shoestring.components.train import train
from shoestring.pipelines.routed import RunParameters, routed, settle_step
from shoestring.runtime.admission.stages import training_needs

CHAIN = training_needs()


@dsl.pipeline(
    name="shoestring-train",
    description="Trains a model within a budget: every stage is routed, metered and settled.",
)
def train_pipeline(
    recipe: str,
    run_id: str = "",
    world: str = "",
    budget_usd: str = "",
    deadline_s: float = 0.0,
    seed: int = -1,
) -> None:
    """Train and evaluate the model of a recipe, which is JSON.

    Empty `run_id` and `world`: the engine's id of the run, and the mounted world. Empty `budget_usd`,
    `deadline_s` 0 and `seed` -1: the recipe's values. A budget is dollars as text, like "0.05".
    """
    run = RunParameters(world, run_id, recipe, budget_usd, deadline_s, seed)
    with dsl.ExitHandler(settle_step(run), name="spend"):
        raw = routed(ingest, CHAIN, run)
        rows = routed(preprocess, CHAIN[1:], run, upstream=raw.outputs["Output"], data=raw.outputs["Output"])
        model = routed(train, CHAIN[2:], run, upstream=rows.outputs["Output"], data=rows.outputs["Output"])
        routed(
            evaluate,
            CHAIN[3:],
            run,
            upstream=rows.outputs["Output"],
            side_input=model.outputs["Output"],
            data=rows.outputs["Output"],
            model=model.outputs["Output"],
        )
