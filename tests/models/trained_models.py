"""Models that are trained on a table of all kinds of columns, and the rows that were sealed from them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
from stage_work import stage_work

from shoestring.backends.folder_store import FolderStore
from shoestring.data.loading.open_split import open_split
from shoestring.data.recipe import Recipe
from shoestring.data.run_records import read_record
from shoestring.data.split_settings import SPLITS
from shoestring.data.storage.blobs import load_manifest
from shoestring.data.transforms.joined_table import JoinedTable
from shoestring.data.transforms.target import is_known
from shoestring.models.folder.record import MAX_TABLES_BYTES
from shoestring.models.folder.write_folder import write_model
from shoestring.stages import ingest, preprocess, train
from shoestring.training.families.predict import predict
from shoestring.training.model_record import ModelRecord

Array = np.ndarray[Any, np.dtype[Any]]

ROWS = 900
CITIES = ("Oslo", "Lima", "Quito", "Bern", "Cairo")
WORDS = ("slow", "warm", "late", "early", "loud", "clean", "cheap", "far")
FAMILIES: dict[str, dict[str, object]] = {
    "table_net": {"family": "table_net", "max_epochs": 3, "hidden": [8]},
    "boosted": {"family": "boosted", "max_epochs": 12, "leaves": 6},
    "linear": {"family": "linear", "max_epochs": 3},
    "blend": {
        "family": "blend",
        "members": [
            {"family": "boosted", "max_epochs": 12, "leaves": 6},
            {"family": "table_net", "max_epochs": 2, "hidden": [8]},
        ],
    },
}


def table(rows: int = ROWS, seed: int = 0) -> pa.Table:
    """Return rows with categories, numbers, dates, sums of money as text, free text, a key, names of several
    words that repeat, and the targets `grade` and `price`."""
    draw = random.Random(seed)
    columns: dict[str, list[Any]] = {
        name: []
        for name in (
            *("id", "city", "size", "rooms", "when", "opened", "fee", "y", "remark", "place", "shop"),
            *("grade", "price"),
        )
    }
    for number in range(rows):
        city = draw.choices(CITIES, (5, 4, 3, 2, 1))[0] if draw.random() > 0.03 else f"rare {number}"
        size = None if draw.random() < 0.1 else round(draw.gauss(50, 12), 1)
        place, rooms = draw.randrange(40), draw.randrange(1, 7)
        score = (size or 50) / 12 + rooms + 2 * (city == "Lima") + place % 3 + draw.gauss(0, 1)
        when = datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None) + timedelta(hours=7 * number)
        values = (
            number,
            city,
            size,
            rooms,
            when,
            f"{when + timedelta(days=17):%d.%m.%Y}",
            f"${draw.gauss(2000, 500):,.2f}",
            draw.random(),
            " ".join(draw.sample(WORDS, 4)) + f" {number}",
            place,
            f"{WORDS[number % 8]} {WORDS[number % 5]} shop {number % 120}",
            "low" if score < 8 else "middle" if score < 10 else "high",
            round(1000 * score, 2),
        )
        for name, value in zip(columns, values, strict=True):
            columns[name].append(value)
    return pa.table(columns)


def places() -> pa.Table:
    return pa.table(
        {
            "place": list(range(38)),
            "region": [f"region {number % 3}" for number in range(38)],
            "height": [None if number == 7 else 10.5 * number for number in range(38)],
            "unused": ["x"] * 38,
        }
    )


@dataclass(frozen=True, slots=True)
class Trained:
    """A model of a run in a store, its folder, and what its stage predicts for the sealed rows.

    `sealed`: the raw rows of the test split, as they are in the source.
    """

    folder: Path
    recipe: Recipe
    store: FolderStore
    model: ModelRecord
    sealed: pa.Table
    predicted: Array


def recipe_of(folder: Path, column: str, **keys: object) -> Recipe:
    return Recipe.model_validate(
        {
            "name": "homes",
            "source": {
                "homes": {"path": folder / "homes.csv"},
                "places": {"path": folder / "places.csv"},
            },
            "main": "homes",
            "joins": [{"table": "places", "by": ["place"], "columns": ["region", "height"]}],
            "target": {"column": column, "task": "regression" if column == "price" else "multiclass"},
            "leaks": [name for name in ("id", "grade", "price") if name != column],
            "split": {"train": 0.6, "val": 0.2, "test": 0.2},
            **keys,
        }
    )


def trained(
    folder: Path, family: str, column: str = "grade", max_tables: int = MAX_TABLES_BYTES, **keys: object
) -> Trained:
    """Train a model of a family in `folder`, and write its folder `model` there."""
    rows = table()
    pa.csv.write_csv(rows, folder / "homes.csv")
    pa.csv.write_csv(places(), folder / "places.csv")
    return trained_on(folder, recipe_of(folder, column, train=FAMILIES[family], **keys), rows, max_tables)


def trained_on(folder: Path, recipe: Recipe, rows: pa.Table, max_tables: int = MAX_TABLES_BYTES) -> Trained:
    """Train a recipe whose main table has these rows."""
    work = partial(stage_work, folder, recipe)
    raw = ingest.run(work("ingest")).key
    data = preprocess.run(work("preprocess", data=raw)).key
    key, store = train.run(work("train", data=data)).key, FolderStore(folder / "store")
    model, manifest = read_record(store, key, ModelRecord), load_manifest(store, data)
    write_model(store, model, recipe, b"{}", folder / "model", max_tables)
    if recipe.text is not None:
        return Trained(folder, recipe, store, model, rows, np.zeros(0))
    joined = JoinedTable(recipe, load_manifest(store, raw), store)
    splits = np.concatenate(
        [
            np.where(np.asarray(is_known(batch[recipe.target.column])), assigned.split_indices, -1)
            for part in range(len(joined.parts))
            for batch, assigned in joined.batches(part)
        ]
    )
    sealed = rows.filter(pa.array(splits == SPLITS.index("test")))
    return Trained(
        folder, recipe, store, model, sealed, predict(store, key, open_split(store, manifest, "test"))
    )
