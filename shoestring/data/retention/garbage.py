"""Find the objects of a store that nothing kept refers to.

Kept are all records of runs, the ledger, and everything that was written lately. Of the rest,

    a data set or blob   goes unless a record of a run that keeps its data names it, directly or through what
                         that names, or an entry of the ledger does
    a cached result      goes unless all that it made is kept
    a cached baseline    goes unless something that it names is kept, such as its data set; else it keeps the
                         rest, its predictions; so does the record of a data set's version
    report, checkpoints  go with the data of their run
    a lease              goes: its run has ended, since a running run keeps what was written since it began
    an entry that was proposed for a number of a ledger's chain goes once that number is written
    a fingerprint of a file goes once the file has another one
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import PurePosixPath

from shoestring.config.retention import RetentionPolicy
from shoestring.core import store_layout
from shoestring.core.interfaces import ListedObject, Store, StoreInventory
from shoestring.data.retention.references import ReferencedObjects, read_all
from shoestring.data.retention.run_windows import RunWindows, apply_windows, run_of_key

WITHOUT_REFERENCES = ("learned/", "test-openings/", "jobs/", store_layout.COMMITMENTS, store_layout.PENDING)
"""Prefixes of records that name no object that is read: counts, samples, names of runs."""
LEASES = store_layout.leases()


@dataclass(frozen=True, slots=True)
class Garbage:
    """The objects that nothing kept refers to, as of one listing of the store.

    `first`: those that may refer to others. `manifests` come before the `blobs` that they list.
    """

    objects: Mapping[str, ListedObject]
    windows: RunWindows
    first: tuple[str, ...]
    manifests: tuple[str, ...]
    blobs: tuple[str, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        """All keys, in the order in which they may be deleted."""
        return (*self.first, *self.manifests, *self.blobs)


def find_garbage(
    store: Store, inventory: StoreInventory, retention: RetentionPolicy, now: datetime
) -> Garbage:
    """Return what may be deleted at `now`, by the store's clock."""
    objects = inventory.objects("")
    windows = apply_windows(store, objects, retention, now)
    old = {key: found for key, found in objects.items() if found.modified_at < windows.keep_since}
    references = ReferencedObjects(store, objects)
    references.keep(
        key
        for key in objects
        if key not in old and key.startswith((store_layout.BLOBS, store_layout.DATASETS))
    )
    references.keep_named_by(_root_records(objects, windows))
    entries = _unused_entries(store, references, objects, old, _days_before(retention, now))
    _keep_named_by_ledger(references, objects)
    unnamed = [key for key in old if key not in references.keys]
    expired = {run.run_id for run in windows.expired}
    return Garbage(
        objects,
        windows,
        first=(
            *_data_of_runs(old, expired),
            *entries,
            *(key for key in old if key.startswith(LEASES)),
            *_old_fingerprints(store, objects, old),
            *_old_proposals(old, objects),
        ),
        # A data set is written after those that it was made from.
        manifests=tuple(
            sorted(
                (key for key in unnamed if key.startswith(store_layout.DATASETS)),
                key=lambda key: objects[key].modified_at,
                reverse=True,
            )
        ),
        blobs=tuple(key for key in unnamed if key.startswith(store_layout.BLOBS)),
    )


def _days_before(retention: RetentionPolicy, now: datetime) -> datetime | None:
    return None if retention.keep_days is None else now - timedelta(days=retention.keep_days)


def _root_records(objects: Iterable[str], windows: RunWindows) -> list[str]:
    """Return the records that keep what they name: those of the runs that keep their data, and all under
    prefixes that clean-up does not know.
    """
    known = (store_layout.BLOBS, store_layout.DATASETS, store_layout.CACHE, store_layout.LEDGER)
    expired = {run.run_id for run in windows.expired}
    return [
        key
        for key in objects
        if key.endswith(".json")
        and not key.startswith((*known, *WITHOUT_REFERENCES))
        and not (key.startswith(store_layout.RUNS) and run_of_key(key) in expired)
    ]


def _unused_entries(
    store: Store,
    references: ReferencedObjects,
    objects: Iterable[str],
    old: Mapping[str, ListedObject],
    days_before: datetime | None,
) -> list[str]:
    """Return the entries of the cache that go, and keep what the others name."""
    keys = [key for key in objects if key.startswith(store_layout.CACHE) and not key.startswith(LEASES)]
    references.keep_named_by(key for key in keys if key not in old)

    def parse(key: str, data: bytes) -> tuple[str, tuple[set[str] | None, set[str]]]:
        return key, (_made(references, data), references.named_by(data))

    left = dict(read_all(store, (key for key in keys if key in old), parse))
    for key in [key for key, (made, _) in left.items() if made and made <= references.keys]:
        del left[key]
    while used := [key for key, (made, named) in left.items() if made is None and named & references.keys]:
        for key in used:
            references.keep(left.pop(key)[1])
    return [
        key
        for key, (made, named) in left.items()
        # An entry that names no object is a result by itself, so only its age tells that nobody needs it.
        if made is not None or named or (days_before is not None and old[key].modified_at < days_before)
    ]


def _made(references: ReferencedObjects, data: bytes) -> set[str] | None:
    """Return what the stage of a cached result made; None: the entry is of another kind."""
    try:
        outcome = json.loads(data)["outcome"]
    except (ValueError, TypeError, KeyError):
        return None
    return references.named_by(json.dumps(outcome).encode())


def _keep_named_by_ledger(references: ReferencedObjects, objects: Iterable[str]) -> None:
    """Keep what entries name, such as decisions; not the data sets of these decisions."""
    entries = (key for key in objects if key.startswith(store_layout.LEDGER))
    for named in references.read(entries).values():
        references.keep_only(named)


def _data_of_runs(old: Iterable[str], expired: set[str]) -> list[str]:
    """Return reports and checkpoints, pointers before what they point to."""
    found = [
        key
        for key in old
        if key.startswith(store_layout.RUNS)
        and run_of_key(key) in expired
        and (key == store_layout.report(run_of_key(key)) or "/checkpoints/" in key)
    ]
    return sorted(found, key=lambda key: (not key.endswith(".json"), key))


def _old_fingerprints(store: Store, objects: Mapping[str, ListedObject], old: Iterable[str]) -> list[str]:
    """Return the fingerprints of files that have another one since."""
    keys = [key for key in objects if key.startswith(store_layout.FINGERPRINTS)]
    files = dict(read_all(store, keys, lambda key, data: (key, _file_of_fingerprint(key, data))))
    newest = {files[key]: key for key in sorted(files, key=lambda key: (objects[key].modified_at, key))}
    replaced = files.keys() - newest.values()
    return [key for key in old if key in replaced]


def _file_of_fingerprint(key: str, data: bytes) -> str:
    """Return the path or URL of a file; the record's own key if it names none."""
    try:
        record = json.loads(data)
        return str(record.get("path") or record["url"])
    except (ValueError, AttributeError, KeyError):
        return key


def _old_proposals(old: Iterable[str], objects: Iterable[str]) -> list[str]:
    """Return the entries that were proposed for a number of a ledger's chain that has long been written."""
    last: dict[str, int] = {}
    for key in objects:
        parts = key.split("/")
        if key.startswith(store_layout.LEDGER) and len(parts) == 3 and PurePosixPath(key).stem.isdecimal():
            last[parts[1]] = max(last.get(parts[1], 0), int(PurePosixPath(key).stem))
    proposals = [key for key in old if key.startswith(store_layout.PENDING)]
    return [key for key in proposals if int(key.split("/")[2]) <= last.get(key.split("/")[1], 0)]
