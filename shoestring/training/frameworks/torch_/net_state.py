"""States of a network to return to: a marked one, in the memory of its device, and stored ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from shoestring.training.contracts import Deferred
from shoestring.training.frameworks.torch_.net_kind import from_bytes, to_bytes


class MarkedTensors:
    """The values of some tensors at the last mark."""

    def __init__(self) -> None:
        self._kept = list[Tensor]()

    @torch.no_grad()
    def mark(self, tensors: Sequence[Tensor]) -> None:
        """Keep the values that the tensors have now. The memory of an earlier mark is used again."""
        if len(self._kept) != len(tensors):
            self._kept = [each.detach().clone() for each in tensors]
        else:
            for kept, now in zip(self._kept, tensors, strict=True):
                kept.copy_(now)

    @torch.no_grad()
    def go_back(self, tensors: Sequence[Tensor]) -> None:
        """Give the same tensors the values that they had."""
        for now, kept in zip(tensors, self._kept, strict=True):
            now.copy_(kept)


class NetState(Deferred):
    """The state of a `NetLearner`: tensors, until they are asked for as bytes, then these alone."""

    def __init__(self, content: dict[str, Any]) -> None:
        super().__init__(self._to_bytes)
        self._content: dict[str, Any] | None = content

    def _to_bytes(self) -> bytes:
        data, self._content = to_bytes(self.content()), None
        return data

    def content(self) -> dict[str, Any]:
        return from_bytes(self.data) if self._content is None else self._content
