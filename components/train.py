from kfp import dsl

from shoestring.config.world import IMAGES


@dsl.component(base_image=IMAGES["train"], install_kfp_package=False)
def train(
    world: str, run_id: str, job_id: str, decision_key: str, data: str, model: dsl.Output[dsl.Model]
) -> str:
    """Train within the budget, which always ends with an annealed model; return the model's key."""
    from shoestring.runtime import run

    return run(
        "train",
        world=world,
        run_id=run_id or job_id,
        decision_key=decision_key,
        inputs={"data": data},
        artifact=model,
    )
