"""The world of this machine: its file is written when there is none, and it is opened with a store."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import psutil

from shoestring.backends.local import WallClock, default_world_path, read_world_file
from shoestring.backends.nvml import list_gpus
from shoestring.config.yaml_loader import dump
from shoestring.core.errors import UsageError
from shoestring.pricing.templates import laptop_world


def default_store_folder() -> Path:
    return Path(os.environ.get("XDG_DATA_HOME", "~/.local/share")).expanduser() / "shoestring"


def local_world(store: Path) -> dict[str, Any]:
    """Return a world of this machine's cores and GPUs, at an assumed price per core-hour."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory_gb = round(psutil.virtual_memory().total / 1e9, 1)
    gpus = [(gpu.name, gpu.memory_gb) for gpu in list_gpus()]
    return laptop_world(
        cores=cores, memory_gb=memory_gb, store=str(store), as_of=WallClock().now().date(), gpus=gpus
    )


def write_world_file(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dump(content, sort_keys=False, allow_unicode=True), encoding="utf-8")


def ensure_default_world() -> str | None:
    """Write the default world file if there is none; return the message for the user."""
    path = default_world_path()
    if path.exists():
        return None
    content = local_world(default_store_folder())
    write_world_file(path, content)
    pools = ", ".join(pool["name"] for pool in content["pools"])
    return (
        f"wrote {path} for this machine (pools {pools}; $0.04 per core-hour is an assumption: "
        "set your own price)"
    )


def check_runnable(path: Path) -> Path:
    """Return the path of the world. Raises UsageError if the world is for planning only."""
    if read_world_file(path).purpose == "plan":
        raise UsageError(
            f"{path} is a world for planning only, so nothing can run on it: "
            "create one with `shoestring world init`"
        )
    return path
