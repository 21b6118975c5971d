"""`shoestring prices ...`: price lists and their rejected rows, and the difference between two lists."""

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
from shoestring.cli.local_world import open_world_at
from shoestring.cli.options import JsonOption, WorldOption
from shoestring.config.world import CommittedHours
from shoestring.core.errors import UsageError
from shoestring.core.types import Quote
from shoestring.pricing.catalogues import open_catalogue
from shoestring.pricing.diff import LIMIT_PERCENT, PriceListDiff, ValidatedRows, diff_price_lists, read_list
from shoestring.pricing.price_list import DEFAULT_CATALOGUE, CatalogueFile
from shoestring.pricing.rows import PriceRow
from shoestring.runtime.records.commitments import with_used_hours

app = typer.Typer(
    help="Price lists: their prices and rejected rows, and what a newer list changes.", no_args_is_help=True
)


AsOfOption = Annotated[
    datetime | None, typer.Option(formats=["%Y-%m-%d"], help="date of the prices, for rows without one")
]


ProviderOption = Annotated[str, typer.Option(help="provider, for rows without one")]


def read_price_list(name: str, as_of: datetime | None, provider: str) -> ValidatedRows:
    day = as_of.replace(tzinfo=UTC).date() if as_of else None
    return read_list(
        open_catalogue(CatalogueFile(file=name, as_of=day, provider=provider), Path()),
        WallClock().now().date(),
    )


@app.command()
def show(
    file: Annotated[
        str, typer.Argument(help=f"CSV or YAML; {DEFAULT_CATALOGUE}: the list in the package")
    ] = DEFAULT_CATALOGUE,
    world: WorldOption = None,
    as_of: AsOfOption = None,
    provider: ProviderOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show the prices of a list, and its rejected rows with reasons.

    With --world, show what the pools of that world cost, its prices for moving and storing data, and its
    commitments.
    """
    book, committed = None, tuple[CommittedHours, ...]()
    if world is not None:
        opened = open_world_at(world, None)
        book = opened.prices.book()
        rows: Sequence[Quote | PriceRow] = book.quotes
        rejected, committed = book.rejected, with_used_hours(opened.store, book.committed)
    else:
        read = read_price_list(file, as_of, provider)
        rows, rejected = read.rows, read.quarantined
    if as_json:
        world_facts = (
            {}
            if book is None
            else {"tariffs": book.tariffs.model_dump(mode="json"), "commitments": to_dicts(committed)}
        )
        typer.echo(
            json.dumps({"prices": to_dicts(rows), "rejected": to_dicts(rejected)} | world_facts, indent=1)
        )
        return
    lines = [
        (f"{row_name(row)} {row.market}", f"${row.usd_per_hour}", str(row.as_of), row.source) for row in rows
    ]
    print_table(("what", "per hour", "as of", "source"), lines)
    if book is not None:
        print_table(("transfer", "price per GB"), book.tariffs.route_prices)
        print_table(
            ("storage of a GB", "per month", "reading it", "for at least"), book.tariffs.storage_prices
        )
        print_table(
            ("committed", "commitment", "month", "hours left"), [commitment_row(each) for each in committed]
        )
    if rejected:
        print_table(("rejected row", "reason"), [(each.row, each.reason) for each in rejected])


@app.command()
def refresh(
    current: Annotated[Path, typer.Argument(help="the price list in use")],
    newer: Annotated[Path, typer.Argument(help="the newer price list")],
    limit_percent: Annotated[
        float, typer.Option(min=0, help="a move beyond this is not replaced by itself")
    ] = LIMIT_PERCENT,
    accept: Annotated[
        bool, typer.Option("--accept", help="replace the list, however far prices moved")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="only show what moved")] = False,
    as_of: AsOfOption = None,
    provider: ProviderOption = "",
    as_json: JsonOption = False,
) -> None:
    """Replace the current price list with a newer one, unless a price moved too far: then list those prices
    and exit with 1.
    """
    before, after = (read_price_list(str(path), as_of, provider) for path in (current, newer))
    if not after.rows:
        raise UsageError(f"{newer}: every row was rejected; {current} is unchanged")
    found = diff_price_lists(before.rows, after.rows, limit_percent)
    replaced = (accept or not found.beyond) and not check
    if as_json:
        typer.echo(
            json.dumps(
                found.model_dump(mode="json")
                | {"rejected": to_dicts(after.quarantined), "replaced": replaced},
                indent=1,
            )
        )
    else:
        print_diff(found, after, limit_percent)
    if replaced:
        temporary = current.with_name(f".{current.name}.new")
        shutil.copyfile(newer, temporary)
        temporary.replace(current)
        typer.echo(f"{current} now holds the prices of {newer}", err=True)
    elif not accept and found.beyond:
        typer.echo(
            f"{current} is unchanged: {len(found.beyond)} prices moved by more than {limit_percent:g}%; "
            "give --accept to replace it",
            err=True,
        )
        raise typer.Exit(1)


def print_diff(found: PriceListDiff, after: ValidatedRows, limit_percent: float) -> None:
    changed = [
        (move.what, f"${move.before_usd}", f"${move.after_usd}", f"{move.percent:+.1f}%")
        for move in (*found.beyond, *found.within)
    ]
    if changed:
        print_table(("price", "from", "to", "by"), changed)
    for what, names in (("appeared", found.appeared), ("vanished", found.vanished)):
        if names:
            print_table((what,), [(name,) for name in names])
    typer.echo(
        f"{len(found.beyond)} moved by more than {limit_percent:g}%, {len(found.within)} by less, "
        f"{found.same} not at all; "
        f"{len(found.appeared)} appeared, {len(found.vanished)} vanished, {len(after.quarantined)} rejected"
    )
    if after.quarantined:
        print_table(("rejected row", "reason"), [(each.row, each.reason) for each in after.quarantined])


def commitment_row(each: CommittedHours) -> tuple[str, ...]:
    return (
        f"{each.pool} {each.market}",
        each.name,
        each.month,
        f"{each.left_hours:,.2f} of {each.max_hours:,g}",
    )


def row_name(row: Quote | PriceRow) -> str:
    return row.name if isinstance(row, PriceRow) else row.pool


def to_dicts(records: Any) -> list[dict[str, Any]]:
    return [record.model_dump(mode="json") for record in records]


def print_table(head: tuple[str, ...], lines: Sequence[tuple[str, ...]]) -> None:
    grid = Table(*head, box=None, pad_edge=False)
    for line in lines:
        grid.add_row(*line)
    Console(soft_wrap=True, width=200).print(grid, markup=False, highlight=False)
