from typing import NamedTuple

from kfp import dsl

from shoestring.config.world import IMAGES


# fmt: off
@dsl.component(base_image=IMAGES["base"], install_kfp_package=False)
def route(
    needs: str, world: str, run_id: str, job_id: str, recipe: str, budget_usd: str, deadline_s: float,
    seed: int, upstream: str, side_input: str,
    decision: dsl.Output[dsl.Artifact], page: dsl.Output[dsl.Markdown],
    items: list = None,  # noqa: RUF013  KFP takes no other form
) -> NamedTuple(
    "Placement", node_selector=dict, tolerations=list, affinity=dict, cpu=str, memory=str, accelerator=str,
    accelerator_count=str, image=str, decision_key=str,
):
    """Choose where the next stage runs, reserve its P95 cost, and explain the decision.

    Args:
        needs: cost models of this stage and of all stages that do not precede it, as JSON; compiled by
            `routed()`
        world: path of the world; empty: the mounted files
        run_id: id of the run; empty: `job_id`
        job_id: id that Kubeflow gives the run
        recipe: the recipe as JSON
        budget_usd: dollars for the whole run; empty: the recipe's budget
        deadline_s: seconds for the whole run; 0: the recipe's deadline
        seed: random seed; below 0: the recipe's seed
        upstream: key of the manifest that the stage reads; empty: none
        side_input: key of a second object that the stage reads; empty: none
        items: the list of the innermost loop around the stage, if the run makes it
    """
    from collections import namedtuple

    from shoestring.runtime import route

    values = route(
        needs, world, run_id or job_id, recipe, budget_usd, deadline_s, seed,
        upstream, side_input, decision.path, page.path, job_id,
        items,
    )
    return namedtuple("Placement", values)(**values)
