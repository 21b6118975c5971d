"""The cache of stage results, by the digest of everything that determines a result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import JsonValue

from shoestring.core import store_layout
from shoestring.core.canonical_json import canonical_bytes
from shoestring.core.errors import CorruptObject, NotInStore
from shoestring.core.interfaces import Store
from shoestring.core.record import StoredRecord, digest, record_bytes
from shoestring.core.types import StageOutcome
from shoestring.data.storage.blobs import load_manifest, open_blob


class CacheEntry(StoredRecord):
    """A stage's outcome, and the fields that its key is the digest of: stage, code, libraries, settings,
    inputs, run.
    """

    outcome: StageOutcome
    key_fields: dict[str, JsonValue]


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
    """Return the outcome under a key if every object that it names is intact; otherwise None."""
    try:
        data = store.fetch(store_layout.cache_entry(key)).read_bytes()
        outcome = CacheEntry.model_validate_json(data).outcome
        for each in dict.fromkeys(filter(None, (outcome.key, outcome.artifact, *outcome.records.values()))):
            _verify(store, each)
    except (NotInStore, CorruptObject, ValueError):
        return None
    return outcome


def find_first_outcome(store: Store, keys: Iterable[str]) -> tuple[str, StageOutcome] | None:
    """Return the first of the keys that has an outcome, and the outcome; None if none has."""
    return next(((key, outcome) for key in keys if (outcome := find_outcome(store, key)) is not None), None)


def save_outcome(store: Store, key: str, outcome: StageOutcome, key_fields: Mapping[str, JsonValue]) -> None:
    """Store an outcome under its key. Raises StoreFull."""
    entry = CacheEntry(outcome=outcome, key_fields=dict(key_fields))
    store.put(store_layout.cache_entry(key), record_bytes(entry))


def _verify(store: Store, key: str) -> None:
    """Raise NotInStore or CorruptObject unless an object and all that it lists are intact."""
    if key.startswith(store_layout.DATASETS):
        manifest = load_manifest(store, key)
        for part in (part for parts in manifest.splits.values() for part in parts):
            open_blob(store, part.sha256)
        if manifest.quarantine:
            open_blob(store, Path(manifest.quarantine).name)
    elif key.startswith(store_layout.BLOBS):
        open_blob(store, Path(key).name)
    else:
        store.fetch(key)
