"""The noise of the gradient in a loop of one's own, from pairs of successive steps of its optimizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from shoestring.training.control.noise import DENSE_EVERY, DENSE_STEPS, LATER_EVERY, NOT_MEASURED
from shoestring.training.curve import NoiseScale
from shoestring.training.frameworks.torch_.gradients.comparison import (
    Comparison,
    adam_scale,
    compared,
    gradient,
)

MOST_VALUES = 20_000_000
"""No larger gradient is copied: the memory is the script's."""


class StepPairs:
    """Compares the gradients of some successive steps. It reads them only.

    Both are of batches of one size. The weights move between them, so a high learning rate makes the scale
    larger than it is: by 5 to 70% in a quadratic.
    """

    def __init__(self, optimizer: Optimizer, seen: Callable[[], int]) -> None:
        """`seen`: rows trained so far, on all ranks."""
        self._seen = seen
        self._steps = self._seen_before = 0
        self._first: Tensor | None = None
        self._first_rows = 0
        self._compared = list[Comparison]()
        self._noise = NOT_MEASURED
        optimizer.register_step_pre_hook(self._before_step)

    @property
    def scale(self) -> NoiseScale | None:
        """The noise scale so far; None: it is not known yet. It waits for the device."""
        found, self._compared = self._compared, []
        self._noise = self._noise.after([each.read() for each in found])
        return self._noise.scale

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self._steps += 1
        every = DENSE_EVERY if self._steps <= DENSE_STEPS else LATER_EVERY
        # The rows of a pair's first step are those since the step before.
        if self._first is None and (self._steps + 1) % every > 1:
            return
        seen = self._seen()
        rows, self._seen_before = seen - self._seen_before, seen
        first, self._first = self._first, None
        if first is not None:
            self._end_pair(optimizer, first, rows)
        elif rows > 0 and self._steps % every == 0:
            self._first, self._first_rows = _gradient(optimizer), rows

    @torch.no_grad()
    def _end_pair(self, optimizer: Optimizer, first: Tensor, rows: int) -> None:
        """Compare the gradient with that of the step before, unless its batch had another size."""
        second = _gradient(optimizer) if rows == self._first_rows else None
        if second is not None and len(second) == len(first):
            scale = adam_scale(optimizer, _weights(optimizer), self._steps - 1)
            self._compared.append(Comparison(self._seen_before, rows, compared(first, second, scale)))


def _weights(optimizer: Optimizer) -> list[Tensor]:
    return [each for group in optimizer.param_groups for each in group["params"] if each.requires_grad]


def _gradient(optimizer: Optimizer) -> Tensor | None:
    """Return the gradient; None: it is sparse, too large, or on several devices."""
    weights = _weights(optimizer)
    is_dense = all(each.grad is None or not each.grad.is_sparse for each in weights)
    is_small = 0 < sum(each.numel() for each in weights) <= MOST_VALUES
    is_together = len({each.device for each in weights}) == 1
    return gradient(weights) if is_dense and is_small and is_together else None
