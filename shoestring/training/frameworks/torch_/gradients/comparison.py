"""The comparison of two gradients, element by element, with Adam's preconditioner."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from shoestring.training.curve import Halves


class Comparison(NamedTuple):
    """`Halves`, which a device still computes. `sums`: product and difference, float64[2]."""

    seen: int
    rows: int
    sums: Tensor

    def read(self) -> Halves:
        product, difference = self.sums.tolist()
        return Halves(self.seen, self.rows, product, difference)


def flat(tensors: Sequence[Tensor]) -> Tensor:
    """Return the values of tensors as one: float32[values]."""
    return torch.cat([each.detach().reshape(-1).float() for each in tensors])


def gradient(weights: Sequence[Tensor]) -> Tensor:
    """Return the gradient of weights as one tensor, of those that have none zeros."""
    return flat([torch.zeros_like(each) if each.grad is None else each.grad for each in weights])


class AdamScale(NamedTuple):
    """Adam's factor of each element's gradient, without its learning rate: `factor` times `values`,
    float32[values]. Elements without a gradient so far have none: zero."""

    factor: float
    values: Tensor


def adam_scale(optimizer: Optimizer, weights: Sequence[Tensor], steps: float) -> AdamScale | None:
    """Return the scale after a number of steps; None: the optimizer has no mean of squares."""
    group = optimizer.param_groups[0]
    squares = [optimizer.state.get(each, {}).get("exp_avg_sq") for each in weights]
    if "betas" not in group or any(each is None for each in squares):
        return None
    # sqrt(v / c) + epsilon is (sqrt(v) + epsilon sqrt(c)) / sqrt(c): one pass less over all values.
    factor = math.sqrt(1 - group["betas"][1] ** steps)
    values = flat([each for each in squares if each is not None]).sqrt_()
    is_seen = values > 0
    return AdamScale(factor, values.add_(group["eps"] * factor).reciprocal_().mul_(is_seen))


def compared(first: Tensor, second: Tensor, scale: AdamScale | None) -> Tensor:
    """Return the scalar product of two gradients and the squared norm of their difference: float64[2]. It
    changes `first`."""
    factor, values = scale or AdamScale(1.0, torch.ones_like(first))
    weighted = first * values
    product = torch.dot(weighted, second)
    difference = first.sub_(second)
    return (
        torch.stack([product, torch.dot(torch.mul(difference, values, out=weighted), difference)]).double()
        * factor
    )
