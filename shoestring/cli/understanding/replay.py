"""`shoestring replay`: recorded decisions, made again and compared."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from shoestring.cli.decision_files import read_decision_file
from shoestring.cli.local_world import open_world_at
from shoestring.cli.options import JsonOption, StoreOption, WorldOption
from shoestring.core import store_layout
from shoestring.core.errors import ShoestringError, UsageError
from shoestring.data.run_records import open_run
from shoestring.routing.analysis.replay import replay as replay_decision

MAX_LINES = 40
"""Lines of each difference that are shown when several decisions are replayed."""


TargetArgument = Annotated[
    str | None,
    typer.Argument(help="file of a decision, folder of decisions, or id of a run; default: all runs"),
]


def replay(
    target: TargetArgument = None,
    world: WorldOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Replay recorded decisions and compare every byte.

    Each decision is made again from its own record. The exit code is 1 if any differs.
    """
    found = {name: _difference(data) for name, data in _decisions(target, world, store)}
    differences = {name: difference for name, difference in found.items() if difference is not None}
    if as_json:
        typer.echo(
            json.dumps(
                {"decisions": len(found), "same": len(found) - len(differences), "differences": differences},
                indent=1,
            )
        )
    elif len(found) == 1 and not differences:
        typer.echo(f"{next(iter(found))}: the same decision, byte for byte")
    else:
        max_lines = MAX_LINES if len(found) > 1 else None
        for name, difference in differences.items():
            lines = difference.splitlines()
            typer.echo("\n".join([f"{name}:", *lines[:max_lines]]))
            if max_lines is not None and len(lines) > max_lines:
                typer.echo(f"... {len(lines) - max_lines} more lines")
        typer.echo(
            f"{len(found)} decisions replayed: {len(found) - len(differences)} the same, byte for byte"
        )
    if differences:
        which = (
            next(iter(differences))
            if len(differences) == 1
            else f"{len(differences)} of {len(found)} decisions"
        )
        typer.echo(f"shoestring: {which}: this version decides differently", err=True)
        raise typer.Exit(1)


def _difference(data: bytes) -> str | None:
    """Return the difference, or None.

    A record of another version cannot be replayed, which counts as a difference.
    """
    try:
        return replay_decision(data)
    except ShoestringError as error:
        return str(error)


def _decisions(target: str | None, world: Path | None, store: Path | None) -> Iterator[tuple[str, bytes]]:
    """Yield each decision with its name. Raises UsageError, UnknownName."""
    path = Path(target) if target else None
    if path is not None and (path.is_file() or path.suffix == ".json"):
        yield target or "", read_decision_file(path)
        return
    if path is not None and path.is_dir():
        files = sorted(path.rglob("decisions/*.json")) or sorted(path.glob("*.json"))
        if not files:
            raise UsageError(f"{path} contains no decision")
        yield from ((str(file), file.read_bytes()) for file in files)
        return
    opened = open_world_at(world, store).store
    if target:
        open_run(opened, target)
    keys = [
        key
        for key in opened.list(store_layout.run(target) if target else store_layout.RUNS)
        if key.split("/")[2:3] == ["decisions"]
    ]
    if not keys:
        raise UsageError("the store contains no decision to replay")
    yield from ((key, opened.fetch(key).read_bytes()) for key in keys)
