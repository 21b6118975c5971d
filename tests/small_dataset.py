"""Synthetic encoded tables, in the form that preprocess stores."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from shoestring.backends.folder_store import FolderStore
from shoestring.core.datasets import Encoding, Feature, Manifest, stored_fields
from shoestring.core.types import Format
from shoestring.data.formats.readers import EncodedRows
from shoestring.data.loading.samples import Collator, SampleReader, Samples
from shoestring.data.storage.blobs import save_manifest
from shoestring.data.storage.part_writer import PartWriter

Array = np.ndarray[Any, np.dtype[Any]]
CODE = Feature(name="code", kind="categorical", cardinality=9)
NUMBER = Feature(name="number", kind="numeric")
RECORD = np.dtype([("code", "i4"), ("number", "f4"), ("y", "i4")])


def table(rows: int, seed: int) -> Array:
    """Return rows whose `y` is 1 with a probability that depends on `number` and on whether `code` is odd.

    A small network learns it in seconds.
    """
    generator = np.random.default_rng(seed)
    found = np.empty(rows, RECORD)
    found["code"], found["number"] = generator.integers(0, 9, rows), generator.normal(size=rows)
    logit = np.where(found["code"] % 2, 2.0, -2.0) + 2 * found["number"]
    found["y"] = generator.random(rows) < 1 / (1 + np.exp(-logit))
    return found


def encoding_of(train: Array) -> Encoding:
    share = float(train["y"].mean())
    return Encoding(
        features=(CODE, NUMBER), task="binary", classes=("no", "yes"), train_prior=(1 - share, share)
    )


def reader(rows: Array, encoding: Encoding | None = None) -> SampleReader:
    """Return the samples of rows that are stored ready to use."""
    return SampleReader(EncodedRows([rows]), Collator(encoding or encoding_of(rows), rows.dtype))


def samples(rows: Array, encoding: Encoding | None = None) -> Samples:
    """Return all samples of rows that are stored ready to use."""
    return reader(rows, encoding).take(np.arange(len(rows)))


def dataset(store: FolderStore, scratch: Path, rows: dict[str, int]) -> str:
    """Store a data set with these numbers of rows, by split; return the key of its manifest."""
    splits = {}
    for seed, (split, count) in enumerate(rows.items()):
        found = table(count, seed)
        splits[split] = pa.table({str(name): found[name] for name in RECORD.names or ()})
    return save(store, scratch, splits, encoding_of(table(3000, 0)))


def save(store: FolderStore, scratch: Path, splits: Mapping[str, pa.Table], encoding: Encoding) -> str:
    """Store encoded tables, one for each split; return the key of their manifest."""
    parts = {}
    for split, rows in splits.items():
        writer = PartWriter(store, Format.PACKED, scratch)
        writer.add(rows)
        parts[split] = writer.close()
    types = {field.name: str(field.type) for field in splits["train"].schema}
    return save_manifest(
        store,
        Manifest(
            name="made-up",
            format=Format.PACKED,
            splits=parts,
            rows=sum(len(rows) for rows in splits.values()),
            row_bytes=4 * len(types),
            size_bytes=sum(part.size_bytes for each in parts.values() for part in each),
            settings_sha256="",
            encoding=encoding.model_copy(update={"fields": stored_fields(types, encoding.fields)}),
        ),
    )
