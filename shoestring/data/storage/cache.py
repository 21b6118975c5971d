"""What was computed once, from what, and whether it is still whole."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from pydantic import JsonValue

from shoestring.core.errors import CorruptObject, NotInStore, UsageError
from shoestring.core.interfaces import Store
from shoestring.core.record import StoredRecord, digest, record_bytes
from shoestring.core.types import StageOutcome
from shoestring.data.storage.blobs import load_manifest, open_blob

# What the stages compute with: another version of it may compute something else.
LIBRARIES = ("numpy", "pyarrow")


class CacheEntry(StoredRecord):
    """An outcome, and what it was computed from: stage, code, settings, inputs."""

    outcome: StageOutcome
    key_fields: dict[str, JsonValue]


def canonical_bytes(value: Mapping[str, JsonValue]) -> bytes:
    """JSON in which equal values are equal bytes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def code_digest(*modules: str) -> str:
    """SHA-256 over the source text of the modules that compute a stage: changed code finds nothing that the old code made.

    Modules are named ("data.formats") and not imported: a router asks for the digest, and has no use for a stage's libraries.
    """
    found = hashlib.sha256(" ".join(f"{library}={version(library)}" for library in LIBRARIES).encode())
    for name in sorted(modules):
        spec = find_spec(f"shoestring.{name}")
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(
                f"a stage names shoestring.{name} as its code, and there is no such module"
            )
        found.update(name.encode() + b"\0" + Path(spec.origin).read_bytes() + b"\0")
    return found.hexdigest()


def package_digest(module: str) -> str:
    """SHA-256 over the sources of the package that an author's module is in, and the version of what it builds on. Imports none of them.

    Raises:
        UsageError: there is no such module here.
    """
    root = module.partition(".")[0]
    spec = find_spec(root)
    if spec is None or (spec.origin is None and not spec.submodule_search_locations):
        raise UsageError(
            f"there is no package {root} here, in which {module} would be: install it where it is compiled, and in its image"
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
    """The key of a computation and what it is the digest of. `run_id` for a stage whose result belongs to one run only."""
    made_from: dict[str, JsonValue] = {
        "stage": stage,
        "code": code,
        "settings": dict(settings),
        "inputs": dict(inputs),
        "run_id": run_id,
    }
    return digest(canonical_bytes(made_from)), made_from


def find_outcome(store: Store, key: str) -> StageOutcome | None:
    """The outcome under a key, when it is there and every object it names is whole; None: compute it again."""
    try:
        outcome = CacheEntry.model_validate_json(store.fetch(f"cache/{key}.json").read_bytes()).outcome
        _verify(store, outcome.key)
    except (NotInStore, CorruptObject, ValueError):
        return None
    return outcome


def save_outcome(store: Store, key: str, outcome: StageOutcome, made_from: Mapping[str, JsonValue]) -> None:
    """Remember an outcome. Raises StoreFull."""
    store.put(f"cache/{key}.json", record_bytes(CacheEntry(outcome=outcome, key_fields=dict(made_from))))


def _verify(store: Store, key: str) -> None:
    if key.startswith("datasets/"):
        manifest = load_manifest(store, key)
        for part in (part for parts in manifest.splits.values() for part in parts):
            open_blob(store, part.sha256)
        if manifest.quarantine:
            open_blob(store, Path(manifest.quarantine).name)
    elif key.startswith("blobs/"):
        open_blob(store, Path(key).name)
    else:
        store.fetch(key)
