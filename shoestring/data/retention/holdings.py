"""The objects of a store by kind, and their cost a month."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Literal, get_args

from pydantic import Field

from shoestring.config.tariffs import Tariffs
from shoestring.core import store_layout
from shoestring.core.interfaces import ListedObject, Store
from shoestring.core.money import Usd, usd
from shoestring.core.record import Record
from shoestring.data.retention.references import ReferencedObjects, named_digests, read_all

ObjectKind = Literal[
    "data sets",
    "models",
    "checkpoints",
    "reports",
    "records of runs",
    "cache",
    "ledger",
    "learned",
    "fingerprints",
    "other blobs",
    "other",
]
BYTES_PER_GB = Decimal(10**9)


class Holding(Record):
    """The objects of one kind. Dollars are by the storage class of each object; a class without a price
    counts as the standard one.
    """

    kind: ObjectKind
    objects: int
    size_bytes: int
    usd_per_month: Usd


class Holdings(Record):
    """The objects of a store, or of a part of it: by kind, and in all."""

    kinds: tuple[Holding, ...]
    objects: int
    size_bytes: int
    usd_per_month: Usd = Field(description="dollars for a month of 730 hours, at the world's storage prices")


def kinds_of(store: Store, objects: Mapping[str, ListedObject]) -> dict[str, ObjectKind]:
    """Return the kind of each object. The manifests and models that name a blob decide its kind."""
    manifests = [key for key in objects if key.startswith(store_layout.DATASETS)]
    models = [key for key in objects if key.startswith(store_layout.RUNS) and key.endswith("/model.json")]
    parts = frozenset().union(*read_all(store, manifests, lambda _, data: named_digests(data)))
    weights = frozenset().union(*read_all(store, models, lambda _, data: named_digests(data))) - parts
    return {key: _kind(key, parts, weights) for key in objects}


def objects_of_run(store: Store, objects: Mapping[str, ListedObject], run_id: str) -> list[str]:
    """Return the keys of a run's records and ledger accounts, then those that the records name."""
    prefixes = (store_layout.run(run_id), store_layout.account(run_id), f"{store_layout.LEDGER}{run_id}.")
    own = [key for key in objects if key.startswith(prefixes)]
    references = ReferencedObjects(store, objects)
    references.keep_named_by(
        key for key in own if key.startswith(store_layout.RUNS) and key.endswith(".json")
    )
    return [*own, *sorted(references.keys)]


def _kind(key: str, parts: frozenset[str], weights: frozenset[str]) -> ObjectKind:
    prefix, name = key.partition("/")[0] + "/", PurePosixPath(key).name
    if prefix == store_layout.BLOBS:
        return "data sets" if name in parts else "models" if name in weights else "other blobs"
    if prefix == store_layout.RUNS:
        if "/checkpoints/" in key:
            return "checkpoints"
        return "reports" if name == "report.html" else "records of runs"
    if key.startswith(store_layout.FINGERPRINTS):
        return "fingerprints"
    named: dict[str, ObjectKind] = {
        store_layout.DATASETS: "data sets",
        store_layout.CACHE: "cache",
        store_layout.LEDGER: "ledger",
        store_layout.PENDING: "ledger",
        "learned/": "learned",
    }
    return named.get(prefix, "other")


def hold(
    keys: Iterable[str],
    objects: Mapping[str, ListedObject],
    kinds: Mapping[str, ObjectKind],
    tariffs: Tariffs,
) -> Holdings:
    """Return what these objects are, and what they cost a month."""
    groups: dict[ObjectKind, list[ListedObject]] = {}
    for key in keys:
        groups.setdefault(kinds[key], []).append(objects[key])
    return Holdings(
        kinds=tuple(
            Holding(kind=kind, usd_per_month=month_usd(found, tariffs), **_count(found))
            for kind in get_args(ObjectKind)
            if (found := groups.get(kind, []))
        ),
        usd_per_month=month_usd([each for found in groups.values() for each in found], tariffs),
        **_count([each for found in groups.values() for each in found]),
    )


def _count(found: list[ListedObject]) -> dict[str, int]:
    return {"objects": len(found), "size_bytes": sum(each.size_bytes for each in found)}


def month_usd(found: Iterable[ListedObject], tariffs: Tariffs) -> Decimal:
    """Return what these objects cost a month, in dollars, rounded up to the micro-dollar."""
    classes, sizes = tariffs.all_storage_classes, dict[str, int]()
    for each in found:
        sizes[each.storage_class] = sizes.get(each.storage_class, 0) + each.size_bytes
    standard = tariffs.storage_class()
    prices = {name: classes.get(name, standard).usd_per_gb_month for name in sizes}
    return usd(sum((prices[name] * size / BYTES_PER_GB for name, size in sizes.items()), Decimal(0)))
