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
    """Evaluate the model once on the test split against the baselines; return the evaluation's key.

    Args:
        world: path of the world; empty: the mounted files
        run_id: id of the run; empty: `job_id`
        job_id: id that Kubeflow gives the run
        decision_key: key of the stage's decision, from its route step
        data: key of the manifest that the stage reads
        model: key of the model record
    """
    from shoestring.runtime import run

    return run(
        "evaluate",
        world=world,
        run_id=run_id or job_id,
        decision_key=decision_key,
        inputs={"data": data, "model": model},
        artifact=metrics,
    )
