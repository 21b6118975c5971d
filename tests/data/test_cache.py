from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from data_files import ingested, of, preprocessed, recipe_of
from hypothesis import given
from hypothesis import strategies as st

from shoestring.backends.folder_store import FolderStore
from shoestring.backends.reading_store import ReadingStore
from shoestring.core.datasets import Manifest
from shoestring.core.errors import CorruptObject, NotInStore
from shoestring.core.interfaces import Store
from shoestring.core.types import StageOutcome
from shoestring.data.storage import cache
from shoestring.data.storage.blobs import file_version, load_manifest, open_blob, put_blob


@pytest.fixture
def kept(tmp_path: Path) -> tuple[Store, str, StageOutcome, Manifest]:
    """A cached data set with a quarantine."""
    (tmp_path / "rows.csv").write_text("a,y\n" + "1,2\n" * 50 + "1,2,3\n")
    data, manifest, store = ingested(recipe_of(tmp_path / "rows.csv"), tmp_path)
    key, made_from = cache.cache_key("ingest", "code", {}, {}, {"source": "x"})
    outcome = StageOutcome(key=data, rows=50)
    cache.save_outcome(store, key, outcome, made_from)
    return store, key, outcome, manifest


def damage(store: Store, key: str, keep: int | None = None) -> None:
    """Flip the last byte, or truncate the object. The modification time changes too."""
    path = store.fetch(key)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data if keep is None else data[:keep])


def test_a_saved_outcome_is_found(kept: tuple[Store, str, StageOutcome, Manifest]) -> None:
    store, key, outcome, _ = kept
    assert cache.find_outcome(store, key) == outcome
    assert cache.find_outcome(store, "0" * 64) is None


@pytest.mark.parametrize("cut", [None, 0, 100])
@pytest.mark.parametrize("which", ["entry", "manifest", "part", "quarantine"])
def test_any_damaged_object_of_a_cache_entry_is_a_cache_miss(
    kept: tuple[Store, str, StageOutcome, Manifest], which: str, cut: int | None
) -> None:
    store, key, outcome, manifest = kept
    assert cache.find_outcome(store, key) == outcome
    objects = {
        "entry": f"cache/{key}.json",
        "manifest": outcome.key,
        "part": manifest.splits["rows"][0].key,
        "quarantine": str(manifest.quarantine),
    }
    if which == "quarantine" and cut == 100:
        cut = 10
    damage(store, objects[which], cut)
    assert cache.find_outcome(store, key) is None


@pytest.mark.parametrize("which", ["manifest", "part", "quarantine"])
def test_any_missing_object_of_a_cache_entry_is_a_cache_miss(
    kept: tuple[Store, str, StageOutcome, Manifest], which: str
) -> None:
    store, key, outcome, manifest = kept
    objects = {
        "manifest": outcome.key,
        "part": manifest.splits["rows"][0].key,
        "quarantine": str(manifest.quarantine),
    }
    store.fetch(objects[which]).unlink()
    assert cache.find_outcome(store, key) is None


def test_an_entry_whose_numbers_were_changed_is_a_cache_miss(
    kept: tuple[Store, str, StageOutcome, Manifest],
) -> None:
    store, key, outcome, _ = kept
    path = store.fetch(f"cache/{key}.json")
    text = path.read_text()
    path.write_text(text.replace('"rows": 50', '"rows": 51'))
    assert cache.find_outcome(store, key) is None
    entry = json.loads(text)
    # As an earlier version wrote it.
    del entry["content_sha256"]
    path.write_text(json.dumps(entry))
    assert cache.find_outcome(store, key) == outcome


@pytest.mark.parametrize("is_missing", [False, True])
def test_a_data_set_whose_dictionary_is_damaged_is_a_cache_miss(tmp_path: Path, is_missing: bool) -> None:
    rows: list[dict[str, object]] = [
        {"a": number, "w": "ab"[number % 2], "y": number % 2} for number in range(99)
    ]
    key, manifest, store = preprocessed(recipe_of(of(tmp_path, rows)), tmp_path)
    cache.save_outcome(store, "0" * 64, StageOutcome(key=key), {})
    assert cache.find_outcome(store, "0" * 64) is not None
    assert manifest.encoding is not None
    path = store.fetch(f"blobs/{manifest.encoding.dictionary_sha256}")
    path.unlink() if is_missing else path.write_bytes(path.read_bytes()[:-1])
    assert cache.find_outcome(store, "0" * 64) is None


