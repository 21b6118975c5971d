"""One pass over a loader, from its beginning or from the batch at which an earlier attempt ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from shoestring.training.own_loop.loading.random_states import (
    loader_generators,
    random_states,
    set_random_states,
)

END = object()
"""Returned instead of a batch after the last one."""


class SkippingSampler:
    """A sampler, or a sampler of batches, whose first iteration leaves out the first `skipped`.

    `before` is called before the first is drawn, and `then` once the skipped ones are.
    """

    def __init__(
        self, inner: Any, skipped: int, before: Callable[[], None], then: Callable[[], None]
    ) -> None:
        self._inner, self._skipped, self._before, self._then = inner, skipped, before, then
        self._is_first = True

    def __iter__(self) -> Iterator[Any]:
        if not self._is_first:
            # Workers that persist keep this sampler for later passes, which are whole.
            yield from self._inner
            return
        self._is_first = False
        self._before()
        iterator = iter(self._inner)
        for _ in range(self._skipped):
            if next(iterator, END) is END:
                break
        if self._skipped:
            self._then()
        yield from iterator

    def __len__(self) -> int:
        return len(self._inner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def keeps_own_position(loader: Any) -> bool:
    """Return whether a loader saves and restores its own position, as torchdata's StatefulDataLoader."""
    # accelerate's loaders have the methods in any case.
    is_able = getattr(loader, "use_stateful_dataloader", True)
    return is_able and hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")


def inner_loader(loader: Any) -> Any:
    """Return the loader whose samplers an iteration reads: that inside one which accelerate has prepared."""
    return getattr(loader, "base_dataloader", loader)


def is_map_style(loader: Any) -> bool:
    return isinstance(loader, DataLoader) and not isinstance(loader.dataset, IterableDataset)


def batches_per_pass(loader: Any) -> int | None:
    """Return the batches of a pass, or None where the loader does not know them."""
    try:
        return len(loader)
    except (TypeError, NotImplementedError):
        return None


def rows_per_batch(loader: Any) -> int:
    """Return the rows of a batch; 1 where the loader does not state them, so that batches are counted."""
    rows = getattr(loader, "batch_size", None) or getattr(
        getattr(loader, "batch_sampler", None), "batch_size", None
    )
    return rows if isinstance(rows, int) and rows > 0 else 1


def rows_per_pass(loader: Any, rows: int) -> int:
    """Return the rows of a pass, where a batch has `rows` unless it is the last one."""
    try:
        return len(loader.sampler)
    except (AttributeError, TypeError):
        return rows * (batches_per_pass(loader) or 10**12)


def no_batches(loader: Any) -> str:
    """Return why a pass over a loader has no batch, and what to do."""
    if isinstance(loader, Iterator):
        return (
            f"a {type(loader).__name__} yields its batches once, and they are used up: pass budgeted() what "
            "each epoch can iterate again, such as the loader itself"
        )
    rows = rows_per_pass(loader, rows_per_batch(loader))
    if getattr(loader, "drop_last", False) and rows:
        return (
            f"the loader has no batches: drop_last=True leaves out its {rows:,} rows, which are less than a "
            f"batch of {rows_per_batch(loader):,}: name a smaller batch_size, or drop_last=False"
        )
    return f"this pass over a {type(loader).__name__} has no batches, so the budget would be spent on nothing"


class LoaderPass:
    """A pass over a loader. `state()` is what a later attempt needs to continue it.

    `saved`: the state of an earlier attempt, which had consumed `consumed` batches; `was_finished`: all.
    """

    def __init__(
        self,
        loader: Any,
        say: Callable[[str], None],
        saved: dict[str, Any] | None = None,
        consumed: int = 0,
        was_finished: bool = False,
    ) -> None:
        self._loader, self._say, self._is_unused = loader, say, True
        self._generators = loader_generators(loader)
        if saved is None:
            # Workers that persist keep their iterator: then the loader draws no seed for them.
            is_kept = getattr(inner_loader(loader), "_iterator", None) is not None
            self._began = self._before = {**self._states(), "is_kept": is_kept}
            self._iterator = iter(loader)
            return
        self._began, self._before = saved["began"], saved["now"]
        if was_finished:
            self._restore(saved["now"])
            self._load_own_position(saved)
            self._iterator = iter(())
        else:
            self._iterator = self._resumed(saved, consumed)

    def next(self) -> Any:
        self._is_unused = False
        return next(self._iterator, END)

    def end(self) -> None:
        """Let go of the loader's iterator, so that its workers end, unless they persist."""
        self._iterator = iter(())
        if self._is_unused:
            # A training that is done, and resumed, leaves its generators as it did before.
            self._restore(self._before)

    def state(self) -> dict[str, Any]:
        own = self._loader.state_dict() if keeps_own_position(self._loader) else None
        return {"began": self._began, "now": self._states(), "loader": own}

    def _states(self) -> dict[str, Any]:
        return {"random": random_states(), "generators": [each.get_state() for each in self._generators]}

    def _restore(self, states: dict[str, Any]) -> None:
        set_random_states(states["random"])
        for generator, state in zip(self._generators, states["generators"], strict=False):
            generator.set_state(state)

    def _load_own_position(self, saved: dict[str, Any]) -> None:
        if keeps_own_position(self._loader) and saved["loader"] is not None:
            self._loader.load_state_dict(saved["loader"])

    def _resumed(self, saved: dict[str, Any], consumed: int) -> Iterator[Any]:
        if keeps_own_position(self._loader):
            self._restore(saved["now"])
            self._load_own_position(saved)
            iterator: Iterator[Any] = iter(self._loader)
            # An iterator that begins draws seeds; the one before it had drawn its own.
            set_random_states(saved["now"]["random"])
            return iterator
        self._restore(saved["began"])

        # The loader's own generators have drawn the pass anew, so only the others are moved on.
        def move_on() -> None:
            set_random_states(saved["now"]["random"])

        if is_map_style(self._loader):
            return self._skipping(consumed, saved["began"], move_on)
        iterator = iter(self._loader)
        if consumed:
            self._say(
                f"the loader has no position of its own: {consumed} batches are read and dropped to continue "
                "where the training ended"
            )
            for _ in range(consumed):
                next(iterator, END)
            move_on()
        return iterator

    def _skipping(self, consumed: int, began: dict[str, Any], move_on: Callable[[], None]) -> Iterator[Any]:
        """Return an iterator of a map-style loader that loads none of the consumed batches."""
        loader = inner_loader(self._loader)
        name = "sampler" if loader.batch_sampler is None else "batch_sampler"
        sampler = getattr(loader, name)

        def draw_as_before() -> None:
            if began["is_kept"]:
                self._restore(began)

        # A loader refuses to have its samplers replaced after it was made, since its iterators would not
        # see it. This one is replaced back as soon as the iterator has taken it.
        object.__setattr__(loader, name, SkippingSampler(sampler, consumed, draw_as_before, move_on))
        try:
            found: Iterator[Any] = iter(self._loader)
            if loader is self._loader:
                return found
            # accelerate's iterator is a generator, which takes the samplers at its first batch.
            first = next(found, END)
            return iter(()) if first is END else chain([first], found)
        finally:
            object.__setattr__(loader, name, sampler)
