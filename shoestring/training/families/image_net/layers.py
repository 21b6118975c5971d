"""The convolutions of a network for images, from its settings and the shape of an image."""

from __future__ import annotations

from typing import NamedTuple

from shoestring.training.families.image_net.settings import ImageNetSettings

PADDING = 1


class Layer(NamedTuple):
    """A convolution. `pool`: the height and width of the maxima that it reads; `height` and `width`: of its
    output. `is_residual`: its input is added to its output."""

    inputs: int
    outputs: int
    kernel: int
    stride: int
    pool: tuple[int, int]
    height: int
    width: int
    is_residual: bool

    @property
    def values(self) -> int:
        """Values of the output."""
        return self.outputs * self.height * self.width

    @property
    def window_values(self) -> int:
        """Values of all windows that are read."""
        return self.inputs * self.kernel**2 * self.height * self.width

    @property
    def products(self) -> int:
        """Multiplications for an image."""
        return self.window_values * self.outputs


def layers_of(settings: ImageNetSettings, shape: tuple[int, ...]) -> tuple[Layer, ...]:
    """Return the layers for images of a shape: channels, height and width."""
    channels, height, width = shape
    stride = settings.stride_for(height, width)
    height, width, (inputs, *_) = height // stride, width // stride, settings.hidden
    layers = [Layer(channels, inputs, stride + 2, stride, (1, 1), height, width, is_residual=False)]
    for at, outputs in enumerate(settings.hidden):
        for number in range(settings.convolutions):
            pool = (min(2, height), min(2, width)) if at and not number else (1, 1)
            height, width = height // pool[0], width // pool[1]
            layers.append(Layer(inputs, outputs, 3, 1, pool, height, width, is_residual=inputs == outputs))
            inputs = outputs
    return tuple(layers)
