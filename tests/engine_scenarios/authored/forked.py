"""Two branches of an author's own stage after `ingest`, and a stage that waits for both."""

from dedupe_rows import stage
from kfp import dsl
from with_exit_step import with_exit_step

from shoestring.components.ingest import ingest
from shoestring.pipelines.routed import RunParameters, own_stage, routed, stages_from
from shoestring.stages import ingest as ingest_stage


def need(name: str, *after: str):
    return stage.NEED.model_copy(update={"stage": name, "after": after})


STAGES = (
    ingest_stage.NEED,
    need("airports", "ingest"),
    need("months", "ingest"),
    need("both", "airports", "months"),
)


@dsl.component(base_image=stage.NEED.image, install_kfp_package=False)
def dedupe(world: str, run_id: str, job_id: str, decision_key: str, origin: str, data: str) -> str:
    from shoestring.runtime import run

    return run(
        "dedupe",
        world=world,
        run_id=run_id or job_id,
        decision_key=decision_key,
        inputs={"data": data},
        origin=origin,
    )


@dsl.component(base_image=stage.NEED.image, install_kfp_package=False)
def join(world: str, run_id: str, job_id: str, decision_key: str, origin: str, data: str, other: str) -> str:
    from shoestring.runtime import run

    return run(
        "both",
        world=world,
        run_id=run_id or job_id,
        decision_key=decision_key,
        inputs={"data": data, "other": other},
        origin=origin,
    )


def route_stages(run: RunParameters) -> None:
    by = {
        name: own_stage(stage, by=[column]) for name, column in (("airports", "origin"), ("months", "month"))
    }
    key = routed(ingest, STAGES, run).outputs["Output"]
    branches = {
        name: routed(dedupe, stages_from(STAGES, name), run, upstream=key, origin=origin, data=key).outputs[
            "Output"
        ]
        for name, origin in by.items()
    }
    airports, months = branches["airports"], branches["months"]
    last = stages_from(STAGES, "both")
    routed(
        join,
        last,
        run,
        upstream=airports,
        side_input=months,
        origin=by["airports"],
        data=airports,
        other=months,
    )


pipeline = with_exit_step("scenario-forked", route_stages)
