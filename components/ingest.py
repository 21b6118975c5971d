from kfp import dsl

from shoestring.config.world import IMAGES


@dsl.component(base_image=IMAGES["base"], install_kfp_package=False)
def ingest(world: str, run_id: str, job_id: str, decision_key: str, dataset: dsl.Output[dsl.Dataset]) -> str:
    """Read the recipe's source tables, check every row and write a data set; return its manifest's key.

    Args:
        world: path of the world; empty: the mounted files
        run_id: id of the run; empty: `job_id`
        job_id: id that Kubeflow gives the run
        decision_key: key of the stage's decision, from its route step
    """
    from shoestring.runtime import run

    return run(
        "ingest", world=world, run_id=run_id or job_id, decision_key=decision_key, inputs={}, artifact=dataset
    )
