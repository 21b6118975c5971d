from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

from shoestring.backends.folder_store import FolderStore
from shoestring.backends.local import WallClock
from shoestring.backends.reading_store import ReadingStore
from shoestring.core.record import record_bytes
from shoestring.core.types import Format
from shoestring.data.formats.format_benchmark import measure_volume
from shoestring.data.formats.volume_probe import MAX_PROBE_AGE, load_or_probe, measure_fetch, volume_id
from shoestring.pricing.format_speeds import VolumeProbe


class LaterClock(WallClock):
    """The wall clock, shifted into the future."""

    def __init__(self, by: timedelta) -> None:
        self._by = by

    def now(self) -> datetime:
        return super().now() + self._by


def test_every_format_is_measured_and_the_folder_is_left_unchanged(tmp_path: Path) -> None:
    speeds = measure_volume(tmp_path, WallClock())
    assert [speed.format for speed in speeds] == list(Format)
    assert list(tmp_path.iterdir()) == []
    for speed in speeds:
        costs = speed.model_dump(exclude={"format", "size_ratio"})
        assert all(cost >= 0 for cost in costs.values())
        assert min(speed.write_bytes_per_s, speed.scan_bytes_per_s, speed.take_bytes_per_s) > 0


def test_parquet_is_the_smallest_and_the_others_are_as_large_as_their_rows(tmp_path: Path) -> None:
    ratios = {speed.format: speed.size_ratio for speed in measure_volume(tmp_path, WallClock())}
    assert ratios[Format.PARQUET] < 0.8
    assert 1 <= ratios[Format.PACKED] < 1.1
    assert 1 <= ratios[Format.ARROW] < 1.1


def test_a_probe_is_reused_for_a_week(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    first = load_or_probe(store, tmp_path, WallClock())
    assert load_or_probe(store, tmp_path, LaterClock(MAX_PROBE_AGE - timedelta(hours=1))) == first
    second = load_or_probe(store, tmp_path, LaterClock(MAX_PROBE_AGE + timedelta(hours=1)))
    assert second.as_of > first.as_of
    assert (
        load_or_probe(store, tmp_path, WallClock()).as_of < second.as_of
    )  # a probe from the future is measured again


def test_files_that_are_read_where_they_are_are_not_fetched(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    assert measure_fetch(store, WallClock()) == measure_fetch(ReadingStore(store), WallClock()) == 0


def test_a_damaged_stored_probe_is_measured_again(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    key = f"learned/probes/{volume_id(tmp_path)}.json"
    store.put(key, b"{")
    probe = load_or_probe(store, tmp_path, WallClock())
    assert VolumeProbe.model_validate_json(store.fetch(key).read_bytes()) == probe
    assert record_bytes(probe) == store.fetch(key).read_bytes()
