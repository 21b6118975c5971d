"""`gc` finds and deletes garbage, on copies of a store with two real runs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from clocks import StillClock
from pydantic import ValidationError
from stored_runs import StoredRuns, dangling

from shoestring.config.retention import RetentionPolicy, held_tariffs
from shoestring.config.tariffs import Tariffs
from shoestring.core import store_layout
from shoestring.core.record import record_bytes
from shoestring.data.retention.collect import collect
from shoestring.data.retention.garbage import Garbage, find_garbage
from shoestring.data.source_files import SourceFile, SourceRecord, save_sources
from shoestring.data.sources.fingerprint import FileFingerprint
from shoestring.data.storage.blobs import put_blob
from shoestring.data.storage.cache import find_outcome

MONTH = RetentionPolicy(keep_days=30)


@pytest.fixture
def store(tmp_path: Path) -> StoredRuns:
    return StoredRuns(tmp_path / "store")


def garbage(store: StoredRuns, retention: RetentionPolicy) -> Garbage:
    return find_garbage(store, store, retention, store.now)


class NoWait(StillClock):
    """A clock whose pauses take no time, in which something else happens."""

    def __init__(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        super().__init__(datetime.now().astimezone())
        self.meanwhile = meanwhile

    def sleep(self, seconds: float) -> None:
        self.meanwhile()


def clean(
    store: StoredRuns, retention: RetentionPolicy, meanwhile: Callable[[], object] = lambda: None
) -> set[str]:
    before = store.all_keys()
    _, deleted = collect(store, store, store, retention, NoWait(meanwhile))
    assert set(deleted) == before - store.all_keys()
    return set(deleted)


def test_without_windows_all_runs_keep_their_data_and_what_nothing_names_goes(store: StoredRuns) -> None:
    assert garbage(store, RetentionPolicy()).keys == ()
    unnamed = {f"blobs/{put_blob(store, b'one')}", f"blobs/{put_blob(store, b'two')}"}
    assert garbage(store, RetentionPolicy()).keys == ()
    store.age("blobs/", 10)
    assert clean(store, RetentionPolicy()) == unnamed
    assert list(dangling(store)) == []


def test_a_run_beyond_the_days_loses_its_data_and_keeps_its_records(store: StoredRuns) -> None:
    store.age(f"runs/{store.stopped}/", 40)
    records = {key for key in store.all_keys() if not key.startswith(("blobs/", "datasets/", "cache/"))}
    kept_data = set(find_outcomes(store))
    gone = clean(store, MONTH)
    assert {key for key in gone if key in records} == {
        key for key in records if f"{store.stopped}/checkpoints/" in key
    }
    assert {key.split("/")[1] for key in gone if key.startswith("datasets/")} == {
        "long-planes",
        "long-planes-raw",
    }
    assert set(find_outcomes(store)) == kept_data - {key for key in gone if key.startswith("cache/")}
    assert list(dangling(store)) == [] and clean(store, MONTH) == set()


def find_outcomes(store: StoredRuns) -> list[str]:
    """Return the cached results, without writing them again."""
    return [key for key in store.list("cache/") if key.count("/") == 1]


def test_the_newest_runs_of_each_recipe_keep_their_data(store: StoredRuns) -> None:
    for number, days in enumerate((8, 9, 20), start=1):
        store.copy_run(store.done, f"planes-copy-{number}", days)
    expired = {
        keep: [run.run_id for run in garbage(store, RetentionPolicy(keep_runs=keep)).windows.expired]
        for keep in (1, 2, 3, 4)
    }
    assert expired[4] == [] and expired[3] == ["planes-copy-3"]
    assert expired[2] == ["planes-copy-3", store.done]
    # The stopped run is of another recipe, of which it is the newest.
    assert expired[1] == ["planes-copy-3", store.done, "planes-copy-2"]
    # What an expired run made is kept while another run uses it.
    assert garbage(store, RetentionPolicy(keep_runs=1)).manifests == ()


def test_predictions_are_a_window_of_their_own_and_keep_the_run_of_their_model(store: StoredRuns) -> None:
    store.copy_run(store.done, "planes-newer", 5)
    for number, model in enumerate((store.done, "planes-newer", "planes-newer"), start=1):
        store.copy_run(store.done, f"night-{number}", number)
        record = store.root / "runs" / f"night-{number}" / "run.json"
        content = json.loads(record.read_text())
        content["recipe"]["model"] = model
        record.write_text(json.dumps(content))
        store.age(f"runs/night-{number}/", number)
    latest, all_three = RetentionPolicy(keep_runs=1, grace_hours=1), RetentionPolicy(keep_runs=3)
    assert garbage(store, latest).windows.kept == {"night-1", store.done, "planes-newer", store.stopped}
    assert garbage(store, all_three).windows.expired == ()


def test_a_run_inside_either_window_is_kept(store: StoredRuns) -> None:
    store.copy_run(store.done, "planes-copy", 20)
    for retention, kept in (
        (RetentionPolicy(keep_runs=1, keep_days=15), {store.done, store.stopped}),
        (RetentionPolicy(keep_runs=1, keep_days=25), {store.done, store.stopped, "planes-copy"}),
        (RetentionPolicy(keep_days=5), set[str]()),
    ):
        assert garbage(store, retention).windows.kept == kept


@pytest.mark.parametrize("hours", [1.0, 300.0])
def test_what_was_written_within_the_grace_stays(store: StoredRuns, hours: float) -> None:
    retention = RetentionPolicy(keep_days=5, grace_hours=hours)
    assert bool(garbage(store, retention).keys) == (hours < 240)


def test_a_running_run_is_kept_whole_with_all_that_was_written_since_it_began(store: StoredRuns) -> None:
    store.open_account(store.done)
    assert store.done in garbage(store, RetentionPolicy(keep_days=5)).windows.kept
    orphan = f"blobs/{put_blob(store, b'of a stage that runs')}"
    store.age("blobs/", 9)
    assert orphan in garbage(store, RetentionPolicy()).keys
    # It wrote a heartbeat lately, and its first record ten days ago.
    store.age(f"runs/{store.done}/heartbeats/", 0)
    assert garbage(store, RetentionPolicy()).keys == ()
    store.age(orphan, 11)
    assert garbage(store, RetentionPolicy()).keys == (orphan,)


def test_what_the_ledger_names_stays(store: StoredRuns) -> None:
    ledger = "".join(store.fetch(key).read_text() for key in store.list("ledger/"))
    decisions = {key for key in store.list("blobs/") if key.removeprefix("blobs/") in ledger}
    assert len(decisions) > 6
    clean(store, RetentionPolicy(keep_days=5))
    assert {key for key in store.all_keys() if key.startswith("blobs/")} == decisions


def test_a_baseline_stays_with_its_data_set(store: StoredRuns) -> None:
    (entry,) = store.list("cache/baselines/")
    predictions = f"blobs/{json.loads(store.fetch(entry).read_text())['predictions_sha256']}"
    store.age(f"runs/{store.stopped}/", 40)
    clean(store, MONTH)
    assert {entry, predictions} <= store.all_keys()
    assert {entry, predictions} <= clean(store, RetentionPolicy(keep_days=5))


def test_the_record_of_source_files_stays_with_its_data_set(store: StoredRuns) -> None:
    dataset = next(key for key in store.list("datasets/") if "/planes-raw/" in key)
    file = SourceFile(name="rows/a.csv", sha256="a" * 64)
    save_sources(store, SourceRecord(dataset=dataset, ingested_at=store.now, files=(file,)))
    store.age("cache/sources/", 20)
    clean(store, MONTH)
    assert store_layout.sources(dataset) in store.all_keys()
    assert {dataset, store_layout.sources(dataset)} <= clean(store, RetentionPolicy(keep_days=5))


def test_an_entry_that_names_no_object_goes_by_its_age_alone(store: StoredRuns) -> None:
    store.put("cache/parts/of-a-table.json", b'{"rows": 7}')
    store.age("cache/parts/", 40)
    assert garbage(store, RetentionPolicy()).keys == ()
    assert garbage(store, MONTH).keys == ("cache/parts/of-a-table.json",)


def test_useless_records_go(store: StoredRuns) -> None:
    for digest, path in (("a" * 64, "rows.csv"), ("b" * 64, "rows.csv"), ("c" * 64, "other.csv")):
        found = FileFingerprint(path=path, size_bytes=1, mtime_ns=1, sha256=digest)
        store.put(store_layout.fingerprint(digest), record_bytes(found))
    store.put(f"{store_layout.leases('f' * 64)}000001.json", b"{}")
    for number in (1, 99):
        store.put(f"{store_layout.pending_entries(store.done, number)}it.json", b"{}")
    assert garbage(store, RetentionPolicy()).keys == ()
    for prefix, days in (("learned/", 10), ("cache/leases/", 10), ("pending/", 10)):
        store.age(prefix, days)
    store.age(store_layout.fingerprint("a" * 64), 11)
    useless = {
        store_layout.fingerprint("a" * 64),
        f"{store_layout.leases('f' * 64)}000001.json",
        f"{store_layout.pending_entries(store.done, 1)}it.json",
    }
    assert clean(store, RetentionPolicy()) == useless


def test_what_a_record_of_an_unknown_kind_names_stays(store: StoredRuns) -> None:
    sha256 = put_blob(store, b"a selection of rows")
    store.age("blobs/", 10)
    assert garbage(store, RetentionPolicy()).keys == (f"blobs/{sha256}",)
    store.put("selections/one.json", json.dumps({"rows": f"blobs/{sha256}"}).encode())
    assert garbage(store, RetentionPolicy()).keys == ()


@pytest.fixture
def expired(store: StoredRuns) -> StoredRuns:
    store.age(f"runs/{store.stopped}/", 40)
    return store


def test_a_cached_result_that_a_run_has_found_keeps_what_it_names(expired: StoredRuns) -> None:
    (raw,) = (key for key in garbage(expired, MONTH).keys if "datasets/long-planes-raw" in key)
    entries = [key for key in find_outcomes(expired) if raw in expired.fetch(key).read_text()]
    entry = next(
        key for key in entries if json.loads(expired.fetch(key).read_text())["outcome"]["key"] == raw
    )
    assert find_outcome(expired, Path(entry).stem) is not None
    assert not {entry, raw} & set(clean(expired, MONTH))
    assert list(dangling(expired)) == []


def test_a_result_that_is_made_again_while_gc_waits_stays(expired: StoredRuns) -> None:
    going = garbage(expired, MONTH)
    manifest, data = going.manifests[0], expired.fetch(going.manifests[0]).read_bytes()
    gone = clean(expired, MONTH, meanwhile=lambda: expired.put(manifest, data))
    assert manifest not in gone and gone
    assert list(dangling(expired)) == []


class KilledError(Exception):
    """The process that deletes is killed."""


class MortalDeletion:
    """Deletes a number of objects, then dies."""

    def __init__(self, store: StoredRuns, left: int) -> None:
        self.store, self.left = store, left

    def delete(self, key: str, written_before: datetime | None = None) -> bool:
        self.left -= 1
        if self.left < 0:
            raise KilledError
        return self.store.delete(key, written_before)


def test_killed_at_any_moment_it_leaves_nothing_dangling_and_then_finishes(tmp_path: Path) -> None:
    for left in range(7):
        store = StoredRuns(tmp_path / str(left))
        store.age(f"runs/{store.stopped}/", 40)
        going = garbage(store, MONTH).keys
        assert len(going) == 6
        with suppress(KilledError):
            collect(store, store, MortalDeletion(store, left), MONTH, NoWait())
        written = store.objects("")
        assert len(set(going) - set(written)) == left and list(dangling(store)) == []
        # Looking at the cache wrote its entries again.
        for key, found in written.items():
            os.utime(store.root / key, (found.modified_at.timestamp(), found.modified_at.timestamp()))
        clean(store, MONTH)
        assert set(going).isdisjoint(store.all_keys())


def test_a_blob_is_written_again_so_that_it_is_new(store: StoredRuns) -> None:
    key = next(store.list("blobs/"))
    put_blob(store, (store.root / key).read_bytes())
    assert store.now - store.objects(key)[key].modified_at < timedelta(minutes=1)


def test_the_grace_must_be_above_zero_and_windows_too() -> None:
    for wrong in ({"keep_runs": 0}, {"keep_days": 0}, {"grace_hours": 0}):
        with pytest.raises(ValidationError):
            RetentionPolicy.model_validate(wrong)


@pytest.mark.parametrize(
    ("tariffs", "retention", "hours"),
    [
        ({}, {}, 24),
        ({}, {"keep_days": 30}, 720),
        ({}, {"keep_runs": 3}, 24),
        ({"storage_held_hours": 100}, {"keep_days": 30}, 100),
    ],
)
def test_storage_is_charged_for_the_window_unless_the_world_says_otherwise(
    tariffs: dict[str, float], retention: dict[str, float], hours: float
) -> None:
    held = held_tariffs(Tariffs.model_validate(tariffs), RetentionPolicy.model_validate(retention))
    assert held.storage_held_hours == hours
