"""The three calls that every engine makes: route, run, settle. A KFP component, an Argo template and
`shoestring stage` make them.

A pod is paid for from its first import, so each call imports only what it needs.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shoestring.core.record import parse_argument

if TYPE_CHECKING:
    from shoestring.data.job import Command


def route(
    needs: str,
    world: str,
    run_id: str,
    recipe: str,
    budget_usd: str,
    deadline_s: float,
    seed: int,
    upstream: str,
    side_input: str,
    decision_path: str,
    page_path: str,
    job_id: str = "",
    items: Sequence[Any] | None = None,
) -> dict[str, Any]:
    """Decide where the first stage of `needs` runs, reserve its P95, and return the values for its pod.

    `needs` is RemainingStages as JSON, `recipe` a recipe as JSON. `upstream` is the key of the manifest that
    the stage reads, `side_input` that of a second object; empty: none. The recipe's own values apply where
    `budget_usd` is empty, `deadline_s` is 0 or `seed` is below 0. `job_id` is Kubeflow's id of the run, and
    `items` the list of the innermost loop around the stage, where the run has made it.

    Raises:
        UsageError: `budget_usd` is not an amount above zero, or `run_id` is not valid.
        RecipeError: `recipe` or `needs` is not valid.
        Refused: no offer fits. The decision is stored all the same.
    """
    from shoestring.data.storage.import_closure import sources_read_once
    from shoestring.runtime.admission.stage_request import StageInputs
    from shoestring.runtime.engine_step import engine_step
    from shoestring.runtime.route_step.engine_request import parse_run_request
    from shoestring.runtime.route_step.route import route as route_stage

    with engine_step(world, run_id, "route") as opened, sources_read_once():
        request = parse_run_request(needs, run_id, recipe, budget_usd, deadline_s, seed, job_id, items)
        return route_stage(opened, request, StageInputs(upstream, side_input), decision_path, page_path)


def run(
    stage: str,
    *,
    world: str,
    run_id: str,
    decision_key: str,
    inputs: Mapping[str, str],
    artifact: Any = None,
    origin: str = "",
) -> str:
    """Run one routed stage, and return the key of its result in the store.

    `origin` is JSON that names the code of an author's own stage. `artifact` is an engine's output artifact
    (`.path`, `.metadata`); it receives a copy of the manifest, the model or the metrics for people to read.
    """
    from shoestring.runtime.engine_step import engine_step
    from shoestring.runtime.supervisor.run_stage import run_stage
    from shoestring.stages.work import Origin

    with engine_step(world, run_id, stage) as opened:
        code = parse_argument("the stage's origin", origin, Origin) if origin else None
        outcome = run_stage(opened, world, run_id, decision_key, inputs, code)
        if artifact is not None:
            shutil.copyfile(opened.store.fetch(outcome.artifact or outcome.key), artifact.path)
            artifact.metadata.update(
                {"key": outcome.key, "stage": stage, "rows": outcome.rows, **outcome.metrics}
            )
        return outcome.key


def run_command(stage: str, command: Command, *, world: str, run_id: str, decision_key: str) -> None:
    """Run one routed command, and leave its outputs where its engine reads them.

    Raises StageStopped, StageFailed, Refused, as a stage does.
    """
    from shoestring.commands.command_outputs import write_outputs
    from shoestring.data.run_records import open_run
    from shoestring.runtime.engine_step import engine_step
    from shoestring.runtime.supervisor.run_stage import run_stage

    with engine_step(world, run_id, stage) as opened:
        outcome = run_stage(opened, world, run_id, decision_key, {}, command=command)
        engine = open_run(opened.store, run_id).start.engine or "kubeflow"
        write_outputs(command, opened.store, outcome.artifact, engine)


def settle(*, world: str, run_id: str, page_path: str = "") -> None:
    """Do the exit step: settle dead pods, close the account, and write the summary and the report."""
    from shoestring.runtime.engine_step import engine_step
    from shoestring.runtime.settlement.settle import finish

    with engine_step(world, run_id, "settle") as opened:
        finish(opened, run_id, page_path, summary_path="")
