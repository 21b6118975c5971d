"""`shoestring settle`: called by the exit step of an engine."""

from __future__ import annotations

from typing import Annotated

import typer

from shoestring.cli.options import RunIdOption, WorldPathOption
from shoestring.runtime.engine_step import engine_step
from shoestring.runtime.settlement.settle import finish


def settle(
    run_id: RunIdOption,
    page: Annotated[str, typer.Option(help="file to write the report to")] = "",
    summary: Annotated[str, typer.Option(help="file to write the summary to, as JSON")] = "",
    world: WorldPathOption = "",
) -> None:
    """Settle and close a run, and write its summary and report."""
    with engine_step(world, run_id, "settle") as opened:
        finish(opened, run_id, page, summary)
