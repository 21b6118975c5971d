"""Store access of a supervisor in threads of its own: an unreachable store must not delay signals or the
check of the money.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from decimal import Decimal
from typing import Protocol

from shoestring.core.errors import StoreError

WAKE_EVERY_S = 0.5


class ExtensionRequests(Protocol):
    """Requests for more money, and their answers."""

    def ask(self, request: Callable[[], Decimal]) -> None: ...

    def answer(self, within_s: float) -> Decimal | None: ...


class BackgroundIO:
    """Three threads, each of which does one thing after another: one writes, one checks, one reads and asks.

    None of them delays another: a store that answers a check late makes no stage look silent. `meanwhile` is
    called twice a second while an answer is awaited.
    """

    def __init__(self) -> None:
        self.meanwhile: Callable[[], object] = lambda: None
        self._writing = ThreadPoolExecutor(1, thread_name_prefix="background-writes")
        self._checking = ThreadPoolExecutor(1, thread_name_prefix="background-checks")
        self._asking = ThreadPoolExecutor(1, thread_name_prefix="background-requests")
        self._last_write: Future[None] | None = None
        self._last_check: Future[None] | None = None
        self._request: Future[Decimal] | None = None

    def write(self, write: Callable[[], object]) -> None:
        """Start a write that may be dropped: it is while the last one is under way, or if the store fails."""
        if self._last_write is None or self._last_write.done():
            self._last_write = self._writing.submit(_ignore_store_errors, write)

    def check(self, check: Callable[[], object]) -> None:
        """Start a check that may be dropped, as a write may."""
        if self._last_check is None or self._last_check.done():
            self._last_check = self._checking.submit(_ignore_store_errors, check)

    def prepare(self, read: Callable[[], object]) -> None:
        """Do something before the next request. Errors of the store are ignored."""
        self._asking.submit(_ignore_store_errors, read)

    def ask(self, request: Callable[[], Decimal]) -> None:
        """Start a request, unless one is under way."""
        if self._request is None:
            self._request = self._asking.submit(request)

    def answer(self, within_s: float) -> Decimal | None:
        """Return the result of the request, once; None: there is no request, or no answer yet.

        Raises what the request raises.
        """
        if self._request is None:
            return None
        left_s = within_s
        while not wait([self._request], min(left_s, WAKE_EVERY_S)).done:
            left_s -= WAKE_EVERY_S
            if left_s <= 0:
                return None
            self.meanwhile()
        request, self._request = self._request, None
        return request.result()

    def close(self) -> None:
        """Wait until everything under way is done, so that nothing overtakes it."""
        self._asking.shutdown()
        self._checking.shutdown()
        self._writing.shutdown()


@contextmanager
def background_io() -> Iterator[BackgroundIO]:
    """Yield a BackgroundIO, and close it at the end."""
    io = BackgroundIO()
    try:
        yield io
    finally:
        io.close()


def _ignore_store_errors(action: Callable[[], object]) -> None:
    with suppress(StoreError):
        action()
