"""A table that was made up, as preprocess would leave it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from shoestring.data.blobs import save_manifest
from shoestring.data.parts import PartWriter
from shoestring.local import FolderStore
from shoestring.model import Encoding, Feature, Format, Manifest

RECORD = np.dtype([("code", "i4"), ("number", "f4"), ("y", "i4")])


def dataset(store: FolderStore, folder: Path) -> str:
    """A table that a small network learns in seconds, as preprocess would leave it; the key of its manifest."""
    splits = {}
    for seed, (split, count) in enumerate({"train": 20_000, "val": 2000, "test": 100}.items()):
        generator = np.random.default_rng(seed)
        made = np.empty(count, RECORD)
        made["code"], made["number"] = generator.integers(0, 9, count), generator.normal(size=count)
        made["y"] = generator.random(count) < 1 / (1 + np.exp(-np.where(made["code"] % 2, 2.0, -2.0) - 2 * made["number"]))
        writer = PartWriter(store, Format.PACKED, folder)
        writer.add(pa.table({name: made[name] for name in RECORD.names or ()}))
        splits[split] = writer.close()
    features = (Feature(name="code", kind="categorical", cardinality=9), Feature(name="number", kind="numeric"))
    return save_manifest(
        store,
        Manifest(
            name="made-up",
            format=Format.PACKED,
            columns={"code": "int32", "number": "float", "y": "int32"},
            splits=splits,
            rows=22_100,
            row_bytes=12,
            size_bytes=12 * 22_100,
            settings_sha256="",
            encoding=Encoding(features=features, task="binary", classes=("no", "yes"), train_prior=(0.5, 0.5)),
        ),
    )
