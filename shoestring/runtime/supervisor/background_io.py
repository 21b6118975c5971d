"""Access to store and cluster in threads of their own: one that does not answer must not delay signals or the
check of the money.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from decimal import Decimal
from typing import Protocol

from shoestring.config.world import World
from shoestring.core.errors import ClusterError, NotAllowed, StoreError
from shoestring.core.interfaces import EndNotice, EndNotices
from shoestring.core.pod_ref import ClusterPod
from shoestring.runtime.supervisor.attempt import Attempt
from shoestring.spending.ends import ENDED_SILENT, OUT_OF_MONEY
from shoestring.spending.exit_money import EXIT_S

WAKE_EVERY_S = 0.5
LOOK_EVERY_S = 3.0
UNKNOWN = "Without it, the stage learns only by a signal that its pod is to end"


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


class NoticeWatch:
    """Looks for the notice that this pod is to end, which it gets before the first signal if it has a
    hook for it. Kubeflow's launcher dies of SIGTERM at once, and the container with it.
    """

    def __init__(self, world: World) -> None:
        self._world, self._looked_s = world, -math.inf
        self._found: EndNotice | None = None

    def look(self) -> bool:
        """Ask once; return whether to ask again: the pod may still get a notice."""
        cluster, pod, asked_s = self._world.cluster, self._world.pod, self._world.clock.monotonic_s()
        if not (isinstance(cluster, EndNotices) and isinstance(pod, ClusterPod)):
            return False
        try:
            notice = cluster.end_notice(pod)
        except NotAllowed as error:
            print(f"shoestring: {error}. {UNKNOWN}", file=sys.stderr, flush=True)
            return False
        except ClusterError:
            return True
        if notice.notice_s and notice.reason:
            self._found = notice
            return False
        self._looked_s = asked_s
        return notice.notice_s > 0

    def stop_if_noticed(self, attempt: Attempt) -> None:
        """Stop the attempt once its pod is to end, so that it settles before the first signal. The seconds of
        the notice count from the look before the one that found it.
        """
        if self._found is None:
            return
        reason = self._found.reason
        if reason.startswith(OUT_OF_MONEY):
            attempt.stop(reason, "money")
        else:
            attempt.stop(reason, "silent" if reason.startswith(ENDED_SILENT) else "stop-requested")
        signal_s = self._looked_s + self._found.notice_s
        attempt.kill_s = signal_s - EXIT_S - attempt.expected_exit_s


def watch_notices(world: World, ended: threading.Event) -> NoticeWatch:
    """Return a watch that looks, in a thread, until the event is set."""
    watch = NoticeWatch(world)

    def run() -> None:
        while watch.look() and not ended.wait(LOOK_EVERY_S):
            pass

    threading.Thread(target=run, name="end-notices", daemon=True).start()
    return watch
