"""`shoestring actuals`: estimates compared with costs."""

from __future__ import annotations

from typing import Annotated, get_args

import typer

from shoestring.cli.options import JsonOption, SinceOption, UntilOption
from shoestring.cli.times import parse_time
from shoestring.cli.world_source import DEFAULT_WORLD, WorldSource, takes_world
from shoestring.core.errors import UsageError
from shoestring.reporting.actuals import GroupBy, compute_actuals
from shoestring.reporting.charges import read_charges
from shoestring.reporting.terminal_text import actuals_text

ByOption = Annotated[
    list[str] | None,
    typer.Option(
        "--by", help="stage, gpu, pool, market or campaign; may be repeated; default: stage and gpu"
    ),
]


def parse_grouping(names: list[str] | None) -> list[GroupBy]:
    """Return the properties to group by, in their fixed order. Raises UsageError."""
    known = get_args(GroupBy)
    if unknown := sorted(set(names or ()) - set(known)):
        raise UsageError(f"--by: unknown: {', '.join(unknown)}; choose from: {', '.join(known)}")
    return [name for name in known if name in (names or ("stage", "gpu"))]


@takes_world
def show_actuals(
    by: ByOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    source: WorldSource = DEFAULT_WORLD,
    as_json: JsonOption = False,
) -> None:
    """Compare expected with actual costs.

    Also show the dollars that bought no computation.
    """
    names, begin, end = parse_grouping(by), parse_time("--since", since), parse_time("--until", until)
    charges, notes = read_charges(source.open().store, None, begin, end)
    found = compute_actuals(charges, names, begin, end, notes)
    typer.echo(found.model_dump_json(indent=1) if as_json else actuals_text(found))
