"""`shoestring actuals`, `hindsight`, `reconcile` and `export`: what came of the estimates and the choices, and others' books."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, get_args

import typer

from shoestring.cli.running import JsonOption, StoreOption, WorldOption, world_at
from shoestring.core.errors import UnknownName, UsageError
from shoestring.core.interfaces import Store
from shoestring.core.money import from_microusd
from shoestring.data.run_records import open_run
from shoestring.reporting.actuals import By, actuals
from shoestring.reporting.charges import charges_of
from shoestring.reporting.exports.focus import focus_csv, focus_rows, period, total_microusd
from shoestring.reporting.exports.opencost import read_allocations
from shoestring.reporting.exports.reconcile import reconcile
from shoestring.reporting.hindsight_report import look_back, prices_of
from shoestring.reporting.text import actuals_text, lookback_text, reconciled_text
from shoestring.spending.ledger.ledger import Ledger, accounts
from shoestring.spending.ledger.parent_accounts import MONTH

exports = typer.Typer(help="Write what was paid in the form of others' books.", no_args_is_help=True)

MonthOption = Annotated[str, typer.Option("--month", help="the month's account in the ledger: 2026-11")]
SinceOption = Annotated[
    str | None,
    typer.Option("--since", help="settled at this moment or later: 2026-11-03, or 2026-11-03T14:00Z"),
]
UntilOption = Annotated[str | None, typer.Option("--until", help="settled before this moment")]
ByOption = Annotated[
    list[str] | None,
    typer.Option(
        "--by", help="stage, gpu, pool, market or campaign; may be given again. Default: stage and gpu"
    ),
]


def moment(option: str, text: str | None) -> datetime | None:
    """A date or a time, of UTC where it names no other. Raises UsageError."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{option}: {text!r} is not a date or a time: write it like 2026-11-03 or 2026-11-03T14:00Z"
        ) from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)


def grouping(names: list[str] | None) -> list[By]:
    known = get_args(By)
    if unknown := sorted(set(names or ()) - set(known)):
        raise UsageError(f"--by: there is no {', '.join(unknown)}; there is: {', '.join(known)}")
    return [name for name in known if name in (names or ("stage", "gpu"))]


def show_actuals(
    by: ByOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    world: WorldOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare what was expected with what was paid, and say where money went in which nothing was computed."""
    names, begin, end = grouping(by), moment("--since", since), moment("--until", until)
    charges, notes = charges_of(world_at(world, store).store, None, begin, end)
    found = actuals(charges, names, begin, end, notes)
    typer.echo(found.model_dump_json(indent=1) if as_json else actuals_text(found))


def show_hindsight(
    run_id: Annotated[str | None, typer.Argument(help="a run; default: all runs of the store")] = None,
    stage: Annotated[str | None, typer.Option(help="of this stage alone")] = None,
    prices: Annotated[str, typer.Option(help="'then', as they were when it was decided, or 'now'")] = "then",
    since: SinceOption = None,
    until: UntilOption = None,
    world: WorldOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Price the roads not taken, by what the stages turned out to take: what a better choice would have saved, and why it was not made."""
    if prices not in ("then", "now"):
        raise UsageError(f"--prices: there is no {prices!r}; there is: then, now")
    opened = world_at(world, store)
    if run_id is not None:
        open_run(opened.store, run_id)
    charges, notes = charges_of(opened.store, None, moment("--since", since), moment("--until", until))
    stages = sorted({charge.entry.stage for charge in charges})
    if stage is not None and stage not in stages:
        raise UnknownName("stage that was paid for", stage, stages)
    quotes = opened.prices.book().quotes if prices == "now" else ()
    book = prices_of((quote.pool, quote.market, quote.usd_per_hour) for quote in quotes)
    found = look_back(charges, book, run_id, stage, notes)
    typer.echo(found.model_dump_json(indent=1) if as_json else lookback_text(found))


def show_reconciled(
    file: Annotated[Path, typer.Argument(help="what OpenCost's /allocation API answered, as JSON")],
    month: Annotated[
        str | None, typer.Option("--month", help="this month alone; default: the file's own window")
    ] = None,
    world: WorldOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Hold the ledger against what OpenCost, or Kubecost, allocated to its pods: by run and stage, with what neither explains."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from None
    opened = world_at(world, store)
    charges, notes = charges_of(opened.store)
    allocations = read_allocations(data, {charge.run_id for charge in charges})
    if month is not None:
        since, until = period(month_in(opened.store, month))
    elif allocations:
        since, until = min(each.start for each in allocations), max(each.end for each in allocations)
    else:
        raise UsageError(f"{file} holds no allocation: ask OpenCost for a window in which something ran")
    found = reconcile(charges, allocations, since, until, notes)
    typer.echo(found.model_dump_json(indent=1) if as_json else reconciled_text(found))


@exports.callback()
def export() -> None:
    """Write what was paid in the form of others' books."""


@exports.command()
def focus(
    month: MonthOption,
    out: Annotated[Path, typer.Option("--out", help="the CSV file to write")],
    provider: Annotated[
        str | None, typer.Option(help="who sells the machines; default: the world's name")
    ] = None,
    world: WorldOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a month of the ledger as cost rows of FOCUS 1.2: one for what each attempt computed, one for each part of it that was idle."""
    opened = world_at(world, store)
    name = month_in(opened.store, month)
    charges, notes = charges_of(opened.store, [name])
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
    still = f", ${open_usd} of it by runs whose accounts are still open" if open_usd else ""
    typer.echo("\n".join([f"{out}: {len(rows)} rows, ${total} of {name}{still}", *notes]))


def month_in(store: Store, month: str) -> str:
    """Raises UsageError, UnknownName."""
    if not MONTH.fullmatch(month):
        raise UsageError(f"--month: {month!r} is not a month: write it like 2026-11")
    months = [name for name in accounts(store) if MONTH.fullmatch(name)]
    if month not in months:
        raise UnknownName("month in this store's ledger", month, months)
    return month


def add_to(app: typer.Typer) -> None:
    app.command(name="actuals")(show_actuals)
    app.command(name="hindsight")(show_hindsight)
    app.command(name="reconcile")(show_reconciled)
    app.add_typer(exports, name="export")
