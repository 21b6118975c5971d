"""`--on CONTEXT`: runs on a cluster, through Argo Workflows.

The cluster's API reports their steps, so nothing but a kubeconfig is needed on this machine. Cost and quality
come with the summary, which the exit step writes.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime

import typer
from pydantic import ValidationError

from shoestring.backends.argo import TEMPLATE, Argo, ArgoProgress, ArgoStep, open_argo
from shoestring.cli.options import budget_from_option
from shoestring.cli.run_end import print_run_end
from shoestring.core.errors import ClusterError, UsageError
from shoestring.core.record import validation_message
from shoestring.data.recipe import Recipe
from shoestring.reporting.summary import RunSummary

POLL_INTERVAL_S = 1.0


def run_on(
    context: str,
    namespace: str,
    template: str | None,
    recipe: Recipe,
    budget: str | None,
    deadline_s: float | None,
    seed: int | None,
    as_json: bool,
) -> None:
    """Start a run of a recipe on the cluster and follow it to its end."""
    budget_usd = budget_from_option(budget) or recipe.budget_usd
    argo = open_argo(context, namespace)
    # The name of a Workflow is also a label value: no underscores, at most 63 characters.
    name = re.sub("[_-]+", "-", recipe.name)[:40].strip("-")
    run_id = f"{name}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    argo.start(
        run_id,
        template or TEMPLATE,
        {
            "recipe": recipe.model_dump_json(),
            "budget_usd": str(budget_usd),
            "deadline_s": str(deadline_s or recipe.deadline_s or 0),
            "seed": str(recipe.seed if seed is None else seed),
        },
    )
    cluster_options = f"--on {context} --namespace {namespace}"
    typer.echo(
        f"{run_id} has started and continues without this command. Follow it with: shoestring watch {run_id} "
        f"{cluster_options}",
        err=True,
    )
    print_workflow_end(
        follow_workflow(argo, run_id, lambda step: typer.echo(step_text(step), err=True)),
        context,
        namespace,
        as_json,
    )


def watch_on(context: str, namespace: str, run: str, as_json: bool) -> None:
    """Follow a run on the cluster, by its Workflow's name or its own id."""

    def on_change(step: ArgoStep) -> None:
        typer.echo(json.dumps(asdict(step)) if as_json else step_text(step))

    print_workflow_end(
        follow_workflow(open_argo(context, namespace), run, on_change), context, namespace, as_json
    )


def follow_workflow(argo: Argo, run: str, on_change: Callable[[ArgoStep], None]) -> ArgoProgress:
    """Report every step when it changes, until the run is over."""
    last_seen: dict[tuple[str, int], ArgoStep] = {}
    while True:
        progress = argo.read(run)
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
        last = next((step_text(step) for step in reversed(progress.steps) if step.message), progress.message)
        raise ClusterError(
            f"{progress.workflow} ended as {progress.phase}, and its exit step wrote no summary: {last}"
        )
    try:
        summary = RunSummary.model_validate_json(progress.summary)
    except ValidationError as error:
        raise ClusterError(
            f"the summary of {progress.workflow} was written by another version of Shoestring: "
            f"{validation_message(error)}"
        ) from None
    selector = f"shoestring.dev/run={summary.run_id}"
    logs = f"kubectl --context {context} --namespace {namespace} logs --selector {selector}"
    hint = f"output of its steps: {logs} --container main --tail -1 --prefix"
    hints = () if summary.status == "refused" else (hint,)
    print_run_end(summary, f"in its store, runs/{summary.run_id}/report.html", hints, as_json)


def check_local_only(**options: object) -> None:
    """Raises UsageError for an option that does not apply to a run on a cluster."""
    if given := [f"--{name}" for name, value in options.items() if value]:
        raise UsageError(
            f"{', '.join(given)} applies to runs on this machine: with --on, the cluster's own world and "
            "store are used"
        )
