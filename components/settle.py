from kfp import dsl

from shoestring.config.world import IMAGES


@dsl.component(base_image=IMAGES["base"], install_kfp_package=False)
def settle(world: str, run_id: str, job_id: str, report: dsl.Output[dsl.HTML]):
    """Settle what is still reserved, close the run's account, and write the report.

    Args:
        world: path of the world; empty: the mounted files
        run_id: id of the run; empty: `job_id`
        job_id: id that Kubeflow gives the run
    """
    from shoestring.runtime import settle

    settle(world=world, run_id=run_id or job_id, page_path=report.path)
