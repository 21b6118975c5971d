from kfp import dsl

from shoestring.config.world import IMAGES


@dsl.component(base_image=IMAGES["base"], install_kfp_package=False)
def preprocess(
    world: str, run_id: str, job_id: str, decision_key: str, data: str, dataset: dsl.Output[dsl.Dataset]
) -> str:
    """Join, split and encode a data set; return the key of the encoded manifest."""
    from shoestring.runtime import run

    return run(
        "preprocess",
        world=world,
        run_id=run_id or job_id,
        decision_key=decision_key,
        inputs={"data": data},
        artifact=dataset,
    )
