"""`shoestring prices ...`: price lists and their rejected rows, and the difference between two lists."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from shoestring.backends.local import WallClock
from shoestring.cli.options import JsonOption
from shoestring.cli.world_source import DEFAULT_WORLD, WorldSource, takes_world
from shoestring.config.world import CommittedHours, PriceBook
from shoestring.core.errors import UsageError
from shoestring.core.types import Quote
from shoestring.pricing.catalogues import open_catalogue
from shoestring.pricing.diff import LIMIT_PERCENT, PriceListDiff, ValidatedRows, diff_price_lists, read_list
from shoestring.pricing.price_list import DEFAULT_CATALOGUE, CatalogueFile
from shoestring.pricing.rows import PriceRow
from shoestring.reporting.terminal.output import TerminalConsole
from shoestring.runtime.records.commitments import with_used_hours

MAX_REMOVED_SHARE = 0.05
"""Providers retire machines now and then. A list that lacks more of its prices may be half a file."""

app = typer.Typer(help="Show a price list, or replace it with a newer one.", no_args_is_help=True)


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
@takes_world
def show(
    file: Annotated[
        str, typer.Argument(help=f"CSV or YAML; {DEFAULT_CATALOGUE}: the list in the package")
    ] = DEFAULT_CATALOGUE,
    source: WorldSource = DEFAULT_WORLD,
    as_of: AsOfOption = None,
    provider: ProviderOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show the prices of a list, and its rejected rows.

    With --world or --on, show what the pools of that world cost, its prices for transferring and storing
    data, and its commitments.
    """
    book, committed = None, tuple[CommittedHours, ...]()
    if source.is_given:
        opened = source.open()
        book = opened.prices.book()
        rows: Sequence[Quote | PriceRow] = book.quotes
        rejected, committed = book.rejected, with_used_hours(opened.store, book.committed)
    else:
        read = read_price_list(file, as_of, provider)
        rows, rejected = read.rows, read.rejected
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
        print_world_prices(book, committed)
    if rejected:
        print_table(("rejected row", "reason"), [(each.row, each.reason) for each in rejected])


def print_world_prices(book: PriceBook, committed: Sequence[CommittedHours]) -> None:
    """Print the prices of transfer and storage, and the commitments."""
    print_table(("transfer", "price per GB"), book.tariffs.route_prices)
    print_table(("storage of a GB", "per month", "reading it", "for at least"), book.tariffs.storage_prices)
    commitments = [commitment_row(each) for each in committed]
    print_table(("committed", "commitment", "month", "hours left"), commitments)


@app.command()
def refresh(
    current: Annotated[Path, typer.Argument(help="the price list in use")],
    newer: Annotated[Path, typer.Argument(help="the newer price list")],
    limit_percent: Annotated[
        float, typer.Option(min=0, help="largest change of a price, in percent, that needs no --accept")
    ] = LIMIT_PERCENT,
    accept: Annotated[bool, typer.Option("--accept", help="replace it, however far prices moved")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="replace it, even with an older or a much shorter one")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="only show what moved")] = False,
    as_of: AsOfOption = None,
    provider: ProviderOption = "",
    as_json: JsonOption = False,
) -> None:
    """Replace the current price list with a newer one.

    If a price moved too far, or the newer list is older or much shorter, the list stays, the reason is
    printed, and the exit code is 1.
    """
    before, after = (read_price_list(str(path), as_of, provider) for path in (current, newer))
    if not after.rows:
        raise UsageError(f"{newer}: every row was rejected; {current} is unchanged")
    found = diff_price_lists(before.rows, after.rows, limit_percent)
    doubts = [] if accept or not found.over_limit else [moved_sentence(found, limit_percent)]
    doubts += [] if force else [*age_sentences(before.rows, after.rows), *removed_sentences(found, before)]
    replaced = not doubts and not check
    if as_json:
        facts = {"rejected": to_dicts(after.rejected), "replaced": replaced}
        typer.echo(json.dumps(found.model_dump(mode="json") | facts, indent=1))
    else:
        print_diff(found, after, limit_percent)
    if replaced:
        temporary = current.with_name(f".{current.name}.new")
        shutil.copyfile(newer, temporary)
        temporary.replace(current)
        typer.echo(f"{current} now holds the prices of {newer}", err=True)
    elif doubts:
        typer.echo(f"{current} is unchanged: {'; '.join(doubts)}", err=True)
        raise typer.Exit(1)


def moved_sentence(found: PriceListDiff, limit_percent: float) -> str:
    return (
        f"{len(found.over_limit)} prices moved by more than {limit_percent:g}%: give --accept to replace it"
    )


def age_sentences(before: Sequence[PriceRow], after: Sequence[PriceRow]) -> list[str]:
    """Return what is wrong with the dates of the newer list, if anything."""
    days = {row.key: row.as_of for row in before}
    older = sum(row.as_of < days.get(row.key, row.as_of) for row in after)
    if not older:
        return []
    first, last = max(days.values()), max(row.as_of for row in after)
    return [
        f"{older} of {len(after)} prices are older than those in use (newest: {last}, in use: {first}): "
        "give --force to go back to them"
    ]


def removed_sentences(found: PriceListDiff, before: ValidatedRows) -> list[str]:
    """Return what is wrong with the number of removed prices, if anything."""
    removed, rows = len(found.removed), len(before.rows)
    if removed <= MAX_REMOVED_SHARE * rows:
        return []
    return [
        f"{removed} of {rows} prices are missing in the newer list, which may be truncated: "
        "give --force to drop them"
    ]


def print_diff(found: PriceListDiff, after: ValidatedRows, limit_percent: float) -> None:
    changed = [
        (move.name, f"${move.before_usd}", f"${move.after_usd}", f"{move.percent:+.1f}%")
        for move in (*found.over_limit, *found.within_limit)
    ]
    if changed:
        print_table(("price", "from", "to", "by"), changed)
    for what, names in (("added", found.added), ("removed", found.removed)):
        if names:
            print_table((what,), [(name,) for name in names])
    typer.echo(
        f"{len(found.over_limit)} moved by more than {limit_percent:g}%, {len(found.within_limit)} by less, "
        f"{found.unchanged} not at all; "
        f"{len(found.added)} added, {len(found.removed)} removed, {len(after.rejected)} rejected"
    )
    if after.rejected:
        print_table(("rejected row", "reason"), [(each.row, each.reason) for each in after.rejected])


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
    TerminalConsole(sys.stdout, soft_wrap=True, width=200).print(grid)
