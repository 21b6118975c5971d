"""Recipes over files that a test writes, and the results of ingest and preprocess."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from shoestring.backends.folder_store import FolderStore
from shoestring.core.datasets import Manifest
from shoestring.core.interfaces import Store
from shoestring.core.types import Format
from shoestring.data.loading.open_split import open_split
from shoestring.data.loading.samples import Samples
from shoestring.data.recipe import Recipe
from shoestring.data.storage.part_writer import open_part
from shoestring.data.transforms.ingest import ingest
from shoestring.data.transforms.preprocess import preprocess


def quiet(what: str, rows: int) -> None:
    """Accept a progress report and ignore it."""


def of(folder: Path, rows: list[dict[str, object]], name: str = "rows.csv") -> Path:
    """Write rows as a CSV file."""
    with (folder / name).open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return folder / name


def with_shops(rows: pa.Table, street: int) -> pa.Table:
    """Add the column `shop`: 20 names of several words that repeat, the first of them in more rows."""
    names = [f"shop {row % 20 * (row < 40)} of street {street}" for row in range(rows.num_rows)]
    return rows.append_column("shop", pa.array(names))


def recipe_of(path: Path, **changes: Any) -> Recipe:
    return Recipe.model_validate(
        {"name": "mine", "source": {"rows": {"path": path}}, "target": {"column": "y"}} | changes
    )


def ingested(recipe: Recipe, folder: Path, format: Format = Format.ARROW) -> tuple[str, Manifest, Store]:
    """Ingest a recipe into a store in `folder`."""
    scratch = folder / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    store = FolderStore(folder / "store")
    return *ingest(recipe, format, store, scratch, quiet), store


def preprocessed(recipe: Recipe, folder: Path, format: Format = Format.ARROW) -> tuple[str, Manifest, Store]:
    raw_key, _, store = ingested(recipe, folder, format)
    return *preprocess(recipe, raw_key, format, store, folder / "scratch", quiet), store


def table_of(store: Store, manifest: Manifest, split: str) -> pa.Table:
    return pa.concat_tables(open_part(store, manifest, part) for part in manifest.splits[split])


def samples_of(store: Store, manifest: Manifest, split: str) -> Samples:
    """Return all samples of a split."""
    rows = open_split(store, manifest, split)
    return rows.take(np.arange(len(rows)))


def quarantined_rows(store: Store, manifest: Manifest) -> list[dict[str, Any]]:
    """Return the quarantined rows."""
    assert manifest.quarantine is not None
    return [json.loads(line) for line in store.fetch(manifest.quarantine).read_text().splitlines()]
