"""A loader inside a budget, in the place of the script's loader."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

from shoestring.training.own_loop.loop_session import batches_in_budget
from shoestring.training.own_loop.loop_state import LoopState
from shoestring.training.own_loop.trained import Trained

Batch = TypeVar("Batch")


class BudgetedLoader(Generic[Batch]):
    """Yields the batches of a loader, a pass for each iteration. Its length and what else it has are the
    loader's own.
    """

    def __init__(self, loader: Iterable[Batch], trained: Trained, loop: LoopState, steps: int | None) -> None:
        self._loader, self._trained, self._loop, self._steps = loader, trained, loop, steps

    def __iter__(self) -> Iterator[Batch]:
        return batches_in_budget(self._loader, self._trained, self._loop, self._steps)

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            # While it is copied or pickled, it has no loader yet.
            raise AttributeError(name)
        return getattr(self._loader, name)
