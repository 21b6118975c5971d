"""`shoestring reconcile`: the ledger compared with OpenCost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shoestring.cli.options import JsonOption
from shoestring.cli.times import ledger_month
from shoestring.cli.world_source import DEFAULT_WORLD, WorldSource, takes_world
from shoestring.core.errors import UsageError
from shoestring.reporting.charges import read_charges
from shoestring.reporting.exports.focus import month_period
from shoestring.reporting.exports.opencost import read_allocations
from shoestring.reporting.exports.reconcile import reconcile
from shoestring.reporting.terminal_text import reconciliation_text


@takes_world
def show_reconciliation(
    file: Annotated[Path, typer.Argument(help="response of OpenCost's /allocation API, as JSON")],
    month: Annotated[
        str | None, typer.Option("--month", help="only this month; default: the time window of the file")
    ] = None,
    source: WorldSource = DEFAULT_WORLD,
    as_json: JsonOption = False,
) -> None:
    """Compare the ledger with OpenCost or Kubecost.

    The comparison is by run and stage, over the pods of Shoestring.
    """
    try:
        data = file.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from None
    opened = source.open()
    charges, notes = read_charges(opened.store)
    allocations = read_allocations(data, {charge.run_id for charge in charges})
    if month is not None:
        since, until = month_period(ledger_month(opened.store, month))
    elif allocations:
        since, until = min(each.start for each in allocations), max(each.end for each in allocations)
    else:
        raise UsageError(f"{file} contains no allocation: query OpenCost for a time window in which pods ran")
    found = reconcile(charges, allocations, since, until, notes)
    typer.echo(found.model_dump_json(indent=1) if as_json else reconciliation_text(found))