def test_computing_again_replaces_damaged_objects(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,y\n" + "1,2\n" * 50)
    key, manifest, store = ingested(recipe_of(tmp_path / "rows.csv"), tmp_path)
    damage(store, manifest.splits["rows"][0].key, 10)
    with pytest.raises(CorruptObject):
        open_blob(store, manifest.splits["rows"][0].sha256)
    assert ingested(recipe_of(tmp_path / "rows.csv"), tmp_path)[0] == key
    assert open_blob(store, manifest.splits["rows"][0].sha256).is_file()


def test_blobs_and_records_are_verified_too(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    blob = f"blobs/{put_blob(store, b'model')}"
    store.put("runs/r/model.json", b"{}")
    for result in (blob, "runs/r/model.json"):
        key, made_from = cache.cache_key("train", "code", {}, {}, {"data": result}, "r")
        cache.save_outcome(store, key, StageOutcome(key=result), made_from)
        assert cache.find_outcome(store, key) == StageOutcome(key=result)
        store.fetch(result).unlink()
        assert cache.find_outcome(store, key) is None


@pytest.mark.parametrize("part", ["artifact", "record"])
def test_a_result_counts_only_with_its_artifact_and_the_records_of_its_run(tmp_path: Path, part: str) -> None:
    store = FolderStore(tmp_path)
    keys = {name: f"blobs/{put_blob(store, name.encode())}" for name in ("model", "artifact", "record")}
    outcome = StageOutcome(
        key=keys["model"], artifact=keys["artifact"], records={"curve.json": keys["record"]}
    )
    cache.save_outcome(store, "0" * 64, outcome, {})
    assert cache.find_outcome(store, "0" * 64) == outcome
    damage(store, keys[part])
    assert cache.find_outcome(store, "0" * 64) is None


def test_a_blob_matches_its_digest_or_raises(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    sha256 = put_blob(store, b"some bytes")
    (tmp_path / "source").write_bytes(b"some bytes")
    assert put_blob(store, tmp_path / "source") == sha256
    assert open_blob(store, sha256).read_bytes() == b"some bytes"
    damage(store, f"blobs/{sha256}")
    with pytest.raises(CorruptObject, match=sha256):
        open_blob(store, sha256)
    with pytest.raises(NotInStore):
        open_blob(store, "0" * 64)


def test_a_blob_is_read_through_once_a_volume_and_again_when_its_file_has_changed(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    sha256 = put_blob(store, b"some bytes")
    key, path = f"blobs/{sha256}", open_blob(store, sha256)
    assert store.verified_version(key) == file_version(path)
    assert list(store.list("")) == [key]
    damage(store, key)
    with pytest.raises(CorruptObject):
        open_blob(FolderStore(tmp_path), sha256)
    store.mark_verified(key, file_version(path))
    assert open_blob(FolderStore(tmp_path), sha256) == path
    os.utime(path, ns=(1, 1))
    with pytest.raises(CorruptObject):
        open_blob(store, sha256)


def test_a_mark_goes_with_its_object_and_a_store_that_is_only_read_gets_none(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    sha256 = put_blob(store, b"some bytes")
    key, reading = f"blobs/{sha256}", ReadingStore(store)
    open_blob(reading, sha256)
    assert store.verified_version(key) == ""
    store.mark_verified(key, "1 2 3")
    assert reading.verified_version(key) == "1 2 3"
    reading.forget_verified(key)
    assert store.verified_version(key) == reading.verified_version(key) == ""
    store.mark_verified(key, "1 2 3")
    store.delete(key)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_an_edited_manifest_is_detected(kept: tuple[Store, str, StageOutcome, Manifest]) -> None:
    store, _, outcome, manifest = kept
    assert load_manifest(store, outcome.key) == manifest
    path = store.fetch(outcome.key)
    path.write_text(path.read_text().replace('"rows": 50', '"rows": 51'))
    with pytest.raises(CorruptObject):
        load_manifest(store, outcome.key)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.dictionaries(st.text(), inner) | st.lists(inner),
    max_leaves=8,
)


@given(settings=st.dictionaries(st.text(), values), inputs=st.dictionaries(st.text(), st.text()))
def test_cache_keys_do_not_depend_on_the_order_of_fields(
    settings: dict[str, object], inputs: dict[str, str]
) -> None:
    turned = dict(reversed(settings.items()))
    assert cache.cache_key("s", "c", inputs, settings, inputs) == cache.cache_key(
        "s", "c", dict(reversed(inputs.items())), turned, dict(reversed(inputs.items()))
    )


def test_every_field_changes_the_cache_key() -> None:
    base = {"stage": "s", "code": "c", "libraries": {"l": "1"}, "settings": {"a": 1}, "inputs": {"d": "k"}}
    changes = {"stage": "t", "code": "d", "libraries": {"l": "2"}, "settings": {"a": 2}, "inputs": {"d": "l"}}
    changes |= {"run_id": "r"}
    keys = {
        cache.cache_key(**base)[0],
        *(cache.cache_key(**(base | {name: value}))[0] for name, value in changes.items()),
    }
    assert len(keys) == 7
