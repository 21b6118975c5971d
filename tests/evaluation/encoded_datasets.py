"""Encoded data sets with a known true model, in a real store, as preprocess would write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from small_dataset import save

from shoestring.backends.folder_store import FolderStore
from shoestring.core.datasets import GROUP_COLUMN, Encoding, Feature
from shoestring.core.interfaces import Store
from shoestring.core.record import record_bytes
from shoestring.data.storage.blobs import load_manifest
from shoestring.training.families.table_net.settings import TableNetSettings
from shoestring.training.model_record import ModelRecord

Task = Literal["binary", "multiclass", "regression"]
Array = np.ndarray[Any, np.dtype[Any]]
CODES = 300
MODEL_KEY = "runs/one/model.json"
FEATURES = (
    Feature(name="where", kind="categorical", cardinality=CODES),
    Feature(name="shade", kind="categorical", cardinality=4),
    Feature(name="size", kind="numeric"),
    Feature(name="_noise", kind="numeric"),
)


def columns(rows: int, seed: int) -> dict[str, Array]:
    """Return inputs; `where` has more categories than gradient boosting supports."""
    generator = np.random.default_rng(seed)
    return {
        "where": np.minimum(generator.geometric(0.02, rows), CODES - 1).astype(np.int32),
        "shade": generator.integers(0, 4, rows, dtype=np.int32),
        "size": generator.normal(size=rows).astype(np.float32),
        "_noise": generator.normal(size=rows).astype(np.float32),
    }


def signal(found: dict[str, Array]) -> Array:
    """Return the true signal: a step in `where`, a kink in `size`, and their product with `shade`."""
    step = np.where(found["where"] % 3 == 0, 1.0, -1.0)
    return np.asarray(1.2 * step + np.abs(found["size"]) * (found["shade"] - 1.5))


def chances(task: Task, found: dict[str, Array]) -> Array:
    """Return the true probabilities float[n, classes]; for regression the true mean float[n]."""
    raw = signal(found)
    if task == "regression":
        return 10.0 + raw
    logits = np.column_stack([np.zeros(len(raw)), raw, -raw][: 2 if task == "binary" else 3])
    return np.asarray(np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True))


def draw(task: Task, chance: Array, seed: int) -> Array:
    generator = np.random.default_rng(seed + 1)
    if task == "regression":
        return (chance + generator.normal(size=len(chance))).astype(np.float32)
    return (generator.random((len(chance), 1)) > chance.cumsum(axis=1)).sum(axis=1).astype(np.int32)


def encoding_of(task: Task, y: Array) -> Encoding:
    if task == "regression":
        return Encoding(features=FEATURES, task=task, train_prior=(float(y.mean()), float(y.std())))
    classes = 2 if task == "binary" else 3
    prior = tuple(float(share) for share in np.bincount(y, minlength=classes) / len(y))
    return Encoding(features=FEATURES, task=task, classes=tuple("abc"[:classes]), train_prior=prior)


def dataset(
    folder: Path, task: Task, rows: dict[str, int], *, groups: int = 0, only: int | None = None
) -> tuple[Store, str]:
    """Return a store and the key of a data set. `only`: the single class or value of the test split."""
    store, scratch = FolderStore(folder / "store"), folder / "scratch"
    scratch.mkdir()
    splits, train_y = {}, np.zeros(0)
    for seed, (split, count) in enumerate(rows.items()):
        found = columns(count, seed)
        y = draw(task, chances(task, found), seed)
        if split == "test" and only is not None:
            y = np.full_like(y, only)
        train_y = y if split == "train" else train_y
        grouped = (
            {GROUP_COLUMN: (np.arange(count, dtype=np.int32) * groups // max(1, count))} if groups else {}
        )
        splits[split] = pa.table({**found, "y": y, **grouped})
    return store, save(store, scratch, splits, encoding_of(task, train_y))


def model_of(data_key: str, encoding: Encoding, seconds: float, cores: int = 1) -> ModelRecord:
    """Return the record of a model that trained for `seconds` on `cores`."""
    return ModelRecord(
        run_id="one",
        weights_sha256="",
        dataset_key=data_key,
        encoding=encoding,
        settings=TableNetSettings(),
        seed=0,
        samples=1000,
        epochs=1.0,
        training_s=seconds,
        cores=cores,
        val_loss=0.5,
        weights_source="annealed",
        stop_reason="",
        data_wait_share=0.0,
        sample_ranges=(),
    )


def trained(store: Store, data_key: str, seconds: float = 0.3) -> None:
    """Store a model of the data set under `MODEL_KEY`."""
    encoding = load_manifest(store, data_key).encoding
    assert encoding is not None
    store.put(MODEL_KEY, record_bytes(model_of(data_key, encoding, seconds)))
