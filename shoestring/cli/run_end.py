"""The last lines that a run prints, and its exit code."""

from __future__ import annotations

import json

import typer

from shoestring.core.text import join_names
from shoestring.reporting.summary import RunSummary, engine_text


def print_run_end(
    summary: RunSummary, report: str, hints: tuple[str, ...], as_json: bool, *, has_succeeded: bool = False
) -> None:
    """Print the end of a run and exit with 1 unless it is done.

    `report`: where the report is. `hints`: what the user can do about a run that did not finish.
    `has_succeeded`: on its engine, which decides where it is not known which branches were taken.
    """
    if as_json:
        # In one line, since those of `watch` come before it.
        typer.echo(json.dumps(summary.model_dump(mode="json"), sort_keys=True))
    elif summary.status != "refused":
        spent = f"${summary.spent_usd} of ${summary.budget_usd}"
        quality = ", ".join(f"{name} {value:.4f}" for name, value in summary.quality.items())
        typer.echo(f"{summary.run_id}: {summary.status}, {spent} spent" + (f"; {quality}" if quality else ""))
        if summary.not_taken:
            typer.echo(f"not taken: {join_names(summary.not_taken)}")
        if engine := engine_text(summary):
            typer.echo(f"engine: {engine}")
        if summary.overrun_usd:
            typer.echo(f"overrun: ${summary.overrun_usd} above the cap, which the ledger could not book")
        if summary.late_s:
            typer.echo(f"the deadline was missed: the last stage ended {summary.late_s:,.1f} s late")
        typer.echo(f"report: {report}")
        if summary.quality_warning:
            typer.echo(f"the model is {summary.quality_warning}")
    if summary.status != "done":
        typer.echo("\n".join([f"shoestring: {summary.reason}", *hints]), err=True)
        raise typer.Exit(0 if summary.may_be_done and has_succeeded else 1)
