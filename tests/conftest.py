"""Real data, a world of this machine, and one whole run, for every test that needs them."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import RECIPE, Finished, flights_lines, shoestring
from hypothesis import settings

# What a law takes is the machine's business: a deadline would fail it on a busy one.
settings.register_profile("laws", deadline=None)
settings.load_profile("laws")


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


@pytest.fixture(scope="session")
def finished(flights_slice: Path, laptop: Path, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("finished")
    store, out = folder / "store", folder / "out"
    ran = shoestring(
        "run", flights_slice, "--world", laptop, "--store", store, "--out", out, "--seed", "7", "--json"
    )
    assert ran.code == 0, (
        f"{ran.err}\n{(out / 'log.txt').read_text()[-4000:] if (out / 'log.txt').exists() else ''}"
    )
    return Finished(ran, store, out, flights_slice, laptop)
