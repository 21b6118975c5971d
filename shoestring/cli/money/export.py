"""`shoestring export ...`: costs and models in the formats of other tools."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from shoestring.cli.named_runs import named_run
from shoestring.cli.options import JsonOption, ModelArgument, MonthOption
from shoestring.cli.times import ledger_month
from shoestring.cli.world_source import DEFAULT_WORLD, WorldSource, takes_world
from shoestring.core.money import from_microusd
from shoestring.models.data_files import require_no_folder
from shoestring.models.model import model_at
from shoestring.models.onnx_file import CHECKED_ROWS, write_onnx
from shoestring.reporting.charges import read_charges
from shoestring.reporting.exports.focus import focus_csv, focus_rows, total_microusd
from shoestring.reporting.publish import open_model
from shoestring.reporting.terminal.output import TerminalConsole
from shoestring.spending.ledger.ledger import Ledger

app = typer.Typer(help="Write costs and models in the formats of other tools.", no_args_is_help=True)


@app.callback()
def export() -> None:
    """Write costs and models in the formats of other tools."""


@app.command()
@takes_world
def focus(
    month: MonthOption,
    out: Annotated[Path, typer.Option("--out", help="the CSV file to write")],
    provider: Annotated[
        str | None, typer.Option(help="provider of the machines; default: the name of the world")
    ] = None,
    source: WorldSource = DEFAULT_WORLD,
    as_json: JsonOption = False,
) -> None:
    """Write a month of the ledger as FOCUS 1.2 cost rows.

    Each attempt has one row for what it computed, and one for each idle part.
    """
    opened = source.open()
    name = ledger_month(opened.store, month)
    charges, notes = read_charges(opened.store, [name])
    rows = list(focus_rows(charges, provider or opened.name))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(focus_csv(rows), encoding="utf-8", newline="")
    total = from_microusd(total_microusd(charges))
    open_usd = total - Ledger(opened.store, opened.clock).state(name).spent_usd
    if as_json:
        facts = {
            "month": name,
            "rows": len(rows),
            "total_usd": str(total),
            "open_usd": str(open_usd),
            "notes": notes,
        }
        typer.echo(json.dumps(facts, indent=1))
        return
    still = f", ${open_usd} of it in accounts that are still open" if open_usd else ""
    typer.echo("\n".join([f"{out}: {len(rows)} rows, ${total} of {name}{still}", *notes]))


@app.command()
@takes_world
def onnx(
    model: ModelArgument,
    out: Annotated[Path, typer.Option("--out", help="the file to write")],
    source: WorldSource = DEFAULT_WORLD,
    as_json: JsonOption = False,
) -> None:
    """Write a model as a file of ONNX, from encoded rows to calibrated predictions.

    It is compared with the model on random rows, and timed on this machine, before it is written.
    """
    require_no_folder(out)
    with TerminalConsole(sys.stderr).status("comparing the graph with the model"):
        found = open_model(
            model, partial(named_run, source), lambda folder: write_onnx(model_at(folder), out)
        )
    if as_json:
        typer.echo(json.dumps({"out": str(out), **found.model_dump()}))
        return
    typer.echo(
        f"{out}: {found.size_bytes / 1e6:.2f} MB; differs from the model by at most "
        f"{found.largest_difference:.1e}; on one thread {found.row_ms:.2f} ms for a row alone, "
        f"{found.rows_us:.1f} us a row of {CHECKED_ROWS:,}"
    )
