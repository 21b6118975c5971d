"""A limit of the gradient's norm that follows the norm itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

MAX_NORM = 1.0
"""The limit in the first steps, and the highest one later."""

BLOCK_STEPS, LEAST_BLOCKS = 16, 3
"""The limit changes after each block of steps, and is the norm's own after three."""

KEPT_PER_BLOCK = 0.9
"""The weight that a block keeps at the next one: it counts half after about a hundred steps."""

QUANTILE = 3.29
"""Of the normal distribution: one step in a thousand is outside, on either side."""


class NormLimit:
    """Clips gradients to the upper end of the 99.9% interval of their own norm, whose logarithm is taken as
    normal.

    The limit changes with the number of steps alone, so it is the same on any device, and nothing waits for a
    device. A norm that is not finite has no part in it.
    """

    def __init__(self, device: torch.device) -> None:
        self._mean = self._variance = torch.zeros((), dtype=torch.float64, device=device)
        self._limit = torch.full((), MAX_NORM, device=device)
        self._blocks, self._weight = 0, 0.0
        self._block = list[Tensor]()
        self._since_mark = list[tuple[Tensor, Tensor | None]]()

    def clip(self, weights: Sequence[nn.Parameter]) -> Tensor:
        """Clip the gradients of weights, and return their norm before."""
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        norm: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        torch._foreach_mul_(gradients, (self._limit / (norm + 1e-6)).clamp(max=1.0))
        self._since_mark.append((norm, self._limit if self._blocks >= LEAST_BLOCKS else None))
        self._block.append(norm)
        if len(self._block) == BLOCK_STEPS:
            self._end_block(torch.stack(self._block))
        return norm

    def _end_block(self, norms: Tensor) -> None:
        """Move mean and variance by the norms of a block, each at most at the limit."""
        kept = self._weight * KEPT_PER_BLOCK
        share = 1 / (kept + 1)
        known = torch.minimum(norms, self._limit).clamp(min=torch.finfo(norms.dtype).tiny)
        logs = torch.where(norms.isfinite(), known.double().log(), self._mean)
        mean, variance = logs.mean(), logs.var(correction=0)
        gap = mean - self._mean
        self._variance = (1 - share) * (self._variance + share * gap.square()) + share * variance
        self._mean = self._mean + share * gap
        self._weight, self._blocks, self._block = kept + 1, self._blocks + 1, []
        if self._blocks >= LEAST_BLOCKS:
            self._limit = (self._mean + QUANTILE * self._variance.sqrt()).exp().clamp(max=MAX_NORM).float()

    def mark(self) -> None:
        """Begin to count again."""
        self._since_mark = []

    def read(self) -> tuple[float | None, int]:
        """Return the mean of the finite norms since the mark, and how many were above the limit of their own.
        It waits for the device."""
        if not self._since_mark:
            return None, 0
        norms: list[float] = torch.stack([norm for norm, _ in self._since_mark]).tolist()
        limits = {id(limit): float(limit) for _, limit in self._since_mark if limit is not None}
        own = [float("inf") if limit is None else limits[id(limit)] for _, limit in self._since_mark]
        finite = [norm for norm in norms if norm < float("inf")]
        clipped = sum(norm > limit for norm, limit in zip(norms, own, strict=True))
        return (sum(finite) / len(finite) if finite else None), clipped

    def state(self) -> dict[str, Any]:
        """Return what later steps depend on. No tensor of it changes later."""
        return {
            "mean": self._mean,
            "variance": self._variance,
            "limit": self._limit,
            "blocks": self._blocks,
            "weight": self._weight,
            "block": list(self._block),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Return to a state, which may be of another device."""
        device = self._limit.device
        self._mean, self._variance = state["mean"].to(device), state["variance"].to(device)
        self._limit, self._block = state["limit"].to(device), [each.to(device) for each in state["block"]]
        self._blocks, self._weight = state["blocks"], state["weight"]
