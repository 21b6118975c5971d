"""A world file over a copy of a store with two real runs, and commands on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from commands import Ran, shoestring
from stored_runs import StoredRuns

from shoestring.core.record import SCHEMA_VERSION

WORLD = {
    "schema_version": SCHEMA_VERSION,
    "name": "stored",
    "pools": [{"name": "cpu-1", "cores": 1, "memory_gb": 4}],
    "prices": [
        {
            "pool": "cpu-1",
            "market": "on-demand",
            "usd_per_hour": "0.04",
            "as_of": "2026-11-01",
            "source": "own",
        }
    ],
    "tariffs": {"storage_usd_per_gb_month": "0.5"},
}


class Lab:
    """A world file, its store, and commands on them."""

    def __init__(self, folder: Path) -> None:
        self.store = StoredRuns(folder / "store")
        self.store.age(f"runs/{self.store.stopped}/", 40)
        self.world = folder / "world.yaml"
        self.write_world()

    def write_world(self, **changes: Any) -> None:
        self.world.write_text(yaml.safe_dump(WORLD | {"store": str(self.store.root)} | changes))

    def __call__(self, *arguments: object, code: int = 0) -> Ran:
        ran = shoestring(*arguments, "--world", self.world)
        assert ran.code == code, ran.err
        return ran
