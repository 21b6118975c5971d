"""The networks and the drawn rows of bench/gpu.py; those of tables have the shape of flights' rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoestring.core.datasets import Encoding, Feature, StoredField, Vocabulary
from shoestring.data.formats.readers import EncodedRows
from shoestring.data.loading.samples import Array, Collator, SampleReader
from shoestring.training.families.image_net.learner import ImageNetKind
from shoestring.training.families.image_net.settings import ImageNetSettings
from shoestring.training.families.table_net.learner import TableNetKind
from shoestring.training.families.table_net.settings import TableNetSettings
from shoestring.training.families.transformer.learner import TransformerKind
from shoestring.training.families.transformer.settings import TransformerSettings
from shoestring.training.frameworks.torch_.net_kind import NetKind

CARDINALITIES, NUMBERS = (17, 4, 106, 13, 20), 12
"""Flights' categorical features by number of categories, and its numeric ones."""

TOKENS, VOCABULARY = 257, 256


@dataclass(frozen=True)
class Case:
    """A network with its rows, of which a tenth are for validation."""

    name: str
    rows: Array
    encoding: Encoding
    settings: Any
    kind_of: Callable[[Encoding, Any], NetKind]

    @property
    def kind(self) -> NetKind:
        return self.kind_of(self.encoding, self.settings)

    def reader(self, rows: Array) -> SampleReader:
        return SampleReader(EncodedRows([rows]), Collator(self.encoding, rows.dtype))

    def split(self) -> tuple[SampleReader, SampleReader]:
        cut = len(self.rows) * 9 // 10
        return self.reader(self.rows[:cut]), self.reader(self.rows[cut:])


def tables(rng: np.random.Generator, count: int, settings: TableNetSettings) -> Case:
    """Rows whose class depends on their numbers and on one category."""
    codes = [Feature(name=f"c{size}", kind="categorical", cardinality=size) for size in CARDINALITIES]
    numbers = [Feature(name=f"n{at}", kind="numeric") for at in range(NUMBERS)]
    names = [(each.name, "<i4") for each in codes] + [(each.name, "<f4") for each in numbers]
    rows = np.empty(count, [*names, ("y", "<i4")])
    for each in codes:
        rows[each.name] = rng.integers(each.cardinality or 1, size=count)
    for each in numbers:
        rows[each.name] = rng.normal(size=count)
    score = rows["n0"] * rows["n1"] + np.sin(3 * rows["n2"]) + rng.normal(size=20)[rows["c20"]]
    rows["y"] = score + rng.logistic(size=count) > 0
    features = (*codes, *numbers)
    encoding = Encoding(features=features, task="binary", classes=("0", "1"), train_prior=(0.5, 0.5))
    return Case(f"table_net, {settings.batch_rows} rows", rows, encoding, settings, TableNetKind)


def images(rng: np.random.Generator, count: int) -> Case:
    """Squares of 28 x 28 pixels in noise: the class is a tenth of their height."""
    rows = np.empty(count, [("_image", "u1", (784,)), ("y", "<i4")])
    pixels, classes = rng.integers(0, 120, (count, 28, 28)), rng.integers(10, size=count)
    at = np.arange(28)
    top, left = 1 + 2 * classes, rng.integers(0, 20, count)
    down = (at >= top[:, None]) & (at < top[:, None] + 6)
    right = (at >= left[:, None]) & (at < left[:, None] + 6)
    rows["_image"] = (pixels + 100 * (down[:, :, None] & right[:, None, :])).reshape(count, -1)
    rows["y"] = classes
    field = StoredField(name="_image", dtype="uint8", shape=(1, 28, 28), use="image")
    classes_of = {"task": "multiclass", "classes": tuple("0123456789"), "train_prior": (0.1,) * 10}
    encoding = Encoding(features=(), fields=(field,), **classes_of)
    return Case("image_net", rows, encoding, ImageNetSettings(), ImageNetKind)


def texts(rng: np.random.Generator, count: int, settings: TransformerSettings) -> Case:
    """Bytes of which each depends on the one before it."""
    following = rng.integers(2, VOCABULARY, (VOCABULARY, 4))
    rows = np.empty(count, [("_tokens", "u1", (TOKENS,)), ("y", "<i4")])
    tokens = np.empty((count, TOKENS), np.uint8)
    tokens[:, 0] = 0
    for at in range(1, TOKENS):
        tokens[:, at] = following[tokens[:, at - 1], rng.integers(4, size=count)]
    rows["_tokens"], rows["y"] = tokens, TOKENS - 1
    field = StoredField(name="_tokens", dtype="uint8", shape=(TOKENS,), use="tokens")
    vocabulary = Vocabulary(kind="bytes", size=VOCABULARY, start=0, padding=1, bytes_per_token=1.0)
    prior = (0.0, 0.0, *[1 / (VOCABULARY - 2)] * (VOCABULARY - 2))
    encoding = Encoding(
        features=(), fields=(field,), vocabulary=vocabulary, task="next_token", train_prior=prior
    )
    name = f"transformer, {settings.layers} x {settings.width}"
    return Case(name, rows, encoding, settings, TransformerKind)


def gpu_cases(quick: bool) -> list[Case]:
    rng, rows = np.random.default_rng(0), 20_000 if quick else 400_000
    found = [
        tables(rng, rows, TableNetSettings()),
        tables(rng, rows, TableNetSettings(batch_rows=8192)),
        images(rng, rows // 10),
        texts(rng, rows // 50, TransformerSettings()),
    ]
    large = TransformerSettings(layers=6, width=384, heads=6)
    return found if quick else [*found, texts(rng, rows // 50, large)]
