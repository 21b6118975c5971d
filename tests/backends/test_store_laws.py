"""The guarantees of every store: the folder, a real S3 server and memory."""

from __future__ import annotations

import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from examples import examples
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from store_locations import StoreLocation, at_once

from shoestring.core.errors import NotInStore, StoreError
from shoestring.core.interfaces import ObjectDeletion, StoreInventory, StoreTimes
from shoestring.core.store_layout import is_key

LAWS = examples(20, suppress_health_check=[HealthCheck.function_scoped_fixture])
# No control characters, no backslash (some servers treat it as a slash), and no part that is a single dot.
PARTS = st.text(
    st.characters(exclude_categories=["C", "Z"], exclude_characters="/\\") | st.just(" "),
    min_size=1,
    max_size=12,
).filter(lambda part: part not in (".", ".."))
KEYS = st.lists(PARTS, min_size=1, max_size=3).map("/".join)
OBJECTS = st.dictionaries(KEYS, st.binary(max_size=300), min_size=1, max_size=6).filter(
    lambda objects: not any(one.startswith(f"{other}/") for one in objects for other in objects)
)


@LAWS
@given(objects=OBJECTS, data=st.data())
def test_objects_are_fetched_as_put_and_listed_in_order(
    location: StoreLocation, tmp_path: Path, objects: dict[str, bytes], data: st.DataObject
) -> None:
    store, top = location.open(), uuid.uuid4().hex
    for number, (key, content) in enumerate(objects.items()):
        if number % 2:
            assert store.put(f"{top}/{key}", content)
        else:
            (tmp_path / "a-file").write_bytes(content)
            assert store.put(f"{top}/{key}", tmp_path / "a-file")
    reader = location.open()
    assert {key: reader.fetch(f"{top}/{key}").read_bytes() for key in objects} == objects
    one = data.draw(st.sampled_from(sorted(objects)), "key")
    prefix = f"{top}/{one[: data.draw(st.integers(0, len(one)), 'cut')]}"
    seen = sorted(
        f"{top}/{key}" for key in objects if not any(part.startswith(".") for part in key.split("/"))
    )
    assert list(reader.list(prefix)) == [key for key in seen if key.startswith(prefix)]


def test_keys_are_listed_in_the_order_of_their_text(location: StoreLocation) -> None:
    store, keys = location.open(), ["a/A/x", "a/a-b/x", "a/a.b", "a/a/x", "a/a/y/z", "a/a0", "a/é/x"]
    for key in reversed(keys):
        store.put(key, b"")
    assert list(store.list("a/")) == keys
    assert list(store.list("a/a")) == [key for key in keys if key.startswith("a/a")]


def test_the_store_tells_when_objects_were_written(location: StoreLocation) -> None:
    store = location.open()
    assert isinstance(store, StoreInventory) and isinstance(store, StoreTimes)
    store.put("runs/r/one", b"1")
    # S3 tells whole seconds.
    time.sleep(1.1)
    store.put("runs/r/two", b"2")
    store.put("runs/other", b"3")
    first = store.objects("runs/r/")
    one, two = first["runs/r/one"], first["runs/r/two"]
    assert list(first) == ["runs/r/one", "runs/r/two"] and one.modified_at < two.modified_at
    assert two.modified_at - one.modified_at < timedelta(minutes=1)
    store.put("runs/r/one", b"again")
    again = store.objects("runs/r/one")["runs/r/one"]
    assert again.modified_at >= two.modified_at
    assert [each.size_bytes for each in (one, two, again)] == [1, 1, 5]
    assert {each.storage_class for each in first.values()} == {"standard"}
    assert store.objects("none/") == {} and store.place
    written = {key: each.modified_at for key, each in store.objects("runs/").items()}
    assert store.modified("runs/") == written


def test_a_deleted_object_is_gone_and_deleting_it_again_does_no_harm(location: StoreLocation) -> None:
    store, other = location.open(), location.open()
    assert isinstance(store, ObjectDeletion)
    for key in ("blobs/one", "blobs/one-more", "runs/r/two"):
        store.put(key, b"it")
    assert other.fetch("blobs/one").read_bytes() == b"it"
    for _ in range(2):
        assert store.delete("blobs/one")
    with pytest.raises(NotInStore):
        store.fetch("blobs/one")
    assert list(other.list("blobs/")) == ["blobs/one-more"]
    assert store.put("blobs/one", b"again", if_absent=True)
    assert list(store.list("")) == sorted(
        {*store.list("learned/"), "blobs/one", "blobs/one-more", "runs/r/two"}
    )
    assert store.fetch("blobs/one").read_bytes() == b"again"
    with pytest.raises(StoreError, match="cannot name an object"):
        store.delete("../a")


def test_an_object_that_was_written_since_is_not_deleted(location: StoreLocation) -> None:
    store = location.open()
    assert isinstance(store, StoreInventory) and isinstance(store, ObjectDeletion)
    store.put("blobs/it", b"it")
    at = store.objects("blobs/it")["blobs/it"].modified_at
    assert not store.delete("blobs/it", written_before=at)
    assert store.fetch("blobs/it").read_bytes() == b"it"
    assert store.delete("blobs/it", written_before=at + timedelta(seconds=1))
    assert store.delete("blobs/it", written_before=at)
    assert store.objects("blobs/") == {}


def test_a_missing_object_is_named(location: StoreLocation) -> None:
    store = location.open()
    with pytest.raises(NotInStore, match="the store has no runs/one"):
        store.fetch("runs/one")
    assert list(store.list("runs/")) == []


