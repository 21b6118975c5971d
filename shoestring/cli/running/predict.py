"""`shoestring predict`."""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress

from shoestring.cli.named_runs import named_run
from shoestring.cli.options import JsonOption, ModelArgument
from shoestring.cli.world_source import DEFAULT_WORLD, WorldSource, takes_world
from shoestring.core.errors import UsageError
from shoestring.models.data_files import require_place, require_writable
from shoestring.models.model import model_at
from shoestring.models.predict_file import predict_file
from shoestring.reporting.number_text import quantity
from shoestring.reporting.publish import open_model
from shoestring.reporting.terminal.output import TerminalConsole

DataArgument = Annotated[
    Path, typer.Argument(help="file of CSV, JSON lines, Parquet or Arrow, or a folder of them; or images")
]
OutOption = Annotated[Path, typer.Option("--out", help="file to write: .parquet, .arrow, .csv or .jsonl")]
KeepOption = Annotated[
    list[str] | None, typer.Option("--keep", help="column of DATA to repeat before the predictions")
]
TableOption = Annotated[
    list[str] | None,
    typer.Option("--table", help="NAME=FILE: a joined table, instead of the one kept with the model"),
]


@takes_world
def predict(
    model: ModelArgument,
    data: DataArgument,
    out: OutOption = Path("predictions.parquet"),
    keep: KeepOption = None,
    table: TableOption = None,
    source: WorldSource = DEFAULT_WORLD,
    as_json: JsonOption = False,
) -> None:
    """Predict raw rows with a trained model: a prediction for each row, in order.

    A classification has the class and the probability of each class, a regression a number. Columns that the
    training joined are taken from DATA, else looked up in the tables of the joins. The target may be absent.
    """

    # Reading the model takes seconds.
    require_place(data)
    require_writable(out)
    tables = dict(map(_named_file, table or ()))
    fitted = open_model(model, partial(named_run, source), model_at)
    began_s = time.monotonic()
    screen = TerminalConsole(sys.stderr)
    with Progress(console=screen, transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("predicting", total=None)

        def report(rows: int) -> None:
            progress.update(task, completed=rows, description=f"{rows:,} rows predicted")

        found = predict_file(fitted, data, out, keep or (), tables, report)
    elapsed_s = time.monotonic() - began_s
    if as_json:
        print(json.dumps({"out": str(out), "seconds": round(elapsed_s, 3), **found.model_dump()}))
        return
    for note in found.notes:
        typer.echo(note, err=True)
    typer.echo(f"{out}: {quantity(found.rows, 'row')} predicted in {elapsed_s:.1f} s")


def _named_file(text: str) -> tuple[str, Path]:
    name, _, file = text.partition("=")
    if not name or not file:
        raise UsageError(
            f"--table {text}: write it as NAME=FILE, with the name that the table has in the recipe"
        )
    return name, Path(file)
