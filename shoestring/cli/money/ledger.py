"""`shoestring ledger ...`: accounts, and the check of every hash and balance."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from shoestring.cli.local_world import open_world_at
from shoestring.cli.options import JsonOption, StoreOption, WorldOption
from shoestring.core.errors import UsageError
from shoestring.spending.audit.verify import load_anchors, open_ledger_folder
from shoestring.spending.audit.verify import verify as verify_ledger
from shoestring.spending.ledger.ledger import Ledger, account_names

app = typer.Typer(help="The ledger: what was reserved, spent and released.", no_args_is_help=True)


@app.command()
def show(
    account: Annotated[
        str | None, typer.Argument(help="id of a run, or a month; default: all accounts")
    ] = None,
    world: WorldOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print what an account may spend, has spent and holds."""
    opened = open_world_at(world, store)
    ledger = Ledger(opened.store, opened.clock, str(opened.pod))
    names = account_names(opened.store)
    if account is not None and account not in names:
        raise UsageError(
            f"the ledger of this store has no account {account!r}; the latest are: "
            f"{', '.join(names[-10:]) or 'none'}"
        )
    states = [ledger.state(name) for name in ([account] if account else names)]
    if as_json:
        typer.echo(json.dumps([state.model_dump(mode="json") for state in states], indent=1))
        return
    for state in states:
        cap = "no cap" if state.cap_usd is None else f"cap ${state.cap_usd}"
        how = "closed" if state.closed else "open"
        typer.echo(
            f"{state.account}: {cap}, ${state.spent_usd} spent, ${state.held_usd} held, {state.entries} "
            f"entries, {how}"
        )
        for stage, money in state.stages.items():
            typer.echo(f"  {stage}: ${money.spent_usd} spent, ${money.held_usd} held")


@app.command()
def verify(store: StoreOption = None, world: WorldOption = None, as_json: JsonOption = False) -> None:
    """Recompute every hash, sequence and balance. `--store` takes a store's root or a ledger/ folder."""
    if store is None:
        opened = open_world_at(world, None).store
        found = verify_ledger(opened, load_anchors(opened))
    elif store.is_dir():
        found = verify_ledger(*open_ledger_folder(store))
    else:
        raise UsageError(f"there is no folder {store}: --store takes a store's root, or its ledger/ folder")
    typer.echo(found.model_dump_json(indent=1) if as_json else found.as_text())
