"""`--on CONTEXT`: runs on a cluster, through Argo Workflows.

The cluster's API reports their steps, so nothing but a kubeconfig is needed on this machine. Cost and quality
come with the summary, which the exit step writes.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

import typer
from pydantic import ValidationError

from shoestring.backends.argo import (
    PREDICT_TEMPLATE,
    RUN_ID_PARAMETER,
    TEMPLATE,
    Argo,
    ArgoProgress,
    ArgoStep,
    RunWorkflow,
    open_argo,
)
from shoestring.cli.named_runs import named_run_id
from shoestring.cli.options import budget_from_option
from shoestring.cli.run_end import print_run_end
from shoestring.cli.sent_recipes import check_sent
from shoestring.config.world import World
from shoestring.core.errors import ClusterError, NotAllowed, UnknownName, UsageError
from shoestring.core.record import argument_json, validation_message
from shoestring.data.recipe import Recipe
from shoestring.data.run_records import open_run
from shoestring.models.run_models import is_prediction
from shoestring.reporting.run_reader import read_run_story
from shoestring.reporting.summary import RunSummary, summarise_run
from shoestring.routing.placement import SETTLE
from shoestring.runtime.admission.approvals import previous_request
from shoestring.runtime.open_world import open_world_on

POLL_INTERVAL_S = 1.0


def run_on(
    context: str,
    namespace: str,
    template: str | None,
    recipe: Recipe | None,
    budget: str | None,
    deadline_s: float | None,
    seed: int | None,
    as_json: bool,
) -> None:
    """Start a run on the cluster and follow it to its end. `recipe` None: the template runs commands."""
    budget_usd = budget_from_option(budget)
    parameters = {"budget_usd": str(budget_usd or ""), "deadline_s": str(deadline_s or 0)}
    parameters["seed"] = str(-1 if seed is None else seed)
    name = template or TEMPLATE
    if recipe is not None:
        check_sent(recipe, trains=name == TEMPLATE)
        name = recipe.name
        parameters = {
            "recipe": argument_json(recipe),
            "budget_usd": str(budget_usd or recipe.budget_usd),
            "deadline_s": str(deadline_s or recipe.deadline_s or 0),
            "seed": str(recipe.seed if seed is None else seed),
        }
    argo = open_argo(context, namespace)
    run_id = f"{workflow_name(name)}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    argo.start(run_id, template or TEMPLATE, {RUN_ID_PARAMETER: run_id, **parameters})
    follow_started(argo, run_id, run_id, context, namespace, as_json)


def workflow_name(text: str) -> str:
    """Return the beginning of a Workflow's name, which is also a label value: no underscores, at most 63
    characters with what follows.
    """
    return re.sub("[^a-z0-9]+", "-", text.lower())[:40].strip("-")


def follow_started(argo: Argo, name: str, run_id: str, context: str, namespace: str, as_json: bool) -> None:
    """Follow a Workflow that this command created to its end."""
    typer.echo(
        f"{run_id} has started and continues without this command. Follow it with: shoestring watch {run_id} "
        f"--on {context} --namespace {namespace}",
        err=True,
    )
    progress = follow_workflow(argo, name, lambda step: typer.echo(step_text(step), err=True))
    print_workflow_end(progress, context, namespace, as_json)


def resume_on(
    context: str,
    namespace: str,
    template: str | None,
    run_id: str,
    budget: str | None,
    deadline_s: float | None,
    seed: int | None,
    as_json: bool,
) -> None:
    """Run the pipeline of a run again, under the run's id, and follow it to its end.

    Its stages that are done are found in the cache, and training continues from its checkpoint.
    """
    budget_usd, argo = budget_from_option(budget), open_argo(context, namespace)
    earlier = earlier_run(argo, context, namespace, run_id)
    if earlier.progress is not None and is_done(earlier.progress):
        typer.echo(f"{run_id} is done: nothing was started, and nothing was spent", err=True)
        print_workflow_end(earlier.progress, context, namespace, as_json)
        return
    if seed is not None and earlier.parameters.get("seed", str(seed)) != str(seed):
        kept = earlier.parameters["seed"]
        raise UsageError(f"{run_id} was started with seed {kept}: a resumed run keeps its seed")
    changed = {
        RUN_ID_PARAMETER: run_id,
        **({} if budget_usd is None else {"budget_usd": str(budget_usd)}),
        **({} if deadline_s is None else {"deadline_s": str(deadline_s)}),
    }
    if template is None and earlier.template is None:
        raise UsageError(
            f"the Workflow of {run_id} was deleted, and its records do not name the WorkflowTemplate of its "
            "commands: name it with --template"
        )
    name = f"{workflow_name(run_id)}-{secrets.token_hex(4)}"
    argo.start(name, template or earlier.template or TEMPLATE, {**earlier.parameters, **changed})
    follow_started(argo, name, run_id, context, namespace, as_json)


@dataclass(frozen=True, slots=True)
class EarlierRun:
    """The arguments of a run that is resumed. `template`: None where its records do not name it. `progress`:
    of its last Workflow; None: it was deleted.
    """

    template: str | None
    parameters: Mapping[str, str]
    progress: ArgoProgress | None


def earlier_run(argo: Argo, context: str, namespace: str, run_id: str) -> EarlierRun:
    """Return a run that has ended, by its last Workflow; without one, by its records in the cluster's store.

    Raises:
        UsageError: it still runs, or ran on Kubeflow.
        UnknownName: there is no such run.
    """
    try:
        found = argo.find(run_id)
    except UnknownName:
        return stored_run(open_world_on(context, namespace, reads_only=True), run_id)
    if found.is_kubeflow:
        world = open_world_on(context, namespace, reads_only=True)
        raise UsageError(kubeflow_resume(named_run_id(world.store, run_id)))
    progress = argo.read(found.name)
    if not progress.is_finished:
        raise UsageError(
            f"{run_id} is still running, as Workflow {found.name}: follow it with shoestring watch {run_id} "
            f"--on {context} --namespace {namespace}"
        )
    return EarlierRun(found.template, found.parameters, progress)


def kubeflow_resume(run_id: str) -> str:
    return f"{run_id} is a run of Kubeflow: resume it with `shoestring upload --run --run-id {run_id}`"


def stored_run(world: World, run_id: str) -> EarlierRun:
    """Return a run by its records, which do not name an author's WorkflowTemplate.

    Raises UnknownName; UsageError if it cannot be resumed.
    """
    run = open_run(world.store, named_run_id(world.store, run_id))
    if summarise_run(read_run_story(world.store, run.run_id)).status == "done":
        raise UsageError(f"{run.run_id} is done: there is nothing to resume")
    if run.starts and run.start.engine == "kubeflow":
        raise UsageError(kubeflow_resume(run.run_id))
    budget_usd, deadline_s = previous_request(world, run)
    parameters = {
        "budget_usd": str(budget_usd),
        "deadline_s": str(deadline_s or 0),
        "seed": str(run.record.job.seed),
    }
    if run.record.recipe is None:
        return EarlierRun(None, parameters, None)
    parameters["recipe"] = argument_json(run.record.recipe)
    template = PREDICT_TEMPLATE if is_prediction(world.store, run.run_id) else TEMPLATE
    return EarlierRun(template, parameters, None)


def is_done(progress: ArgoProgress) -> bool:
    return bool(progress.summary) and parse_summary(progress).status == "done"


def find_on(context: str, namespace: str, run: str) -> RunWorkflow | None:
    """Return the newest Workflow of a run on the cluster; None if there is none, or none may be read, which
    is printed.

    Raises ClusterError.
    """
    try:
        return open_argo(context, namespace).find(run)
    except UnknownName:
        return None
    except NotAllowed as error:
        typer.echo(f"{error}; until then its store alone is read", err=True)
        return None


def watch_workflow(context: str, namespace: str, name: str, as_json: bool) -> None:
    """Follow a run on the cluster, by its Workflow's name."""

    def on_change(step: ArgoStep) -> None:
        typer.echo(json.dumps(asdict(step)) if as_json else step_text(step))

    print_workflow_end(
        follow_workflow(open_argo(context, namespace), name, on_change), context, namespace, as_json
    )


