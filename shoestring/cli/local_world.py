"""How a command opens the world that it was given."""

from __future__ import annotations

from pathlib import Path

import typer

from shoestring.config.world import World
from shoestring.runtime.launch.local_world import ensure_default_world
from shoestring.runtime.open_world import open_world


def open_world_at(path: Path | None, store: Path | None) -> World:
    """Open the world for this command; write the default world file if it is missing."""
    if path is None and (made := ensure_default_world()):
        typer.echo(made, err=True)
    world = open_world(str(path) if path else "", absolute(store))
    for rejected in world.prices.book().rejected:
        typer.echo(f"a price was rejected: {rejected.row}: {rejected.reason}", err=True)
    return world


def absolute(store: Path | None) -> Path | None:
    return store.expanduser().absolute() if store else None
