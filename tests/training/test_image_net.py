from __future__ import annotations

import numpy as np
import torch

from shoestring.core.datasets import IMAGE_COLUMN, Encoding, StoredField
from shoestring.data.loading.samples import Samples
from shoestring.training.families.table_net.learner import TableNetKind
from shoestring.training.families.table_net.settings import TableNetSettings
from shoestring.training.frameworks.torch_.net_learner import NetLearner

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


def test_the_net_for_tables_learns_from_pixels_alone() -> None:
    torch.manual_seed(0)
    samples = images(256)
    learner = NetLearner(TableNetKind(ENCODING, TableNetSettings(hidden=(16,))), samples, len(samples))
    assert learner.net.hidden[0].in_features == 24
    before = learner.loss([samples], learner.net)
    for _ in range(60):
        learner.step(samples, 0.01)
    assert before > 0.69 and learner.loss([samples], learner.net) < 0.1


def test_pixels_are_scaled_to_1_in_the_order_of_the_field() -> None:
    samples = images(3)
    _, _, pixels_BV = TableNetKind(ENCODING, TableNetSettings()).inputs(samples)
    assert pixels_BV.dtype == torch.float32 and pixels_BV.shape == (3, 24)
    expected = samples["image"].reshape(3, 24) / 255
    assert np.allclose(pixels_BV.numpy(), expected, atol=1e-6)
