"""`shoestring world ...`: the file that defines what to run on, and what it costs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shoestring.backends.local import default_world_path
from shoestring.core.errors import UsageError
from shoestring.pricing.templates import cloud_world
from shoestring.runtime.launch.local_world import default_store_folder, local_world, write_world_file

app = typer.Typer(help="Create the file that defines pools, prices and the store.", no_args_is_help=True)


@app.callback()
def world() -> None:
    """Create the file that defines pools, prices and the store."""


@app.command()
def init(
    out: Annotated[
        Path | None, typer.Option(help="file to write; default: the one that other commands read")
    ] = None,
    example: Annotated[
        str | None,
        typer.Option(help="'cloud': a cluster of CPU and GPU pools with dated list prices, for `plan`"),
    ] = None,
    store: Annotated[Path | None, typer.Option(help="folder of the object store")] = None,
    force: Annotated[bool, typer.Option("--force", help="replace an existing file")] = False,
) -> None:
    """Write a world file for this machine, or an example world for planning."""
    path = out or default_world_path()
    if path.exists() and not force:
        raise UsageError(f"{path} exists: give --force to replace it, or --out for another file")
    if example not in (None, "cloud"):
        raise UsageError(f"there is no example called {example!r}; the only example is: cloud")
    own = default_store_folder()
    # The example has a store of its own: receipts and results of this machine say nothing about its pools.
    folder = (store or (own.with_name(f"{own.name}-{example}") if example else own)).expanduser().absolute()
    content = cloud_world(str(folder)) if example else local_world(folder)
    write_world_file(path, content)
    if example:
        typer.echo(
            f"{path}: {len(content['pools'])} pools with dated list prices, for planning: "
            f"`shoestring plan flights --world {path}`"
        )
        return
    typer.echo(f"{path}: pools {', '.join(pool['name'] for pool in content['pools'])}; the store is {folder}")
    typer.echo("$0.04 per core-hour is an assumption: set your own price in the file")
