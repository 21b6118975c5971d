"""Who writes to the store for a frame, on a thread of its own: a store that is away must keep no frame from its signals and its money."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress

from shoestring.errors import StoreError

# What an answer may take; its price is kept back from every reservation, so that nothing is unpaid when none comes.
ANSWER_S = 1.0


class Clerk:
    """Does one thing after the other. A store keeps trying for two minutes, and whoever asked may not wait that long."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="clerk")
        self._noted: Future[None] | None = None

    def note(self, write: Callable[[], object]) -> None:
        """Write something that may be left out: while the last is on its way, or if it cannot be written."""
        if self._noted is None or self._noted.done():
            self._noted = self._thread.submit(_or_not, write)

    def ask(self, request: Callable[[], object]) -> bool:
        """Did it happen within ANSWER_S? It may happen later, then unheard. Raises what the request raises."""
        asked = self._thread.submit(request)
        done, _ = wait([asked], ANSWER_S)
        if done:
            asked.result()
        return bool(done)

    def close(self) -> None:
        """Until what is on its way is written: what comes next must not be overtaken by it."""
        self._thread.shutdown()


@contextmanager
def clerk() -> Iterator[Clerk]:
    made = Clerk()
    try:
        yield made
    finally:
        made.close()


def _or_not(write: Callable[[], object]) -> None:
    with suppress(StoreError):
        write()
