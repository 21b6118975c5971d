"""Who speaks with the store for a frame, on threads of its own: a store that is away must keep no frame from its signals and its money."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from decimal import Decimal
from typing import Protocol

from shoestring.core.errors import StoreError

# How long an answer is waited for once it is due; its price is kept back from every reservation, so that nothing is unpaid when none comes.
ANSWER_TIMEOUT_S = 1.0


class ExtensionRequests(Protocol):
    """What is asked of a clerk about money."""

    def ask(self, request: Callable[[], Decimal]) -> None: ...

    def answer(self, within_s: float) -> Decimal | None: ...


class BackgroundIO:
    """One thread writes and another asks, each one thing after the other: what is written, and may be stuck, must not delay a question."""

    def __init__(self) -> None:
        self._writing = ThreadPoolExecutor(1, thread_name_prefix="clerk-writes")
        self._asking = ThreadPoolExecutor(1, thread_name_prefix="clerk-asks")
        self._noted: Future[None] | None = None
        self._asked: Future[Decimal] | None = None

    def note(self, write: Callable[[], object]) -> None:
        """Write something that may be left out: while the last is on its way, or if it cannot be written."""
        if self._noted is None or self._noted.done():
            self._noted = self._writing.submit(_ignore_store_errors, write)

    def prepare(self, read: Callable[[], object]) -> None:
        """Do something before whatever is asked next, if it can be done."""
        self._asking.submit(_ignore_store_errors, read)

    def ask(self, request: Callable[[], Decimal]) -> None:
        """Begin to ask, unless an answer is still to come."""
        if self._asked is None:
            self._asked = self._asking.submit(request)

    def answer(self, within_s: float) -> Decimal | None:
        """What the request returned, told once; None where nothing was asked, or no answer has come. Raises what the request raises."""
        if self._asked is None or not wait([self._asked], within_s).done:
            return None
        asked, self._asked = self._asked, None
        return asked.result()

    def close(self) -> None:
        """Until what is on its way is written: what comes next must not be overtaken by it."""
        self._asking.shutdown()
        self._writing.shutdown()


@contextmanager
def background_io() -> Iterator[BackgroundIO]:
    made = BackgroundIO()
    try:
        yield made
    finally:
        made.close()


def _ignore_store_errors(write: Callable[[], object]) -> None:
    with suppress(StoreError):
        write()
