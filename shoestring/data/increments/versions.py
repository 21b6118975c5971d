"""The versions of a data set whose settings, code and format are the same, so that a new one can build on the
last: a record each, under numbers that only grow."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import PurePosixPath
from typing import TypeVar

from pydantic import JsonValue

from shoestring.core import store_layout
from shoestring.core.canonical_json import canonical_bytes
from shoestring.core.errors import NotInStore
from shoestring.core.interfaces import Store
from shoestring.core.record import StoredRecord, digest, record_bytes
from shoestring.data.storage.cache import renew
from shoestring.data.storage.import_closure import import_closure, library_versions

Version = TypeVar("Version", bound=StoredRecord)


@cache
def _code(module: str) -> JsonValue:
    closure = import_closure(module)
    return [closure.digest, dict(library_versions(closure.libraries))]


def versions_key(module: str, made_from: Mapping[str, JsonValue]) -> str:
    """Return the digest that all versions share: of the code and libraries of a module, and of what every
    part of the data set depends on."""
    return digest(canonical_bytes({"code": _code(module), "module": module, **made_from}))


def last_version(store: Store, key: str, kind: type[Version]) -> Version | None:
    """Return the record of the newest version; None without one, or if it is damaged.

    It is written again, so that `gc` leaves what it names alone until a data set names it, too.
    """
    if (name := max(store.list(store_layout.increments(key)), default=None)) is None:
        return None
    try:
        data = store.fetch(name).read_bytes()
        found = kind.model_validate_json(data)
    except (NotInStore, ValueError):
        return None
    is_whole = name == _name(key, _number(name), data)
    return found if is_whole and renew(store, name, data) else None


def save_version(store: Store, key: str, version: StoredRecord) -> None:
    """Store the record of a version as the newest one. Raises StoreFull.

    Two runs at the same moment may store records of one number. Later versions then build on one of them, and
    work again on what the other one added.
    """
    last = max(store.list(store_layout.increments(key)), default=None)
    data = record_bytes(version)
    store.put(_name(key, _number(last) + 1 if last else 1, data), data, if_absent=True)


def _name(key: str, number: int, data: bytes) -> str:
    """Return the key of a record: with its digest, so that damage to it is found."""
    return store_layout.increments(key, f"{number:06d}-{digest(data)}")


def _number(name: str) -> int:
    return int(PurePosixPath(name).stem.partition("-")[0])
