"""References are found in records of any kind."""

from __future__ import annotations

import json
from typing import Any

from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from shoestring.backends.memory import MemoryStore
from shoestring.core.record import digest
from shoestring.data.retention.references import MAX_RECORD_BYTES, ReferencedObjects, named_digests


# Each object names some with a smaller number: a digest needs the content before it.
def earlier(number: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, number - 1), max_size=3) if number else st.just([])


LINKS = st.integers(1, 12).flatmap(lambda count: st.tuples(*map(earlier, range(count))))


def stored(links: tuple[list[int], ...], kinds: list[bool]) -> tuple[MemoryStore, list[str]]:
    """Store one object a number: a manifest or a blob, which names others anywhere in its JSON."""
    store, keys = MemoryStore(), list[str]()
    for number, named in enumerate(links):
        content: Any = {"number": number, "at": [{"deep": keys[each]} for each in named]}
        data = json.dumps(content).encode()
        is_manifest = kinds[number % len(kinds)]
        keys.append(f"datasets/name/{digest(data)}.json" if is_manifest else f"blobs/{digest(data)}")
        store.put(keys[-1], data)
    return store, keys


@examples(100)
@given(links=LINKS, kinds=st.lists(st.booleans(), min_size=1, max_size=4), data=st.data())
def test_everything_that_can_be_reached_is_kept_and_nothing_else(
    links: tuple[list[int], ...], kinds: list[bool], data: st.DataObject
) -> None:
    store, keys = stored(links, kinds)
    roots = data.draw(st.sets(st.integers(0, len(keys) - 1), max_size=3), "roots")
    store.put("runs/r/receipts/it.json", json.dumps([keys[each] for each in roots]).encode())
    reached, left = set[int](), list(roots)
    while left:
        number = left.pop()
        if number not in reached:
            reached.add(number)
            left += links[number]
    found = ReferencedObjects(store, store.objects(""))
    found.keep_named_by(["runs/r/receipts/it.json"])
    assert found.keys == {keys[number] for number in reached}


def test_only_whole_digests_in_json_are_names() -> None:
    sha256 = digest(b"it")
    for text in (f'{{"key": "blobs/{sha256}"}}', f'["{sha256}"]', f'{{"key": "datasets/a/{sha256}.json"}}'):
        assert named_digests(text.encode()) == {sha256}
    for text in (f"PK {sha256}", f'{{"key": "a{sha256}"}}', f'{{"key": "{sha256[:-1]}"}}', ""):
        assert named_digests(text.encode()) == frozenset()


def test_a_large_blob_is_data_and_is_not_read() -> None:
    store = MemoryStore()
    store.put("blobs/" + digest(b"it"), b"it")
    for size_bytes, is_followed in ((MAX_RECORD_BYTES, True), (MAX_RECORD_BYTES + 1, False)):
        record = json.dumps({"key": digest(b"it")}).encode().ljust(size_bytes)
        store.put(f"blobs/{digest(record)}", record)
        found = ReferencedObjects(store, store.objects(""))
        found.keep([f"blobs/{digest(record)}"])
        assert (f"blobs/{digest(b'it')}" in found.keys) == is_followed
