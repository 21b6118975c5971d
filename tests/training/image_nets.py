"""Images that a test makes, and the network for images that learned them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from shoestring.core.datasets import IMAGE_COLUMN, Encoding, StoredField
from shoestring.data.loading.samples import Samples
from shoestring.training.families.image_net.learner import ImageNetKind
from shoestring.training.families.image_net.settings import ImageNetSettings
from shoestring.training.frameworks.torch_.net_learner import NetLearner

Array = np.ndarray[Any, np.dtype[Any]]

ENCODING = Encoding(
    features=(),
    fields=(StoredField(name=IMAGE_COLUMN, dtype="uint8", shape=(1, 4, 6), use="image"),),
    task="binary",
    classes=("dark", "bright"),
    train_prior=(0.5, 0.5),
)


def images(rows: int) -> Samples:
    """Return images whose left half is bright in every second one."""
    pixels = np.random.default_rng(0).integers(0, 156, (rows, 1, 4, 6), np.uint8)
    pixels[1::2, :, :, :3] += 100
    empty = np.zeros((rows, 0))
    return Samples(
        {
            "code": empty.astype(np.int32),
            "number": empty.astype(np.float32),
            "target": (np.arange(rows) % 2).astype(np.int32),
            "image": pixels,
        }
    )


def squares(rows: int, seed: int, side: int = 12) -> Samples:
    """Return images with noise; every second one has a bright square of 3 x 3 at any place."""
    generator = np.random.default_rng(seed)
    pixels = generator.integers(0, 160, (rows, 1, side, side), np.uint8)
    for at, (row, column) in enumerate(generator.integers(0, side - 2, (rows, 2))):
        pixels[at, 0, row : row + 3, column : column + 3] += 90 * (at % 2)
    return with_images(pixels, (np.arange(rows) % 2).astype(np.int32))


def with_images(
    pixels: Array, target: Array, codes: Array | None = None, numbers: Array | None = None
) -> Samples:
    rows = len(pixels)
    return Samples(
        {
            "code": np.zeros((rows, 0), np.int32) if codes is None else codes,
            "number": np.zeros((rows, 0), np.float32) if numbers is None else numbers,
            "target": target,
            "image": pixels,
        }
    )


def encoding_for(samples: Samples, **keys: object) -> Encoding:
    field = StoredField(name=IMAGE_COLUMN, dtype="uint8", shape=samples["image"].shape[1:], use="image")
    return ENCODING.model_copy(update={"fields": (field,), **keys})


def image_learner(samples: Samples, encoding: Encoding | None = None, **settings: object) -> NetLearner:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    chosen = ImageNetSettings.model_validate({"hidden": (8, 16), "dropout": 0, **settings})
    return NetLearner(ImageNetKind(encoding or encoding_for(samples), chosen), samples, len(samples))


def learned(
    samples: Samples, steps: int, encoding: Encoding | None = None, rate: float = 0.01, **settings: object
) -> NetLearner:
    learner = image_learner(samples, encoding, **settings)
    for _ in range(steps):
        learner.step(learner.prepare(samples), rate)
    return learner
