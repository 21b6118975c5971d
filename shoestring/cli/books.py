"""`shoestring report` and `ledger ...`: looking at what was spent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from shoestring.cli.running import JsonOption, StoreOption, WorldOption, world_at
from shoestring.core.errors import UsageError
from shoestring.data.run_records import open_run
from shoestring.reporting.publish import export, publish
from shoestring.spending.audit.verify import load_anchors, open_for_verify
from shoestring.spending.audit.verify import verify as verify_ledger
from shoestring.spending.ledger.ledger import Ledger, accounts

app = typer.Typer(help="The books: what was reserved, spent and released.", no_args_is_help=True)


def report(
    run_id: str,
    out: Annotated[Path | None, typer.Option(help="folder for the run's files; default: runs/RUN_ID")] = None,
    world: WorldOption = None,
    store: StoreOption = None,
) -> None:
    """Write a run's report and files again, as it stands now."""
    opened = world_at(world, store)
    open_run(opened.store, run_id)
    folder = out or Path("runs") / run_id
    publish(opened.store, run_id)
    export(opened.store, run_id, folder)
    typer.echo(str(folder / "report.html"))


@app.command()
def show(
    account: Annotated[str | None, typer.Argument(help="a run's id or a month; default: every month")] = None,
    world: WorldOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print what an account may spend, has spent and holds."""
    opened = world_at(world, store)
    ledger = Ledger(opened.store, opened.clock, opened.pod_uid)
    names = accounts(opened.store)
    if account is not None and account not in names:
        raise UsageError(
            f"there is no account {account!r} in this store's ledger; there is: {', '.join(names[-10:]) or 'none'}"
        )
    states = [ledger.state(name) for name in ([account] if account else names)]
    if as_json:
        typer.echo(json.dumps([state.model_dump(mode="json") for state in states], indent=1))
        return
    for state in states:
        cap = "no cap" if state.cap_usd is None else f"cap ${state.cap_usd}"
        how = "closed" if state.closed else "open"
        typer.echo(
            f"{state.account}: {cap}, ${state.spent_usd} spent, ${state.held_usd} held, {state.entries} entries, {how}"
        )
        for stage, money in state.stages.items():
            typer.echo(f"  {stage}: ${money.spent_usd} spent, ${money.held_usd} held")


@app.command()
def verify(store: StoreOption = None, world: WorldOption = None, as_json: JsonOption = False) -> None:
    """Recompute every hash, sequence and balance. `--store` takes a store's root or a ledger/ folder."""
    if store is None:
        opened = world_at(world, None).store
        found = verify_ledger(opened, load_anchors(opened))
    elif store.is_dir():
        found = verify_ledger(*open_for_verify(store))
    else:
        raise UsageError(
            f"there is no folder {store}: --store takes a store's root, or the ledger/ folder inside it"
        )
    typer.echo(found.model_dump_json(indent=1) if as_json else found.as_text())


def add_to(main: typer.Typer) -> None:
    main.command()(report)
