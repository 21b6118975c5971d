"""The gradients of a batch's two halves, compared."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.optim import AdamW

from shoestring.training.frameworks.torch_.gradients.comparison import (
    Comparison,
    adam_scale,
    compared,
    gradient,
)


class HalfGradients:
    """Compares the two halves of some batches' gradients, as Adam scales them before the step."""

    def __init__(self, weights: Sequence[nn.Parameter], optimizer: AdamW) -> None:
        self._weights = [weight for weight in weights if weight.requires_grad]
        self._optimizer = optimizer
        self._first: Tensor | None = None

    def end_first(self) -> None:
        """Keep the gradient of the first half, which is all that was computed so far."""
        self._first = gradient(self._weights)

    @torch.no_grad()
    def compared(self, seen: int, rows: int, steps: int) -> Comparison:
        """Return the comparison, when the gradient is that of the batch. `seen`: rows trained before it;
        `rows`: of a half; `steps`: of the optimizer so far, at least one."""
        assert self._first is not None
        first, self._first = self._first, None
        # Both are halves of the batch's mean.
        second = gradient(self._weights).sub_(first)
        scale = adam_scale(self._optimizer, self._weights, steps)
        return Comparison(seen, rows, 4 * compared(first, second, scale))
