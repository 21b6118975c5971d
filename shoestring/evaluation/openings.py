"""Count how often a sealed test split was opened, by all runs on the same data, split settings and seed.

A choice among models by their scores on one test split fits the split a little each time. The number of
evaluations so far says how far to trust the last one (Dwork et al. 2015, "The reusable holdout").
"""

from __future__ import annotations

import json

from shoestring.core import store_layout
from shoestring.core.datasets import Manifest
from shoestring.core.errors import NotInStore
from shoestring.core.interfaces import Store
from shoestring.core.record import StoredRecord, digest, record_bytes
from shoestring.data.run_records import read_record
from shoestring.data.split_settings import Split
from shoestring.data.storage.blobs import load_manifest


class Opening(StoredRecord):
    """One opening of a sealed split: its number among all of them, from 1, and the run that made it."""

    number: int
    run_id: str


def sealed_split(store: Store, manifest: Manifest, split: Split, seed: int) -> str:
    """Return the digest that names the test rows: of the source files, the settings of the split, its seed,
    and where rows were hashed, of the rule and the columns that it ignored. A split by time has its
    boundaries in place of the seed; test rows that the data names have none.

    Another choice of features gives another data set, and the same test rows.
    """
    sources: tuple[str, ...] = manifest.parents
    for key in manifest.parents:
        try:
            sources = load_manifest(store, key).parents or sources
        except NotInStore:
            continue
    rule = manifest.split_rule
    is_drawn = not split.time and not (rule and "test" in rule.given)
    content = {"sources": sources, "split": split.model_dump(mode="json"), "seed": seed if is_drawn else 0}
    if rule is not None and (rule.boundaries or rule.given or rule.unit in ("distinct rows", "rows")):
        content["rule"] = rule.model_dump(mode="json")
    return digest(json.dumps(content, sort_keys=True).encode())


def count_opening(store: Store, split_sha256: str, run_id: str) -> int:
    """Return the number of this run's opening of a split, counted from 1; a run counts once.

    Each number belongs to one run, also when several open the split at the same time. A run that died between
    its two writes, a few milliseconds, counts twice.
    """
    of_run = store_layout.test_opening_of_run(split_sha256, run_id)
    try:
        return read_record(store, of_run, Opening).number
    except NotInStore:
        number = 1 + sum("/runs/" not in key for key in store.list(store_layout.test_openings(split_sha256)))
    while not store.put(
        store_layout.test_opening(split_sha256, number),
        record_bytes(Opening(number=number, run_id=run_id)),
        if_absent=True,
    ):
        number += 1
    store.put(of_run, record_bytes(Opening(number=number, run_id=run_id)), if_absent=True)
    return read_record(store, of_run, Opening).number
