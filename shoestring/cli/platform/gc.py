"""`shoestring gc`: finds, prices and deletes the objects that nothing kept refers to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer
from pydantic import AwareDatetime, Field

from shoestring.cli.options import JsonOption
from shoestring.cli.platform.where import holdings_lines
from shoestring.cli.world_source import DEFAULT_WORLD, WorldSource, takes_world
from shoestring.config.retention import RetentionPolicy
from shoestring.core.errors import UsageError
from shoestring.core.interfaces import ObjectDeletion, StoreInventory
from shoestring.core.record import Record
from shoestring.data.retention.collect import collect
from shoestring.data.retention.garbage import Garbage, find_garbage
from shoestring.data.retention.holdings import Holdings, hold, kinds_of
from shoestring.reporting.number_text import quantity, utc_time


class CleanUp(Record):
    """The result of a search for garbage, and whether it was deleted."""

    store: str
    retention: RetentionPolicy
    keep_since: AwareDatetime = Field(
        description="objects that were written since then stay, whatever they are"
    )
    kept_runs: int = Field(description="runs that keep their data")
    expired_runs: tuple[str, ...] = Field(description="runs that do not; their records stay")
    deleted: bool
    garbage: Holdings
    keys: tuple[str, ...]


KeepRunsOption = Annotated[
    int | None,
    typer.Option(
        "--keep-runs",
        min=1,
        help="the newest runs of each recipe, this many, keep their data; default: the policy's",
    ),
]
KeepDaysOption = Annotated[
    float | None,
    typer.Option(
        "--keep-days",
        min=0,
        help="runs that wrote a record in the last days, this many, keep their data; default: the policy's",
    ),
]
GraceOption = Annotated[
    float | None,
    typer.Option(
        "--grace-hours",
        min=0,
        help="what was written in the last hours, this many, stays; default: the policy's (48)",
    ),
]


@takes_world
def gc(
    delete: Annotated[bool, typer.Option("--delete", help="delete; without it, only list")] = False,
    keep_runs: KeepRunsOption = None,
    keep_days: KeepDaysOption = None,
    grace_hours: GraceOption = None,
    source: WorldSource = DEFAULT_WORLD,
    as_json: JsonOption = False,
) -> None:
    """List what no run, ledger or receipt needs, and what it costs a month; --delete deletes it.

    Without --keep-runs, --keep-days and `retention` in the policy, all runs keep their data. The records of a
    run stay in any case, and so does what a running run may need. It may run while others run, be killed and
    run again.
    """
    opened = source.open(writes=delete)
    store, given = opened.store, {"keep_runs": keep_runs, "keep_days": keep_days, "grace_hours": grace_hours}
    retention = with_options(opened.policy.retention, given)
    assert isinstance(store, StoreInventory) and isinstance(store, ObjectDeletion)
    if delete:
        found, keys = collect(store, store, store, retention, opened.clock)
    else:
        found = find_garbage(store, store, retention, opened.clock.now())
        keys = found.keys
    kinds = kinds_of(store, found.objects) if keys else {}
    result = CleanUp(
        store=store.place,
        retention=retention,
        keep_since=found.windows.keep_since,
        kept_runs=len(found.windows.kept),
        expired_runs=tuple(run.run_id for run in found.windows.expired),
        deleted=delete,
        garbage=hold(keys, found.objects, kinds, opened.prices.book().tariffs),
        keys=keys,
    )
    typer.echo(result.model_dump_json(indent=1) if as_json else _as_text(result, found))


def with_options(retention: RetentionPolicy, given: Mapping[str, float | None]) -> RetentionPolicy:
    """Return the policy's windows, or those that were given. Raises UsageError."""
    changes = {name: value for name, value in given.items() if value is not None}
    if wrong := [name for name, value in changes.items() if value <= 0]:
        option = f"--{wrong[0].replace('_', '-')}"
        raise UsageError(f"{option} {changes[wrong[0]]:g} is not a window: give a number above 0")
    return RetentionPolicy.model_validate(retention.model_dump() | changes)


def _as_text(result: CleanUp, found: Garbage) -> str:
    runs = f"the data of {quantity(result.kept_runs, 'run')}, and what was written since "
    lines = [f"store  {result.store}", f"kept   {runs}{utc_time(result.keep_since)}"]
    if expired := found.windows.expired:
        oldest, newest = expired[0].last_written, expired[-1].last_written
        when = f"last written from {utc_time(oldest)} to {utc_time(newest)}"
        lines.append(f"       only the records of {quantity(len(expired), 'run')}, {when}")
    if not result.keys:
        return "\n".join([*lines, "nothing to delete"])
    verb = "deleted" if result.deleted else "would go (--delete deletes it)"
    return "\n".join([*lines, *holdings_lines(verb, result.garbage)])
