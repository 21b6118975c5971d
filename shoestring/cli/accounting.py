"""`shoestring actuals`: what came of the estimates."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, get_args

import typer

from shoestring.cli.running import JsonOption, StoreOption, WorldOption, world_at
from shoestring.errors import UsageError
from shoestring.reporting.actuals import By, actuals
from shoestring.reporting.charges import charges_of
from shoestring.reporting.plain import actuals_text

SinceOption = Annotated[str | None, typer.Option("--since", help="settled at this moment or later: 2026-11-03, or 2026-11-03T14:00Z")]
UntilOption = Annotated[str | None, typer.Option("--until", help="settled before this moment")]
ByOption = Annotated[
    list[str] | None, typer.Option("--by", help="stage, gpu, pool, market or campaign; may be given again. Default: stage and gpu")
]


def moment(option: str, text: str | None) -> datetime | None:
    """A date or a time, of UTC where it names no other. Raises UsageError."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{option}: {text!r} is not a date or a time: write it like 2026-11-03 or 2026-11-03T14:00Z") from None
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


def add_to(app: typer.Typer) -> None:
    app.command(name="actuals")(show_actuals)
