from kfp import dsl

from shoestring.config.world import IMAGES


@dsl.component(base_image=IMAGES["train"], install_kfp_package=False)
def evaluate(
    world: str,
    run_id: str,
    job_id: str,
    decision_key: str,
    data: str,
    model: str,
    metrics: dsl.Output[dsl.Metrics],
) -> str:
    """Evaluate the model once on the test split against the baselines; return the evaluation's key."""
    from shoestring.runtime import run

    return run(
        "evaluate",
        world=world,
        run_id=run_id or job_id,
        decision_key=decision_key,
        inputs={"data": data, "model": model},
        artifact=metrics,
    )
