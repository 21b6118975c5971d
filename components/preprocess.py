from kfp import dsl

from shoestring.config.world import IMAGES


@dsl.component(base_image=IMAGES["base"], install_kfp_package=False)
def preprocess(
    world: str, run_id: str, job_id: str, decision_key: str, data: str, dataset: dsl.Output[dsl.Dataset]
) -> str:
    """Join, split and encode a data set; return the key of the encoded manifest.

    Args:
        world: path of the world; empty: the mounted files
        run_id: id of the run; empty: `job_id`
        job_id: id that Kubeflow gives the run
        decision_key: key of the stage's decision, from its route step
        data: key of the manifest that the stage reads
    """
    from shoestring.runtime import run

    return run(
        "preprocess",
        world=world,
        run_id=run_id or job_id,
        decision_key=decision_key,
        inputs={"data": data},
        artifact=dataset,
    )
