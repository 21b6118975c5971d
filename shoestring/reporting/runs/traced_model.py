"""The lineage of a model, with what trained it, and whether what is stored of it matches its digests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pydantic import Field

from shoestring.core import store_layout
from shoestring.core.errors import CorruptObject, NotInStore, UnknownName
from shoestring.core.interfaces import Store, StoreInventory
from shoestring.data.retention.verification import DamagedObject, ReadBytes, StoredDigests
from shoestring.data.run_records import read_run_record
from shoestring.data.storage.cache import CacheEntry, read_entry
from shoestring.data.storage.origins import dataset_chain
from shoestring.reporting.runs.model_lineage import ModelLineage, find_model, trace_model


class TracedModel(ModelLineage):
    """The lineage of a model, as one store has it. `folder`: of the model, whose files are all intact; empty:
    it was named by a run or a digest.
    """

    folder: str = ""
    receipt_key: str = Field("", description="of the attempt that completed the training; empty: not stored")
    code_sha256: str = Field("", description="of the sources that trained it; empty: not stored")
    libraries: dict[str, str] = Field({}, description="that the training imports; empty: not stored")
    image: str = Field("", description="of the pod that trained it; empty: it was no pod")
    environment: dict[str, str] = Field({}, description="versions on the machine that started the run")
    checked_objects: int = Field(0, description="stored objects that were read")
    damaged: tuple[DamagedObject, ...] = Field((), description="objects that do not match their digest")
    deleted: tuple[str, ...] = Field((), description="keys of what is stored no longer: `gc` deleted it")


def trace_in_store(store: Store, inventory: StoreInventory, model: str, progress: ReadBytes) -> TracedModel:
    """Return the lineage of the model of a run, or of that with these weights, and read each stored object on
    the way: models, manifests, lists of files, and where the store is a folder all parts of the data sets.

    Raises UnknownName, DataError as `find_model` does.
    """
    # Of a store on a server each part would be fetched: `data verify` does that.
    with_parts = "://" not in inventory.place
    record, found = find_model(store, model), trace_model(store, model)
    keys = dict.fromkeys(
        [store_layout.blob(record.weights_sha256), *_data_keys(store, record.dataset_key, with_parts)]
    )
    problems = StoredDigests(store, inventory).verify(keys, progress)
    return TracedModel(
        **dict(found),
        **_training(store, found),
        checked_objects=len(keys),
        damaged=tuple(each for each in problems if each.problem == "differs"),
        deleted=tuple(each.key for each in problems if each.problem == "is missing"),
    )


def _data_keys(store: Store, dataset: str, with_parts: bool) -> Iterator[str]:
    """Yield the keys of a data set, of those that it was made from, of their parts, and of the list of the
    source files; up to the first that cannot be read.
    """
    yield dataset
    try:
        for _, manifest in dataset_chain(store, dataset):
            yield from map(store_layout.blob, manifest.blobs if with_parts else ())
            for parent in manifest.parents:
                is_dataset = parent.startswith(store_layout.DATASETS)
                yield parent if is_dataset else store_layout.blob(parent)
    except (NotInStore, CorruptObject):
        return


def _training(store: Store, found: ModelLineage) -> dict[str, Any]:
    """Return the fields about the training, as far as its records are stored."""
    decision = _json(store, found.decision_key) if found.decision_key else {}
    question, placement = decision.get("question") or {}, decision.get("placement") or {}
    is_pod = (question.get("engine") or {}).get("engine") not in (None, "local")
    entry = _training_entry(store, (question.get("digests") or {}).get("cache", ""), found.run_id)
    try:
        environment = read_run_record(store, found.run_id).environment
    except UnknownName:
        environment = {}
    return {
        "receipt_key": found.decision_key.replace("/decisions/", "/receipts/"),
        "code_sha256": str(entry.key_fields["code"]) if entry else "",
        "libraries": entry.key_fields["libraries"] if entry else {},
        "image": placement.get("image", "") if is_pod else "",
        "environment": environment,
    }


def _json(store: Store, key: str) -> dict[str, Any]:
    # As it is: to read all of a decision imports the router, which takes 0.3 s.
    try:
        found = json.loads(store.fetch(key).read_bytes())
    except (NotInStore, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _training_entry(store: Store, cache_key: str, run_id: str) -> CacheEntry | None:
    """Return the cached result of a training: that of all runs, or the one that is its own run's; None: it is
    not stored.
    """
    shared = store_layout.cache_entry(cache_key)
    keys = [key for key in store.list(store_layout.CACHE) if key.count("/") == 1]
    for key in sorted(keys, key=lambda key: key != shared):
        try:
            entry = read_entry(key, store.fetch(key).read_bytes())
        except (NotInStore, CorruptObject, ValueError):
            continue
        is_own = entry.key_fields["stage"] == "train" and entry.key_fields["run_id"] == run_id
        if key == shared or is_own:
            return entry
    return None
