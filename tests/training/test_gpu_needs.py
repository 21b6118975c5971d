"""The cost of networks on a GPU: the operations of a step, and the pools that pay."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from image_nets import encoding_for, squares
from small_dataset import NUMBER, encoding_of, table
from test_text_families import SMALL, encoding, kind_of, rows
from torch.utils._python_dispatch import TorchDispatchMode
from training_bench import TINY

from shoestring.core.datasets import Encoding, Feature
from shoestring.core.types import Need, Pool
from shoestring.data.families import LearnerSettings
from shoestring.data.loading.samples import Samples
from shoestring.data.recipe import Recipe
from shoestring.pricing.throughput import PoolArrays, row_seconds, setup_seconds, uses_gpu
from shoestring.stages import evaluate as evaluate_stage
from shoestring.training.families.blend.settings import BlendSettings
from shoestring.training.families.boosted.settings import BoostedSettings
from shoestring.training.families.data_shape import DataShape, encoded_shape
from shoestring.training.families.gpu_needs import LOAD_BYTE_US, LOAD_US, OPERATION_US
from shoestring.training.families.image_net.learner import ImageNetKind
from shoestring.training.families.image_net.settings import ImageNetSettings
from shoestring.training.families.linear.settings import LinearSettings
from shoestring.training.families.recipe_needs import RecipeNeeds
from shoestring.training.families.registry import family_of
from shoestring.training.families.table_net.learner import TableNetKind
from shoestring.training.families.table_net.settings import TableNetSettings
from shoestring.training.families.text_net.settings import TextNetSettings
from shoestring.training.families.transformer.settings import TransformerSettings
from shoestring.training.frameworks.torch_.device import Device
from shoestring.training.frameworks.torch_.net_kind import NetKind, weight_bytes
from shoestring.training.frameworks.torch_.net_learner import NetLearner
from shoestring.training.frameworks.torch_.net_predictor import NetPredictor


class Operations(TorchDispatchMode):
    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += not func.is_view  # A view starts nothing on a device.
        return func(*args, **(kwargs or {}))


def categories(count: int) -> tuple[Encoding, Samples]:
    features = tuple(Feature(name=f"c{at}", kind="categorical", cardinality=9) for at in range(count))
    found = encoding_of(table(64, 0)).model_copy(update={"features": (*features, NUMBER)})
    fields = {"code": np.zeros((64, count), np.int32), "number": np.zeros((64, 1), np.float32)}
    return found, Samples({**fields, "target": np.zeros(64, np.int32)})


def table_net(count: int, layers: int) -> tuple[NetKind, Samples, DataShape]:
    described, given = categories(count)
    settings = TINY.model_copy(update={"hidden": (8,) * layers, "dropout": 0.1, "category_dropout": 0.1})
    return TableNetKind(described, settings), given, encoded_shape(described, 64)


def image_net(hidden: tuple[int, ...], convolutions: int) -> tuple[NetKind, Samples, DataShape]:
    given = squares(64, 0)
    settings = ImageNetSettings(hidden=hidden, convolutions=convolutions, shift=0, dropout=0.1)
    kind = ImageNetKind(encoding_for(given), settings)
    return kind, given, encoded_shape(encoding_for(given), 64)


def texts(settings: LearnerSettings) -> tuple[NetKind, Samples, DataShape]:
    return kind_of(settings), rows([b"abcabd" * 30] * 40), encoded_shape(encoding(), 64)


def text_net(layers: int) -> tuple[NetKind, Samples, DataShape]:
    return texts(TextNetSettings(hidden=(16,) * layers, dropout=0.1))


def transformer(layers: int) -> tuple[NetKind, Samples, DataShape]:
    return texts(SMALL.model_copy(update={"layers": layers, "dropout": 0.1}))


def counted(kind: NetKind, given: Samples) -> int:
    learner = NetLearner(kind, given, len(given), Device("meta", 0))
    batch = learner.prepare(given).part(0, 16)
    learner.step(batch, 0.01)
    with Operations() as found:
        learner.step(batch, 0.01)
    return found.count


@pytest.mark.parametrize(
    ("make", "arguments"),
    [
        *((table_net, (count, layers)) for count in (1, 5) for layers in (1, 3)),
        *((image_net, (widths, convolutions)) for widths in ((8,), (8, 16, 32)) for convolutions in (1, 2)),
        *((make, (layers,)) for make in (text_net, transformer) for layers in (1, 4)),
    ],
)
def test_the_operations_of_a_step_are_those_that_the_router_counts(make: Any, arguments: Any) -> None:
    kind, given, shape = make(*arguments)
    row_bytes = 2 * shape.row_tokens + 4 * (shape.numbers + len(shape.cardinalities)) + shape.pixels
    host_us = family_of(kind.settings).train_need(Need(stage="train"), shape).gpu_host_us_per_row
    step_us = (host_us - LOAD_US - LOAD_BYTE_US * row_bytes) * kind.settings.batch_rows
    assert step_us / OPERATION_US == pytest.approx(counted(kind, given), rel=0.15)


@pytest.mark.parametrize("make", [text_net, transformer])
@pytest.mark.parametrize("layers", [1, 4])
def test_the_operations_of_an_evaluation_are_those_that_the_router_counts(make: Any, layers: int) -> None:
    kind, given, shape = make(layers)
    predictor = NetPredictor(kind, weight_bytes(kind.new(given)), "meta")
    with Operations() as found, pytest.raises(NotImplementedError, match="copy out of meta"):
        predictor.predict(given)
    host_us = family_of(kind.settings).evaluate_need(Need(stage="evaluate"), shape).gpu_host_us_per_row
    batch_us = (host_us - LOAD_US - LOAD_BYTE_US * 2 * shape.row_tokens) * kind.rows_at_once
    assert batch_us / OPERATION_US == pytest.approx(found.count, rel=0.25)


CORES = Pool(name="cores", cores=8, memory_gb=32, markets={})
GPU = Pool(
    name="h100", cores=8, memory_gb=32, gpu="H100", gpu_count=1, gpu_memory_gb=80, gpu_tflops=989, markets={}
)
IMAGES = DataShape(60_000, image=(1, 28, 28), outputs=10)
FLIGHTS = DataShape(300_000, numbers=12, cardinalities=(17, 4, 106, 13, 20))
TEXTS = DataShape(20_000, row_tokens=256, vocabulary=256)


def speed_up(settings: LearnerSettings, shape: DataShape) -> float:
    """Return how many times as many rows a second an H100 trains as cores do."""
    need = family_of(settings).train_need(Need(stage="train"), shape)
    on_cores, on_gpu = row_seconds(need, PoolArrays.from_pools([CORES, GPU]))
    return float(on_cores / on_gpu)


def test_a_gpu_is_faster_by_what_a_step_computes() -> None:
    """Estimates, by the formula: a small network waits for the start of its operations, whatever the GPU."""
    small, images = speed_up(TableNetSettings(), FLIGHTS), speed_up(ImageNetSettings(), IMAGES)
    large = speed_up(TransformerSettings(width=512, layers=8, heads=8), TEXTS)
    assert 1 < small < 10 < images < large
    assert speed_up(TableNetSettings(batch_rows=8192), FLIGHTS) > 2 * small


def test_the_first_seconds_on_a_gpu_are_its_own() -> None:
    need = family_of(ImageNetSettings()).train_need(Need(stage="train", setup_s=4.5), IMAGES)
    assert setup_seconds(need, PoolArrays.from_pools([CORES, GPU])).tolist() == [4.5, 9.5]


def test_a_large_model_of_texts_is_evaluated_on_a_gpu_where_it_may_train_on_one() -> None:
    recipe = Recipe.model_validate(
        {
            "name": "a",
            "source": {"t": {"path": "/texts", "text": {"row_tokens": 256}}},
            "train": {"family": "transformer", "width": 512, "layers": 8, "heads": 8},
        }
    )
    needs = RecipeNeeds(recipe, rows=20_000, row_bytes=512)
    need = needs.of_stage(evaluate_stage.NEED)
    on_cores, on_gpu = row_seconds(need, PoolArrays.from_pools([CORES, GPU]))
    assert uses_gpu(need, GPU) and on_gpu < on_cores / 20
    whole = family_of(recipe.train).evaluate_need(evaluate_stage.NEED, needs.shape)
    # It reads the test split alone.
    assert need.gpu_flop_per_row == pytest.approx(whole.gpu_flop_per_row * recipe.split.test)
    without = replace(needs, on_gpus=False).of_stage(evaluate_stage.NEED)
    assert without.gpu == "no" and not without.gpu_flop_per_row
    assert without.cpu_us_per_row == need.cpu_us_per_row


@pytest.mark.parametrize("settings", [BoostedSettings(), LinearSettings(), BlendSettings()])
def test_other_families_stay_on_cores(settings: Any) -> None:
    need = family_of(settings).train_need(Need(stage="train"), FLIGHTS)
    assert need.gpu == "no" and not need.gpu_flop_per_row and not uses_gpu(need, GPU)
