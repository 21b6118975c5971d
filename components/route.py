from typing import NamedTuple

from kfp import dsl

from shoestring.config.world import IMAGES


@dsl.component(base_image=IMAGES["base"], install_kfp_package=False)
def route(
    needs: str,
    world: str,
    run_id: str,
    job_id: str,
    recipe: str,
    budget_usd: str,
    deadline_s: float,
    seed: int,
    upstream: str,
    side_input: str,
    decision: dsl.Output[dsl.Artifact],
    page: dsl.Output[dsl.Markdown],
) -> NamedTuple(
    "Placement",
    node_selector=dict,
    tolerations=list,
    affinity=dict,
    cpu=str,
    memory=str,
    accelerator=str,
    accelerator_count=str,
    image=str,
    decision_key=str,
):
    """Choose where the next stage runs, reserve its P95 cost, and explain the decision."""
    from collections import namedtuple

    from shoestring.runtime import route

    values = route(
        needs,
        world,
        run_id or job_id,
        recipe,
        budget_usd,
        deadline_s,
        seed,
        upstream,
        side_input,
        decision.path,
        page.path,
        job_id,
    )
    return namedtuple("Placement", values)(**values)