@pytest.mark.parametrize("key", ["", "/a", "a//b", "a/", "../a", "a/./b", "a\\b", "a\nb"])
def test_all_stores_refuse_the_same_malformed_keys(location: StoreLocation, key: str) -> None:
    store = location.open()
    with pytest.raises(StoreError, match="cannot name an object"):
        store.put(key, b"")
    with pytest.raises(StoreError, match="cannot name an object"):
        store.fetch(key)


ODD_PARTS = [
    "",
    ".",
    "..",
    "...",
    " ",
    "a",
    ".a",
    "a.",
    "\\",
    "a\\..\\b",
    "\x00",
    "\x7f",
    "\n",
    "\ud800",
    "é",
]
ODD_PARTS += [
    "é",
    "e\u0301",
    "\u202e",
    "\xa0",
    "%2e%2e",
    "a" * 200,
    "a" * 201,
    "b" * 230,
    "é" * 101,
    "C:",
    "~",
    "-",
]
NASTY = st.lists(st.sampled_from(ODD_PARTS) | st.text(max_size=5), min_size=1, max_size=6).map("/".join)


@examples(100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(key=NASTY)
def test_all_stores_accept_and_refuse_the_same_keys(
    location: StoreLocation, tmp_path: Path, key: str
) -> None:
    store, top = location.open(), uuid.uuid4().hex
    before = set(tmp_path.parent.iterdir())
    for act in (
        lambda: store.put(f"{top}/{key}", b"it"),
        lambda: store.fetch(f"{top}/{key}"),
        lambda: list(store.list(f"{top}/{key}/")),
    ):
        try:
            act()
            accepted = True
        except StoreError as error:
            assert "cannot name an object" in str(error)
            accepted = False
        assert accepted == is_key(f"{top}/{key}")
    assert set(tmp_path.parent.iterdir()) == before
    if accepted:
        assert location.open().fetch(f"{top}/{key}").read_bytes() == b"it"


@pytest.mark.parametrize("prefix", ["../", "/", "a//", "a/../", "..//x", "a\\b"])
def test_all_stores_refuse_to_list_the_same_prefixes(location: StoreLocation, prefix: str) -> None:
    with pytest.raises(StoreError, match="cannot name an object"):
        list(location.open().list(prefix))


def test_every_reader_sees_a_replaced_object(location: StoreLocation) -> None:
    one, other = location.open(), location.open()
    for content in (b"first", b"second", b""):
        one.put("runs/r/heartbeats/train-1.json", content)
        assert one.fetch("runs/r/heartbeats/train-1.json").read_bytes() == content
        assert other.fetch("runs/r/heartbeats/train-1.json").read_bytes() == content


@pytest.mark.parametrize("size_bytes", [0, 5_000_000])
@pytest.mark.parametrize("as_file", [False, True])
def test_put_if_absent_does_not_replace_an_object(
    location: StoreLocation, tmp_path: Path, size_bytes: int, as_file: bool
) -> None:
    store = location.open()
    for content, wins in ((b"a" * size_bytes, True), (b"b" * size_bytes, False)):
        (tmp_path / "a-file").write_bytes(content)
        assert store.put("blobs/it", tmp_path / "a-file" if as_file else content, if_absent=True) == wins
    assert store.fetch("blobs/it").read_bytes() == b"a" * size_bytes


def test_a_damaged_object_that_is_put_again_is_fetched_complete(location: StoreLocation) -> None:
    store = location.open()
    store.put("blobs/it", b"damaged")
    assert store.fetch("blobs/it").read_bytes() == b"damaged"
    store.put("blobs/it", b"whole")
    assert store.fetch("blobs/it").read_bytes() == b"whole"


def test_exactly_one_of_many_threads_succeeds_with_put_if_absent(location: StoreLocation) -> None:
    store = location.open()
    with ThreadPoolExecutor(8) as threads:
        for number in range(4):
            key = f"race/{number}"
            wins = list(
                threads.map(
                    lambda me, key=key: store.put(key, f"{me}".encode() * 1000, if_absent=True), range(8)
                )
            )
            assert wins.count(True) == 1
            assert store.fetch(key).read_bytes() == f"{wins.index(True)}".encode() * 1000


def put_if_absent(me: int, gate: Any, location: StoreLocation) -> list[int]:
    store = location.open()
    gate.wait()
    return [
        number for number in range(15) if store.put(f"race/{number}", f"{me}".encode() * 1000, if_absent=True)
    ]


def test_exactly_one_of_many_processes_succeeds_with_put_if_absent(shared_location: StoreLocation) -> None:
    won = at_once(4, put_if_absent, shared_location)
    assert sorted(number for numbers in won for number in numbers) == list(range(15))
    store = shared_location.open()
    for me, numbers in enumerate(won):
        for number in numbers:
            assert store.fetch(f"race/{number}").read_bytes() == f"{me}".encode() * 1000


def test_a_reader_sees_a_complete_object_while_it_is_replaced(location: StoreLocation) -> None:
    def replace() -> None:
        store = location.open()
        for number in range(30):
            store.put("a/b", bytes([97 + number % 2]) * 200_000)

    location.open().put("a/b", b"a" * 200_000)
    with ThreadPoolExecutor(1) as thread:
        writing, reader = thread.submit(replace), location.open()
        while not writing.done():
            assert reader.fetch("a/b").read_bytes() in (b"a" * 200_000, b"b" * 200_000)
        writing.result()


def test_a_fetched_object_does_not_change_and_can_be_read_as_a_file(location: StoreLocation) -> None:
    store = location.open()
    store.put("blobs/it", b"first")
    one, other = store.fetch("blobs/it"), store.fetch("blobs/it")
    assert one.stat().st_size == 5
    with one.open("rb") as file, Path(str(other)).open("rb") as same:
        store.put("blobs/it", b"second")
        assert file.read() == same.read() == b"first"
    assert store.fetch("blobs/it").read_bytes() == b"second"
