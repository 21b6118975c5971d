"""predict, with a router in front of it, and an exit step that always runs."""

from kfp import dsl

from shoestring.components.predict import predict
from shoestring.pipelines.routed import RunParameters, routed, settle_step
from shoestring.stages import predict as predict_stage

CHAIN = (predict_stage.NEED,)


@dsl.pipeline(
    name="shoestring-predict",
    description="Predicts new rows with the newest model of a recipe, or with a run's, within a budget.",
)
def predict_pipeline(
    recipe: str,
    run_id: str = "",
    world: str = "",
    budget_usd: str = "",
    deadline_s: float = 0.0,
    seed: int = -1,
) -> None:
    """Predict the rows of a recipe's source. The recipe is JSON; `model` in it may name the run of the model.

    The parameters are those of `shoestring-train`.
    """
    run = RunParameters(world, run_id, recipe, budget_usd, deadline_s, seed)
    with dsl.ExitHandler(settle_step(run), name="spend"):
        routed(predict, CHAIN, run)
