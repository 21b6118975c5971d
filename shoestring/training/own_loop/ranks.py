"""Processes that train together: the first decides, and the others do the same at the same step."""

from __future__ import annotations

import atexit
from contextlib import suppress
from typing import Any
from weakref import WeakSet

import torch
from torch import distributed

from shoestring.core.errors import UsageError


class Ranks:
    """The processes of a training that torch.distributed has started. One process alone: nothing is sent."""

    def __init__(self) -> None:
        self.world_size = distributed.get_world_size() if is_distributed() else 1
        self.rank = distributed.get_rank() if self.world_size > 1 else 0
        # Decisions are small and made on the CPU: with gloo no GPU waits for them.
        self._group = distributed.new_group(backend="gloo") if self.world_size > 1 else None
        if self._group is not None:
            _OPEN.add(self)

    def close(self) -> None:
        """Wait until the threads of the group have ended. Nothing can be sent afterwards."""
        group, self._group = self._group, None
        # The script may have destroyed it with all others.
        with suppress(ValueError, AssertionError):
            distributed.destroy_process_group(group)

    def from_first(self, numbers: tuple[float, ...]) -> tuple[float, ...]:
        """Return the numbers of the first rank on all ranks."""
        if self._group is None:
            return numbers
        message = torch.tensor(numbers, dtype=torch.float64)
        distributed.broadcast(message, src=0, group=self._group)
        return tuple(message.tolist())

    def agree(self, answer: bool) -> bool:
        return bool(self.from_first((float(answer),))[0])

    def text_from_first(self, text: str) -> str:
        """Return a text of the first rank on all ranks."""
        if self._group is None:
            return text
        texts: list[Any] = [text]
        distributed.broadcast_object_list(texts, src=0, group=self._group)
        return str(texts[0])

    def gathered(self, own: Any) -> list[Any]:
        """Return the values of all ranks on the first, and an empty list on the others."""
        if self._group is None:
            return [own]
        found: list[Any] | None = [None] * self.world_size if self.rank == 0 else None
        distributed.gather_object(own, found, dst=0, group=self._group)
        return found or []


_OPEN: WeakSet[Ranks] = WeakSet()


@atexit.register
def _close_all() -> None:
    """A thread of gloo that frees a tensor once Python has begun to end ends the process by SIGABRT,
    "terminate called without an active exception" (github.com/pytorch/pytorch/pull/179291).
    """
    for ranks in tuple(_OPEN):
        ranks.close()


def is_distributed() -> bool:
    return bool(distributed.is_available() and distributed.is_initialized())


def check_same(found: bool, where: str) -> None:
    """Raise UsageError on a rank that cannot read what the first rank has read."""
    if not found:
        raise UsageError(f"{where} cannot be read on all ranks: name a folder that all of them share")
