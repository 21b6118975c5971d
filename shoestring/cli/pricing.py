"""`shoestring prices ...`: a price list as it is believed, and what a newer one changes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from shoestring.backends.local import WallClock
from shoestring.cli.running import JsonOption, WorldOption, world_at
from shoestring.config.world import CommittedHours
from shoestring.core.errors import UsageError
from shoestring.core.types import Quote
from shoestring.pricing.catalogues import open_catalogue
from shoestring.pricing.diff import LIMIT_PERCENT, Moves, Read, moves, read_list
from shoestring.pricing.price_list import DEFAULT_CATALOGUE, CatalogueFile
from shoestring.pricing.rows import PriceRow
from shoestring.runtime.records.commitments import with_used

app = typer.Typer(
    help="Price lists: what is believed of them, and what a newer one changes.", no_args_is_help=True
)

AsOfOption = Annotated[
    datetime | None, typer.Option(formats=["%Y-%m-%d"], help="the day of a list whose rows have none")
]
ProviderOption = Annotated[str, typer.Option(help="who sells, where the rows do not say")]


def read_at(name: str, as_of: datetime | None, provider: str) -> Read:
    day = as_of.replace(tzinfo=UTC).date() if as_of else None
    return read_list(
        open_catalogue(CatalogueFile(file=name, as_of=day, provider=provider), Path()),
        WallClock().now().date(),
    )


@app.command()
def show(
    file: Annotated[
        str, typer.Argument(help=f"CSV or YAML; {DEFAULT_CATALOGUE}: the list of the package")
    ] = DEFAULT_CATALOGUE,
    world: WorldOption = None,
    as_of: AsOfOption = None,
    provider: ProviderOption = "",
    as_json: JsonOption = False,
) -> None:
    """Say what a price list asks, and what of it is not believed and why; with --world, what that world's pools cost, moving and holding
    bytes, and what is paid for already."""
    book, committed = None, tuple[CommittedHours, ...]()
    if world is not None:
        opened = world_at(world, None)
        book = opened.prices.book()
        rows: Sequence[Quote | PriceRow] = book.quotes
        doubted, committed = book.rejected, with_used(opened.store, book.committed)
    else:
        read = read_at(file, as_of, provider)
        rows, doubted = read.rows, read.quarantined
    if as_json:
        beside = (
            {}
            if book is None
            else {"tariffs": book.tariffs.model_dump(mode="json"), "committed": dumped(committed)}
        )
        typer.echo(json.dumps({"prices": dumped(rows), "quarantined": dumped(doubted)} | beside, indent=1))
        return
    lines = [
        (f"{name_of(row)} {row.market}", f"${row.usd_per_hour}", str(row.as_of), row.source) for row in rows
    ]
    table(("what", "an hour", "as of", "source"), lines)
    if book is not None:
        table(("moving a GB", "costs"), book.tariffs.route_prices)
        table(("holding a GB", "a month", "reading it", "for at least"), book.tariffs.storage_prices)
        table(("paid for", "by", "in", "hours left"), [paid_for(each) for each in committed])
    if doubted:
        table(("not believed", "why"), [(each.row, each.reason) for each in doubted])


@app.command()
def refresh(
    held: Annotated[Path, typer.Argument(help="the price list in use")],
    newer: Annotated[Path, typer.Argument(help="the one to take its place")],
    limit_percent: Annotated[
        float, typer.Option(min=0, help="a move beyond this is not taken by itself")
    ] = LIMIT_PERCENT,
    accept: Annotated[bool, typer.Option("--accept", help="take it, whatever has moved")] = False,
    check: Annotated[bool, typer.Option("--check", help="only say what has moved")] = False,
    as_of: AsOfOption = None,
    provider: ProviderOption = "",
    as_json: JsonOption = False,
) -> None:
    """Put a newer price list in the place of the one in use, unless a price has moved too far: then say which, and exit with 1."""
    before, after = (read_at(str(path), as_of, provider) for path in (held, newer))
    if not after.rows:
        raise UsageError(f"{newer}: no row of it is believed; {held} stays")
    found = moves(before.rows, after.rows, limit_percent)
    taken = (accept or not found.beyond) and not check
    if as_json:
        typer.echo(
            json.dumps(
                found.model_dump(mode="json") | {"quarantined": dumped(after.quarantined), "taken": taken},
                indent=1,
            )
        )
    else:
        tell(found, after, limit_percent)
    if taken:
        temporary = held.with_name(f".{held.name}.new")
        shutil.copyfile(newer, temporary)
        temporary.replace(held)
        typer.echo(f"{held} is now what {newer} says", err=True)
    elif not accept and found.beyond:
        typer.echo(
            f"{held} stays: {len(found.beyond)} prices moved by more than {limit_percent:g}%; give --accept to take them",
            err=True,
        )
        raise typer.Exit(1)


def tell(found: Moves, after: Read, limit_percent: float) -> None:
    changed = [
        (move.what, f"${move.before_usd}", f"${move.after_usd}", f"{move.percent:+.1f}%")
        for move in (*found.beyond, *found.within)
    ]
    if changed:
        table(("what moved", "from", "to", "by"), changed)
    for what, names in (("appeared", found.appeared), ("vanished", found.vanished)):
        if names:
            table((what,), [(name,) for name in names])
    typer.echo(
        f"{len(found.beyond)} moved by more than {limit_percent:g}%, {len(found.within)} by less, {found.same} not at all; "
        f"{len(found.appeared)} appeared, {len(found.vanished)} vanished, {len(after.quarantined)} not believed"
    )
    if after.quarantined:
        table(("not believed", "why"), [(each.row, each.reason) for each in after.quarantined])


def paid_for(each: CommittedHours) -> tuple[str, ...]:
    return (
        f"{each.pool} {each.market}",
        each.name,
        each.month,
        f"{each.left_hours:,.2f} of {each.max_hours:,g}",
    )


def name_of(row: Quote | PriceRow) -> str:
    return row.name if isinstance(row, PriceRow) else row.pool


def dumped(nouns: Any) -> list[dict[str, Any]]:
    return [noun.model_dump(mode="json") for noun in nouns]


def table(head: tuple[str, ...], lines: Sequence[tuple[str, ...]]) -> None:
    grid = Table(*head, box=None, pad_edge=False)
    for line in lines:
        grid.add_row(*line)
    Console(soft_wrap=True, width=200).print(grid, markup=False, highlight=False)
