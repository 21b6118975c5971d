"""`shoestring world ...`: what there is to run on, and what it costs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer
import yaml

from shoestring.backends.local import WallClock, default_world_path
from shoestring.backends.nvml import found_gpus
from shoestring.core.errors import UsageError
from shoestring.pricing.templates import cloud_world, laptop_world

app = typer.Typer(help="Make the file that names pools, prices and the store.", no_args_is_help=True)


@app.callback()
def world() -> None:
    """Make the file that names pools, prices and the store."""


def default_store() -> Path:
    return Path(os.environ.get("XDG_DATA_HOME", "~/.local/share")).expanduser() / "shoestring"


def this_machine(store: Path) -> dict[str, Any]:
    """A world of this machine's cores and GPUs, at an assumed price a core-hour."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory_gb = round(psutil.virtual_memory().total / 1e9, 1)
    gpus = [(gpu.name, gpu.memory_gb) for gpu in found_gpus()]
    return laptop_world(
        cores=cores, memory_gb=memory_gb, store=str(store), as_of=WallClock().now().date(), gpus=gpus
    )


def write_world(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content, sort_keys=False, allow_unicode=True), encoding="utf-8")


def ensure_default_world() -> str | None:
    """Make the default world file when there is none; returns what to tell the user."""
    path = default_world_path()
    if path.exists():
        return None
    content = this_machine(default_store())
    write_world(path, content)
    pools = ", ".join(pool["name"] for pool in content["pools"])
    return f"made {path} for this machine (pools {pools}; $0.04 a core-hour is an assumption: put your own price there)"


@app.command()
def init(
    out: Annotated[
        Path | None, typer.Option(help="the file to write; default: where the other commands look")
    ] = None,
    example: Annotated[
        str | None,
        typer.Option(help="'cloud': a cluster of CPU and GPU pools with dated list prices, for `plan`"),
    ] = None,
    store: Annotated[Path | None, typer.Option(help="folder of the object store")] = None,
    force: Annotated[bool, typer.Option("--force", help="replace a file that is there")] = False,
) -> None:
    """Write a world file for this machine, or an example to plan with."""
    path = out or default_world_path()
    if path.exists() and not force:
        raise UsageError(f"{path} is there already: give --force to replace it, or --out for another place")
    if example not in (None, "cloud"):
        raise UsageError(f"there is no example called {example!r}; there is: cloud")
    folder = (store or default_store()).expanduser().absolute()
    content = cloud_world(str(folder)) if example else this_machine(folder)
    write_world(path, content)
    if example:
        typer.echo(
            f"{path}: {len(content['pools'])} pools with dated list prices, to plan with: `shoestring plan flights --world {path}`"
        )
        return
    typer.echo(f"{path}: pools {', '.join(pool['name'] for pool in content['pools'])}; the store is {folder}")
    typer.echo("$0.04 a core-hour is an assumption: put your own price into the file")