def follow_workflow(argo: Argo, name: str, on_change: Callable[[ArgoStep], None]) -> ArgoProgress:
    """Report every step of a Workflow when it changes, until the run is over."""
    last_seen: dict[tuple[str, int], ArgoStep] = {}
    while True:
        progress = argo.read(name)
        for step in progress.steps:
            if last_seen.get((step.name, step.attempt)) != step:
                last_seen[step.name, step.attempt] = step
                on_change(step)
        if progress.is_finished:
            return progress
        time.sleep(POLL_INTERVAL_S)


def step_text(step: ArgoStep) -> str:
    attempt = f" (attempt {step.attempt})" if step.attempt > 1 else ""
    node = f" on {step.node}" if step.node else ""
    return f"{step.name}{attempt}: {step.phase.lower()}{node}" + (f": {step.message}" if step.message else "")


def print_workflow_end(progress: ArgoProgress, context: str, namespace: str, as_json: bool) -> None:
    """Print the end of a run and exit with its code, as for a run on this machine."""
    if not progress.summary:
        is_settled = any(step.name == SETTLE and step.phase == "Succeeded" for step in progress.steps)
        lacks = "" if is_settled else ", and its exit step wrote no summary"
        raise ClusterError(f"{progress.workflow} ended as {progress.phase}{lacks}: {last_message(progress)}")
    summary = parse_summary(progress)
    selector = f"shoestring.dev/run={summary.run_id}"
    logs = f"kubectl --context {context} --namespace {namespace} logs --selector {selector}"
    again = f"shoestring run --resume {summary.run_id} --on {context} --namespace {namespace}"
    output = f"output of its steps: {logs} --container main --tail -1 --prefix"
    errors = [f"error of Argo at {error}" for error in progress.errors]
    hints = () if summary.status == "refused" else (*errors, output, f"resume it: {again}")
    report = f"in its store, runs/{summary.run_id}/report.html"
    print_run_end(summary, report, hints, as_json, has_succeeded=progress.phase == "Succeeded")


def last_message(progress: ArgoProgress) -> str:
    """Return what the last step said before the exit step, which has no summary to write where the first
    route step refused to begin the run.
    """
    told = [step for step in progress.steps if step.message]
    before = [step for step in told if step.name != SETTLE]
    return step_text((before or told)[-1]) if told else progress.message


def parse_summary(progress: ArgoProgress) -> RunSummary:
    """Return the summary that the exit step wrote. Raises ClusterError."""
    try:
        return RunSummary.model_validate_json(progress.summary)
    except ValidationError as error:
        raise ClusterError(
            f"the summary of {progress.workflow} was written by another version of Shoestring: "
            f"{validation_message(error)}"
        ) from None


def check_local_only(**options: object) -> None:
    """Raises UsageError for an option that does not apply to a run on a cluster."""
    if given := [f"--{name}" for name, value in options.items() if value]:
        raise UsageError(
            f"{', '.join(given)} applies to runs on this machine: with --on, the cluster's own world and "
            "store are used"
        )
