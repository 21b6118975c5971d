"""The cache of stage results, by the digest of everything that determines a result."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import Field, JsonValue

from shoestring.core import store_layout
from shoestring.core.canonical_json import canonical_bytes, json_text
from shoestring.core.datasets import Manifest
from shoestring.core.errors import CorruptObject, DataError, NotInStore
from shoestring.core.interfaces import FetchedCopies, Store
from shoestring.core.record import StoredRecord, digest, record_bytes
from shoestring.core.types import Format, StageOutcome
from shoestring.data.storage.blobs import load_manifest, open_blob

MODULE_DIGITS = 16
"""Digits of a module's digest that an entry keeps: enough to tell that a module has changed."""
NO_SOURCES: Mapping[str, str] = {}


class CacheEntry(StoredRecord):
    """A stage's outcome, and the fields that its key is the digest of: stage, code, libraries, settings,
    inputs, run.
    """

    outcome: StageOutcome
    key_fields: dict[str, JsonValue]
    modules: dict[str, str] = Field(
        {},
        exclude_if=lambda modules: not modules,
        description="module of the code -> first digits of the SHA-256 of its source; empty: an earlier "
        "version wrote it",
    )
    content_sha256: str = Field(
        "",
        exclude_if=lambda sha256: not sha256,
        description="digest of the other fields; empty: an earlier version wrote it",
    )


def cache_key(
    stage: str,
    code: str,
    libraries: Mapping[str, str],
    settings: Mapping[str, JsonValue],
    inputs: Mapping[str, str],
    run_id: str | None = None,
) -> tuple[str, dict[str, JsonValue]]:
    """Return the key of a computation, and the fields that it is the digest of.

    `code` is the digest of its sources, `libraries` the versions of the libraries that these import. `run_id`
    is given for a result that belongs to one run only.
    """
    key_fields: dict[str, JsonValue] = {
        "stage": stage,
        "code": code,
        "libraries": dict(libraries),
        "settings": dict(settings),
        "inputs": dict(inputs),
        "run_id": run_id,
    }
    return digest(canonical_bytes(key_fields)), key_fields


def find_outcome(store: Store, key: str) -> StageOutcome | None:
    """Return the outcome under a key if every object that it names is intact; otherwise None.

    The entry is written again, so that `gc` leaves what it names alone until a record of the run names it,
    too.
    """
    try:
        data = store.fetch(store_layout.cache_entry(key)).read_bytes()
        outcome = read_entry(store_layout.cache_entry(key), data).outcome
        verify_outcome(store, outcome)
    except (NotInStore, CorruptObject, ValueError):
        return None
    return outcome if renew(store, store_layout.cache_entry(key), data) else None


def verify_outcome(store: Store, outcome: StageOutcome) -> None:
    """Raise NotInStore or CorruptObject unless every object that an outcome names is intact."""
    for each in dict.fromkeys(filter(None, (outcome.key, outcome.artifact, *outcome.records.values()))):
        _verify(store, each)


def renew(store: Store, key: str, data: bytes) -> bool:
    """Write an entry of the cache again. Returns False if it was deleted since it was read: what it names may
    be deleted, too.
    """
    return not store.put(key, data, if_absent=True) and store.put(key, data)


def find_first_outcome(store: Store, keys: Iterable[str]) -> tuple[str, StageOutcome] | None:
    """Return the first of the keys that has an outcome, and the outcome; None if none has."""
    return next(((key, outcome) for key in keys if (outcome := find_outcome(store, key)) is not None), None)


def save_outcome(
    store: Store,
    key: str,
    outcome: StageOutcome,
    key_fields: Mapping[str, JsonValue],
    sources: Mapping[str, str] = NO_SOURCES,
) -> None:
    """Store an outcome under its key, whatever is there. `sources`: modules of the code, and the SHA-256 of
    their sources. Raises StoreFull.
    """
    store.put(store_layout.cache_entry(key), _entry_bytes(outcome, key_fields, sources))


def _entry_bytes(
    outcome: StageOutcome, key_fields: Mapping[str, JsonValue], sources: Mapping[str, str]
) -> bytes:
    modules = {name: sha256[:MODULE_DIGITS] for name, sha256 in sources.items()}
    entry = CacheEntry(outcome=outcome, key_fields=dict(key_fields), modules=modules)
    sha256 = digest(canonical_bytes(entry.model_dump(mode="json")))
    return record_bytes(entry.model_copy(update={"content_sha256": sha256}))


def read_entry(key: str, data: bytes) -> CacheEntry:
    """Return the entry that these bytes hold. Raises CorruptObject, or ValueError, when one was changed."""
    entry = CacheEntry.model_validate_json(data)
    if entry.content_sha256:
        # Of what is stored, not of the record: a later version may give the record further fields.
        stored = json.loads(data)
        is_whole = data == (json_text(stored) + "\n").encode()
        del stored["content_sha256"]
        if not is_whole or digest(canonical_bytes(stored)) != entry.content_sha256:
            raise CorruptObject(key, digest(data))
    return entry


def publish_outcome(
    store: Store,
    key: str,
    outcome: StageOutcome,
    key_fields: Mapping[str, JsonValue],
    sources: Mapping[str, str] = NO_SOURCES,
) -> StageOutcome:
    """Store an outcome that other runs can use, once; return the one that is stored under the key.

    That is the given one, unless another attempt was first and its outcome is intact. Raises StoreFull.
    """
    entry = _entry_bytes(outcome, key_fields, sources)
    if store.put(store_layout.cache_entry(key), entry, if_absent=True):
        return outcome
    if (first := find_outcome(store, key)) is not None:
        return first
    store.put(store_layout.cache_entry(key), entry)
    return outcome


def copy_records(store: Store, run_id: str, outcome: StageOutcome) -> None:
    """Copy what a run's report needs of a result that another run made."""
    for name, key in outcome.records.items():
        store.put(store_layout.result_record(run_id, name), store.fetch(key).read_bytes())


def _verify(store: Store, key: str) -> None:
    """Raise NotInStore or CorruptObject unless an object and all that it lists are intact."""
    if key.startswith(store_layout.DATASETS):
        manifest = load_manifest(store, key)
        streamed = _verify_shards(store, manifest)
        for sha256 in manifest.blobs:
            if sha256 not in streamed:
                open_blob(store, sha256)
    elif key.startswith(store_layout.BLOBS):
        open_blob(store, Path(key).name)
    else:
        store.fetch(key)


def _verify_shards(store: Store, manifest: Manifest) -> set[str]:
    """Check the indexes of shards that would have to be copied to be read as a whole; return their digests.

    Stages check each block when they read it. Raises NotInStore, CorruptObject.
    """
    if manifest.format is not Format.SHARDS or not isinstance(store, FetchedCopies):
        return set()
    # Imported late: other formats do not need the libraries that read shards.
    from shoestring.data.storage.shard_reads import open_shard

    parts = [part for of_split in manifest.splits.values() for part in of_split]
    for part in parts:
        try:
            open_shard(store, part)
        except DataError:
            raise CorruptObject(part.key, "of its index") from None
    return {part.sha256 for part in parts}
