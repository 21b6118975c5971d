"""`shoestring hindsight`: past choices, priced by the actual costs of their stages."""

from __future__ import annotations

from typing import Annotated

import typer

from shoestring.cli.named_runs import named_run_id
from shoestring.cli.options import JsonOption, SinceOption, UntilOption
from shoestring.cli.times import parse_time
from shoestring.cli.world_source import DEFAULT_WORLD, WorldSource, takes_world
from shoestring.core.errors import UnknownName, UsageError
from shoestring.data.run_records import open_run
from shoestring.reporting.charges import read_charges
from shoestring.reporting.hindsight_report import build_hindsight_report, price_table
from shoestring.reporting.terminal_text import hindsight_text


@takes_world
def show_hindsight(
    run_id: Annotated[str | None, typer.Argument(help="id of a run; default: all runs of the store")] = None,
    stage: Annotated[str | None, typer.Option(help="only this stage")] = None,
    prices: Annotated[
        str, typer.Option(help="'then': the prices at the time of the decision; 'now': the current prices")
    ] = "then",
    since: SinceOption = None,
    until: UntilOption = None,
    source: WorldSource = DEFAULT_WORLD,
    as_json: JsonOption = False,
) -> None:
    """Price the rejected alternatives of past choices.

    Prices follow from what the stages really cost. The result is what the best choice would have saved, and
    the cause.
    """
    if prices not in ("then", "now"):
        raise UsageError(f"--prices: {prices!r} is unknown; choose then or now")
    opened = source.open()
    if run_id is not None:
        run_id = open_run(opened.store, named_run_id(opened.store, run_id)).run_id
    charges, notes = read_charges(
        opened.store, None, parse_time("--since", since), parse_time("--until", until)
    )
    stages = sorted({charge.entry.stage for charge in charges})
    if stage is not None and stage not in stages:
        raise UnknownName("stage with charges", stage, stages)
    quotes = opened.prices.book().quotes if prices == "now" else ()
    book = price_table((quote.pool, quote.market, quote.usd_per_hour) for quote in quotes)
    found = build_hindsight_report(charges, book, run_id, stage, notes)
    typer.echo(found.model_dump_json(indent=1) if as_json else hindsight_text(found))
