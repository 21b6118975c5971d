"""The family of networks for images."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoestring.core.types import Need
from shoestring.training.contracts import Learner, Predictor
from shoestring.training.families.data_shape import DataShape
from shoestring.training.families.gpu_needs import StepSize, on_gpu
from shoestring.training.families.image_net.layers import layers_of
from shoestring.training.families.image_net.settings import ImageNetSettings
from shoestring.training.families.registry import OneFile

if TYPE_CHECKING:
    from shoestring.core.datasets import Encoding
    from shoestring.training.task import TrainingTask

TRAIN_US, TRAIN_PIXEL_US, TRAIN_VALUE_US, TRAIN_PRODUCT_US = 10.0, 0.0024, 0.0085, 3.1e-5
"""Microseconds of a reference core for a row in training: in any case, for each value of the image and of the
maps, and for each product of a weight, with validations and checkpoints. `bench/family_cost.py` measures
them."""

EVALUATE_US, EVALUATE_VALUE_US, EVALUATE_PRODUCT_US = 20.0, 0.0017, 3.1e-5
"""The same for a prediction: in any case, for each value of the windows, and for each product."""

MEMORY_GB, TRAIN_COPIES = 0.7, 6
"""The memory of any training, and the copies of each value of the maps of a batch: of the convolution, its
normalisation and its ReLU, and their gradients."""

OPERATIONS, LAYER_OPERATIONS = 60, 15
"""Operations of a step: in any case, and for each layer."""


class ImageNetFamily(OneFile[ImageNetSettings]):
    """A convolutional network. A `Family`."""

    settings_type = ImageNetSettings
    weights_file = "weights.safetensors"
    onnx_converter = "shoestring.training.families.image_net.onnx_net:add_net"

    def train_need(self, need: Need, shape: DataShape) -> Need:
        layers = layers_of(self.settings, shape.image)
        values, products = sum(each.values for each in layers), sum(each.products for each in layers)
        micros = TRAIN_US + TRAIN_PIXEL_US * shape.pixels
        micros += TRAIN_VALUE_US * values + TRAIN_PRODUCT_US * products
        memory_gb = MEMORY_GB + 4 * TRAIN_COPIES * self.settings.batch_rows * values / 1e9
        batch, operations = self.settings.batch_rows, OPERATIONS + LAYER_OPERATIONS * len(layers)
        size = StepSize(products, values, operations, shape.pixels, batch)
        return need.model_copy(
            update={
                "cpu_us_per_row": round(micros, 3),
                "memory_fixed_gb": round(memory_gb, 3),
                **on_gpu(size, TRAIN_COPIES),
            }
        )

    def evaluate_need(self, need: Need, shape: DataShape) -> Need:
        layers = layers_of(self.settings, shape.image)
        values, products = sum(each.window_values for each in layers), sum(each.products for each in layers)
        micros = EVALUATE_US + EVALUATE_VALUE_US * values + EVALUATE_PRODUCT_US * products
        return need.model_copy(update={"cpu_us_per_row": round(need.cpu_us_per_row + micros, 3)})

    def learner(self, task: TrainingTask) -> Learner:
        from shoestring.training.families.image_net.learner import ImageNetKind
        from shoestring.training.frameworks.torch_.net_learner import NetLearner

        return NetLearner.of_task(task, ImageNetKind(task.encoding, self.settings))

    def predictor(self, encoding: Encoding, weights: bytes, device: str = "cpu") -> Predictor:
        if device == "cpu":
            from shoestring.training.families.image_net.predictor import ImageNetPredictor

            return ImageNetPredictor(encoding, self.settings, weights)
        from shoestring.training.families.image_net.learner import ImageNetKind
        from shoestring.training.frameworks.torch_.net_predictor import NetPredictor

        return NetPredictor(ImageNetKind(encoding, self.settings), weights, device)
