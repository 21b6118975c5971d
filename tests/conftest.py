"""Fixtures for all tests: real data, a world of this machine, and one completed run."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
from commands import RECIPE, BuildOnce, Finished, Ran, flights_lines, shoestring
from examples import register_profiles

register_profiles()
pytest.register_assert_rewrite("engine_scenarios")

# Ledgers sync every entry to disk, which costs nothing in memory. Containers often have a small /dev/shm.
MEMORY_FOLDER, MIN_MEMORY_BYTES = Path("/dev/shm"), 4 << 30
if MEMORY_FOLDER.is_dir() and shutil.disk_usage(MEMORY_FOLDER).free > MIN_MEMORY_BYTES:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY_FOLDER))


@pytest.fixture(autouse=True)
def all_cores() -> Iterator[None]:
    """Give the process its cores back after a test in which a local cluster placed it on one."""
    if not hasattr(os, "sched_getaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)
    yield
    os.sched_setaffinity(0, cores)


@pytest.fixture(scope="session")
def build_once(tmp_path_factory: pytest.TempPathFactory) -> BuildOnce:
    """Return the folder of this name, which the first pytest-xdist worker to ask for it builds for all."""
    root = tmp_path_factory.getbasetemp()
    root = root.parent if root.name.startswith("popen-") else root

    def build(name: str, fill: Callable[[Path], None]) -> Path:
        folder, built = root / name, root / f"{name}.built"
        with (root / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not built.exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                fill(folder)
                built.touch()
        return folder

    return build


@pytest.fixture(scope="session")
def flights_slice(build_once: BuildOnce) -> Path:
    """A recipe over the first 20,000 flights, 22 days of them."""

    def fill(folder: Path) -> None:
        (folder / "flights.csv").write_bytes(b"".join(flights_lines(20_000)))
        (folder / "slice.yaml").write_text(RECIPE)

    return build_once("slice", fill) / "slice.yaml"


@pytest.fixture(scope="session")
def laptop(build_once: BuildOnce) -> Path:
    """A world file of this machine; its store is only a default: each test names its own store."""

    def fill(folder: Path) -> None:
        ran = shoestring("world", "init", "--out", folder / "world.yaml", "--store", folder / "store")
        assert ran.code == 0, ran.err

    return build_once("world", fill) / "world.yaml"


@pytest.fixture(scope="session")
def whole_run(flights_slice: Path, laptop: Path, build_once: BuildOnce) -> Path:
    """The folder of one run of the pipeline: its store, what it wrote to `out`, and how the command ended."""

    def fill(folder: Path) -> None:
        store, out = folder / "store", folder / "out"
        ran = shoestring(
            "run", flights_slice, "--world", laptop, "--store", store, "--out", out, "--seed", "7", "--json"
        )
        log = out / "log.txt"
        assert ran.code == 0, f"{ran.err}\n{log.read_text()[-4000:] if log.exists() else ''}"
        (folder / "ran.json").write_text(json.dumps(asdict(ran)))

    return build_once("whole_run", fill)


@pytest.fixture(scope="session")
def finished(
    whole_run: Path, flights_slice: Path, laptop: Path, tmp_path_factory: pytest.TempPathFactory
) -> Finished:
    """A copy of the run for this worker, since some tests run again on its store."""
    folder = tmp_path_factory.mktemp("finished")
    store, out = (shutil.copytree(whole_run / name, folder / name) for name in ("store", "out"))
    ran = Ran(**json.loads((whole_run / "ran.json").read_text()))
    return Finished(ran, store, out, flights_slice, laptop)
