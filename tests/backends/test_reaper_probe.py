"""The reaper's probe on stores of every kind: the next process goes on where the last one was."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from store_locations import StoreLocation

from shoestring.backends.local import open_local_world
from shoestring.core.interfaces import StoreTimes
from shoestring.runtime.settlement.looks import StoreProbe


def test_a_new_reaper_goes_on_from_the_probe_of_the_last_one(
    location: StoreLocation, laptop: Path, tmp_path: Path
) -> None:
    store = location.open()
    assert isinstance(store, StoreTimes)
    world = replace(open_local_world(laptop, store=tmp_path / "unused"), store=store)
    first = StoreProbe(world, store)
    began = first.write()
    assert first.steady_since == began
    assert began <= first.write() < began + timedelta(seconds=60)
    second = StoreProbe(world, store)
    second.write()
    assert second.steady_since == began
