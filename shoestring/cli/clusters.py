"""`--on CONTEXT`: runs on a cluster, by way of Argo Workflows. They are followed by what the cluster's API says of them, so that
nothing but a kubeconfig is needed here; money and quality come with the summary, when the exit step has left it.
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

from shoestring.backends.argo import TEMPLATE, Argo, Progress, Step, open_argo
from shoestring.cli.running import tell
from shoestring.cli.wishes import budget_of
from shoestring.core.errors import ClusterError
from shoestring.core.types import validation_message
from shoestring.data.recipe import Recipe
from shoestring.reporting.summary import Summary

LOOK_EVERY_S = 1.0


def run_on(
    context: str,
    namespace: str,
    template: str | None,
    found: Recipe,
    budget: str | None,
    deadline_s: float | None,
    seed: int | None,
    as_json: bool,
) -> None:
    """Start a run of a recipe there and follow it to its end."""
    budget_usd = budget_of(budget, found.budget_usd)
    argo = open_argo(context, namespace)
    # A Workflow's name is a label's value: no underscores, 63 characters.
    run_id = f"{re.sub('[_-]+', '-', found.name)[:40].strip('-')}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    argo.start(
        run_id,
        template or TEMPLATE,
        {
            "recipe": found.model_dump_json(),
            "budget_usd": str(budget_usd),
            "deadline_s": str(deadline_s or found.deadline_s or 0),
            "seed": str(found.seed if seed is None else seed),
        },
    )
    place = f"--on {context} --namespace {namespace}"
    typer.echo(
        f"{run_id} is started; it goes on without this command: shoestring watch {run_id} {place}", err=True
    )
    end(follow(argo, run_id, lambda step: typer.echo(words(step), err=True)), context, namespace, as_json)


def watch_on(context: str, namespace: str, run: str, as_json: bool) -> None:
    """Follow a run there, by its Workflow's name or its id."""

    def say(step: Step) -> None:
        typer.echo(json.dumps(asdict(step)) if as_json else words(step))

    end(follow(open_argo(context, namespace), run, say), context, namespace, as_json)


def follow(argo: Argo, run: str, say: Callable[[Step], None]) -> Progress:
    """Say every step when it changes, until the run is over."""
    said: dict[tuple[str, int], Step] = {}
    while True:
        progress = argo.look(run)
        for step in progress.steps:
            if said.get((step.name, step.attempt)) != step:
                said[step.name, step.attempt] = step
                say(step)
        if progress.is_over:
            return progress
        time.sleep(LOOK_EVERY_S)


def words(step: Step) -> str:
    attempt = f" (attempt {step.attempt})" if step.attempt > 1 else ""
    node = f" on {step.node}" if step.node else ""
    return f"{step.name}{attempt}: {step.phase.lower()}{node}" + (f": {step.message}" if step.message else "")


def end(progress: Progress, context: str, namespace: str, as_json: bool) -> None:
    """The last words of a run, and its exit code, as they are where it ran on this machine."""
    if not progress.summary:
        last = next((words(step) for step in reversed(progress.steps) if step.message), progress.message)
        raise ClusterError(
            f"{progress.workflow} ended as {progress.phase} and its exit step left no summary: {last}"
        )
    try:
        summary = Summary.model_validate_json(progress.summary)
    except ValidationError as error:
        raise ClusterError(
            f"the summary of {progress.workflow} is of another version of Shoestring: {validation_message(error)}"
        ) from None
    logs = f"kubectl --context {context} --namespace {namespace} logs --selector shoestring.dev/run={summary.run_id}"
    hints = (f"what its steps printed: {logs} --container main --tail -1 --prefix",)
    tell(summary, f"in its store, runs/{summary.run_id}/report.html", hints, as_json)
