"""The cache of stage results, by the digest of everything that determines a result."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from pydantic import JsonValue

from shoestring.core import store_layout
from shoestring.core.errors import CorruptObject, NotInStore, UsageError
from shoestring.core.interfaces import Store
from shoestring.core.record import StoredRecord, digest, record_bytes
from shoestring.core.types import StageOutcome
from shoestring.data.storage.blobs import load_manifest, open_blob

# The libraries that the stages compute with. Another version may compute another result.
LIBRARIES = ("numpy", "pyarrow")


class CacheEntry(StoredRecord):
    """A stage's outcome, and the fields that its key is the digest of: stage, code, settings, inputs, run."""

    outcome: StageOutcome
    key_fields: dict[str, JsonValue]


def canonical_bytes(value: Mapping[str, JsonValue]) -> bytes:
    """Return JSON in which equal values have equal bytes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def code_digest(*modules: str) -> str:
    """Return the SHA-256 of the source of the modules that compute a stage. Changed code has another digest.

    The modules are named ("data.formats.readers") and not imported: a router needs the digest, but not a
    stage's libraries.
    """
    found = hashlib.sha256(" ".join(f"{library}={version(library)}" for library in LIBRARIES).encode())
    for name in sorted(modules):
        spec = find_spec(f"shoestring.{name}")
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(
                f"a stage lists shoestring.{name} as its code, but there is no such module"
            )
        found.update(name.encode() + b"\0" + Path(spec.origin).read_bytes() + b"\0")
    return found.hexdigest()


def package_digest(module: str) -> str:
    """Return the SHA-256 of the sources of an author's package, and of the installed version of Shoestring.

    Nothing is imported.

    Raises:
        UsageError: the package of the module is not installed.
    """
    root = module.partition(".")[0]
    spec = find_spec(root)
    if spec is None or (spec.origin is None and not spec.submodule_search_locations):
        raise UsageError(
            f"the package {root} of {module} is not installed: install it where the pipeline is compiled, "
            "and in the image of its stages"
        )
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    files = [
        (path.relative_to(folder).as_posix(), path) for folder in folders for path in folder.rglob("*.py")
    ]
    found = hashlib.sha256(f"shoestring={version('shoestring')}".encode())
    for name, path in sorted(files) or [(root, Path(str(spec.origin)))]:
        found.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()


def cache_key(
    stage: str,
    code: str,
    settings: Mapping[str, JsonValue],
    inputs: Mapping[str, str],
    run_id: str | None = None,
) -> tuple[str, dict[str, JsonValue]]:
    """Return the key of a computation, and the fields that it is the digest of.

    `run_id` is given for a stage whose result belongs to one run only.
    """
    key_fields: dict[str, JsonValue] = {
        "stage": stage,
        "code": code,
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
        _verify(store, outcome.key)
    except (NotInStore, CorruptObject, ValueError):
        return None
    return outcome


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
