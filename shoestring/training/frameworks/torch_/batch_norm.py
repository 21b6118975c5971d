"""Batch normalisation whose moments move once a step, in however many parts its batch is computed."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

NEW_SHARE = 0.1
"""The share of a step in the mean and variance that predictions use."""


class BatchNorm(nn.Module):
    """Batch normalisation (Ioffe and Szegedy 2015) whose mean and variance are parameters without a gradient:
    so the average of the weights has their average, too."""

    def __init__(self, channels: int, epsilon: float) -> None:
        """`epsilon`: is added to a variance."""
        super().__init__()
        self.epsilon = epsilon
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))
        self.mean = nn.Parameter(torch.zeros(channels), requires_grad=False)
        self.variance = nn.Parameter(torch.ones(channels), requires_grad=False)
        self.is_new, self._parts = True, 1
        self._moments: list[tuple[Tensor, Tensor]] = []

    def _load_from_state_dict(self, *args: Any) -> None:
        super()._load_from_state_dict(*args)
        self.is_new = not self.mean.any()

    def begin_step(self, parts: int, *, is_first: bool) -> None:
        """Begin a step whose batch is computed in parts, each normalised by its own mean and variance.
        `is_first`: of the training; it may begin again, where memory has ended in it."""
        self._parts, self._moments = parts, []
        self.is_new = self.is_new or is_first

    @torch.no_grad()
    def end_step(self) -> None:
        """Move mean and variance by those of all parts."""
        if not self._moments:
            return
        share = self._share()
        for own, found in zip((self.mean, self.variance), zip(*self._moments, strict=True), strict=True):
            own.lerp_(torch.stack(found).mean(0), share)
        self.is_new, self._moments = False, []

    def _share(self) -> float:
        # The first batch replaces the initial mean and variance: a tenth of these would be most of the
        # average over the first steps.
        return 1.0 if self.is_new else NEW_SHARE

    def forward(self, h_BCHW: Tensor) -> Tensor:
        # One value a channel has no variance.
        uses_batch = self.training and h_BCHW.numel() > h_BCHW.shape[1]
        weights = self.weight, self.bias
        if uses_batch and self._parts > 1:
            moments = torch.zeros_like(self.mean), torch.ones_like(self.variance)
            self._moments.append(moments)
            return F.batch_norm(h_BCHW, *moments, *weights, True, 1.0, self.epsilon)
        share = self._share()
        self.is_new = self.is_new and not uses_batch
        return F.batch_norm(h_BCHW, self.mean, self.variance, *weights, uses_batch, share, self.epsilon)
