from kfp import dsl

from shoestring.config.world import IMAGES


@dsl.component(base_image=IMAGES["train"], install_kfp_package=False)
def predict(
    world: str, run_id: str, job_id: str, decision_key: str, predictions: dsl.Output[dsl.Dataset]
) -> str:
    """Predict the rows of the recipe's source with the model of an earlier run; return the record's key.

    Args:
        world: path of the world; empty: the mounted files
        run_id: id of the run; empty: `job_id`
        job_id: id that Kubeflow gives the run
        decision_key: key of the stage's decision, from its route step
    """
    from shoestring.runtime import run

    return run(
        "predict",
        world=world,
        run_id=run_id or job_id,
        decision_key=decision_key,
        inputs={},
        artifact=predictions,
    )
