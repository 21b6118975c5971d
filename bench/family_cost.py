"""Claim: a family's formula gives the CPU time of a training within a factor of 2, for tables, images
and texts of several shapes and for several settings.

Each training is one of 3 epochs, of 30 rounds of trees, or of an epoch of texts, with its validations and
checkpoints. Its CPU time is divided by the rows of its passes. The time before the first step is left out.

python bench/family_cost.py [--rows 60000] [--family NAME ...] [--quick]

Images have as many values together as 400 for each row, and texts 8 tokens.

--quick: 20,000 rows; two minutes.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from killed_training import Data, Rows, task_of
from machine import describe

from shoestring.core.datasets import (
    IMAGE_COLUMN,
    TOKENS_COLUMN,
    Encoding,
    Feature,
    StoredField,
    Vocabulary,
)
from shoestring.data.families import FamilySettings
from shoestring.stages.train import NEED
from shoestring.training.families.boosted.settings import BoostedSettings
from shoestring.training.families.data_shape import BYTES_VOCABULARY, encoded_shape
from shoestring.training.families.image_net.settings import ImageNetSettings
from shoestring.training.families.linear.settings import LinearSettings
from shoestring.training.families.registry import family_of
from shoestring.training.families.table_net.settings import TableNetSettings
from shoestring.training.families.text_net.settings import TextNetSettings
from shoestring.training.families.transformer.settings import TransformerSettings
from shoestring.training.loop import Training

MOST_RATIO = 2.0
SHAPES = {
    "12 numbers, 5 categories": (12, (17, 4, 106, 13, 20)),
    "100 numbers": (100, ()),
    "30 categories": (0, (1000,) * 30),
    "3 numbers": (3, ()),
}
IMAGES = {"28 x 28, grey": (1, 28, 28), "64 x 64": (3, 64, 64), "224 x 224": (3, 224, 224)}
TEXTS = {"512 bytes": (512, 256), "128 bytes": (128, 256), "512 tokens of 2,048": (512, 2048)}
"""The tokens of a row, and of the vocabulary."""

SETTINGS: dict[str, tuple[FamilySettings, ...]] = {
    "table_net": (
        TableNetSettings(max_epochs=3, patience=99),
        TableNetSettings(max_epochs=3, patience=99, hidden=(512, 512)),
    ),
    "image_net": (
        ImageNetSettings(max_epochs=3, patience=99),
        ImageNetSettings(max_epochs=3, patience=99, convolutions=2),
        ImageNetSettings(max_epochs=3, patience=99, hidden=(16, 32)),
    ),
    "text_net": (
        TextNetSettings(max_epochs=1, patience=99),
        TextNetSettings(max_epochs=1, patience=99, hidden=(128,) * 6),
    ),
    "transformer": (
        TransformerSettings(max_epochs=1, patience=99),
        TransformerSettings(max_epochs=1, patience=99, window=None, ngrams=False),
        TransformerSettings(max_epochs=1, patience=99, width=64, layers=4),
    ),
    "linear": (LinearSettings(max_epochs=3, patience=99),),
    "boosted": (
        BoostedSettings(max_epochs=30, patience=99),
        BoostedSettings(max_epochs=30, patience=99, leaves=127),
    ),
}


def table_of(numbers: int, cardinalities: tuple[int, ...], rows: int, classes: int) -> tuple[Encoding, Rows]:
    """Return made-up rows of a shape, whose class depends on a feature."""
    rng = np.random.default_rng(0)
    features = [
        *(
            Feature(name=f"c{at}", kind="categorical", cardinality=size)
            for at, size in enumerate(cardinalities)
        ),
        *(Feature(name=f"n{at}", kind="numeric") for at in range(numbers)),
    ]
    kinds = [(each.name, "<i4" if each.kind == "categorical" else "<f4") for each in features]
    made = np.empty(rows, [*kinds, ("y", "<i4")])
    for each in features:
        size = each.cardinality
        made[each.name] = rng.integers(0, size, rows) if size else rng.normal(size=rows)
    made["y"] = (made[features[0].name] + rng.normal(size=rows) > 0.5) * rng.integers(1, classes, rows)
    shares = tuple((np.bincount(made["y"], minlength=classes) / rows).tolist())
    task = "binary" if classes == 2 else "multiclass"
    names = tuple(map(str, range(classes)))
    return Encoding(features=tuple(features), task=task, classes=names, train_prior=shares), made


def images_of(shape: tuple[int, ...], values: int, classes: int) -> tuple[Encoding, Rows]:
    """Return made-up images of a shape, of `values` values together, whose class is their brightness."""
    rng, size = np.random.default_rng(0), math.prod(shape)
    made = np.empty(values // size, [(IMAGE_COLUMN, "u1", (size,)), ("y", "<i4")])
    made["y"] = rng.integers(0, classes, len(made))
    made[IMAGE_COLUMN] = rng.integers(0, 128, (len(made), size)) + 20 * made["y"][:, None]
    names, shares = tuple(map(str, range(classes))), (1 / classes,) * classes
    fields = (StoredField(name=IMAGE_COLUMN, dtype="uint8", shape=shape, use="image"),)
    task = "binary" if classes == 2 else "multiclass"
    return Encoding(features=(), fields=fields, task=task, classes=names, train_prior=shares), made


def texts_of(row_tokens: int, size: int, tokens: int) -> tuple[Encoding, Rows]:
    """Return made-up rows of a document each, `tokens` tokens together, with a vocabulary of a size."""
    dtype = "uint8" if size == BYTES_VOCABULARY else "uint16"
    made = np.empty(tokens // row_tokens, [(TOKENS_COLUMN, dtype, (row_tokens,)), ("y", "<i4")])
    made[TOKENS_COLUMN] = np.random.default_rng(0).integers(2, size, (len(made), row_tokens))
    made[TOKENS_COLUMN][:, 0], made["y"] = 0, row_tokens - 1
    kind: Literal["bytes", "bpe"] = "bytes" if size == BYTES_VOCABULARY else "bpe"
    vocabulary = Vocabulary(kind=kind, size=size, start=0, padding=1, bytes_per_token=1.0)
    fields = (StoredField(name=TOKENS_COLUMN, dtype=dtype, shape=(row_tokens,), use="tokens"),)
    shares = (0.0, 0.0, *(1 / (size - 2),) * (size - 2))
    return Encoding(
        features=(), fields=fields, vocabulary=vocabulary, task="next_token", train_prior=shares
    ), made


def made_for(family: str, rows: int) -> Iterator[tuple[str, tuple[Encoding, Rows]]]:
    """Return the data sets of a family, with their names."""
    if family in ("text_net", "transformer"):
        for name, (row_tokens, size) in TEXTS.items():
            yield name, texts_of(row_tokens, size, 8 * rows)
        return
    for classes in (2, 5):
        if family == "image_net":
            for name, image in IMAGES.items():
                yield f"{name}, {classes} classes", images_of(image, 400 * rows, classes)
        else:
            for name, table in SHAPES.items():
                yield f"{name}, {classes} classes", table_of(*table, rows, classes)


def cases(families: list[str], rows: int) -> Iterator[tuple[str, Data]]:
    for family in families:
        for settings in SETTINGS[family]:
            own = settings.model_dump(exclude_defaults=True, exclude={"max_epochs", "patience"})
            for shape, (encoding, made_rows) in made_for(family, rows):
                yield f"{family} {own or ''}: {shape}", Data(encoding, made_rows, settings)


def measured_us(data: Data) -> float:
    """Return the CPU microseconds of a row of a pass."""
    with tempfile.TemporaryDirectory() as folder:
        task = task_of(Path(folder), data, validation_rows=len(data.rows) // 9)
        training = Training(task, family_of(data.settings).learner(task))
        began_s = time.process_time()
        trained = training.run()
    return (time.process_time() - began_s) / trained.state.samples * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=Path(__file__).name)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--family", nargs="*", choices=sorted(SETTINGS), default=sorted(SETTINGS))
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    print(describe(), flush=True)
    torch.set_num_threads(1)
    worst = 1.0
    for name, data in cases(args.family, 20_000 if args.quick else args.rows):
        shape = encoded_shape(data.encoding, len(data.rows))
        formula_us = family_of(data.settings).train_need(NEED, shape).cpu_us_per_row
        taken_us = measured_us(data)
        ratio = formula_us / taken_us
        worst = max(worst, ratio, 1 / ratio)
        print(f"{name}: {taken_us:.3g} us a row, formula {formula_us:.3g}: {ratio:.2f}", flush=True)
    print(f"at most a factor of {worst:.2f}, {MOST_RATIO:g} asked")
    raise SystemExit(not math.isfinite(worst) or worst > MOST_RATIO)


if __name__ == "__main__":
    main()
