"""`shoestring ledger ...`: accounts, and the check of every hash and balance."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from shoestring.cli.named_runs import named_run_id
from shoestring.cli.options import JsonOption
from shoestring.cli.world_source import DEFAULT_WORLD, WorldSource, takes_world
from shoestring.core.errors import UsageError
from shoestring.spending.audit.heads import HEADS, ledger_heads, read_heads
from shoestring.spending.audit.verify import load_anchors, open_ledger_folder
from shoestring.spending.audit.verify import verify as verify_ledger
from shoestring.spending.ledger.ledger import Ledger, account_names

app = typer.Typer(help="The ledger: what was reserved, spent and released.", no_args_is_help=True)


@app.command()
@takes_world
def show(
    account: Annotated[
        str | None,
        typer.Argument(help="id of a run (its starts, month and campaign), or one account; default: all"),
    ] = None,
    source: WorldSource = DEFAULT_WORLD,
    as_json: JsonOption = False,
) -> None:
    """Print what an account may spend, has spent and holds."""
    opened = source.open()
    ledger = Ledger(opened.store, opened.clock, str(opened.pod))
    names = account_names(opened.store)
    shown = names if account is None else account_family(ledger, names, named_run_id(opened.store, account))
    states = [ledger.state(name) for name in shown]
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
        for name, overrun_usd in state.overruns_usd.items():
            typer.echo(f"  {name}: overrun of ${overrun_usd}, which is above the cap and not in the sum")
        for stage, money in state.stages.items():
            typer.echo(f"  {stage}: ${money.spent_usd} spent, ${money.held_usd} held")


def account_family(ledger: Ledger, names: Sequence[str], account: str) -> list[str]:
    """Return the accounts of a run: of each start, and those that reserve their caps. A month, a campaign or
    a later start stands for itself.

    Raises:
        UsageError: the ledger has no such account.
    """
    starts = [
        name
        for name in names
        if name == account or (name.startswith(f"{account}.") and name.rpartition(".")[2].isdigit())
    ]
    if account not in starts:
        raise UsageError(
            f"the ledger of this store has no account {account!r}; the latest are: "
            f"{', '.join(names[-10:]) or 'none'}"
        )
    starts.sort(key=len)
    states = [ledger.state(name) for name in starts]
    parents = [parent for state in states for parent in (state.parent, state.campaign) if parent]
    return [*starts, *dict.fromkeys(parents)]


@app.command()
@takes_world
def heads(source: WorldSource = DEFAULT_WORLD, as_json: JsonOption = False) -> None:
    """Print one line an account: its name, its number of entries, and the hash of the last one.

    Keep the lines where those who write to the store cannot write. `ledger verify --against FILE` then finds
    a ledger that was cut off, put back to an older state, or written again.
    """
    opened = source.open()
    found = ledger_heads(opened.store, opened.clock, account_names(opened.store))
    typer.echo(
        HEADS.dump_json(found, indent=1).decode() if as_json else "\n".join(each.as_line() for each in found)
    )


AgainstOption = Annotated[
    Path | None,
    typer.Option(help="heads that were kept elsewhere: lines of `ledger heads`, or a run's summary.json"),
]


@app.command()
@takes_world
def verify(
    source: WorldSource = DEFAULT_WORLD,
    against: AgainstOption = None,
    as_json: JsonOption = False,
) -> None:
    """Recompute every hash, sequence and balance, and compare decisions and receipts with the ledger.

    `--store` takes a store's root or a ledger/ folder.
    """
    kept = read_heads(against) if against else ()
    source.check()
    store = source.store
    if store is None:
        opened = source.open().store
        found = verify_ledger(opened, load_anchors(opened), kept)
    elif store.is_dir():
        found = verify_ledger(*open_ledger_folder(store), kept)
    else:
        raise UsageError(f"there is no folder {store}: --store takes a store's root, or its ledger/ folder")
    typer.echo(found.model_dump_json(indent=1) if as_json else found.as_text())
    if kept and not as_json:
        typer.echo(f"{len(kept)} heads of {against} are in the ledger")
