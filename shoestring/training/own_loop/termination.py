"""SIGTERM as a request: the loop ends at its next batch instead of in the middle of one."""

from __future__ import annotations

import atexit
import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Self

PR_SET_PDEATHSIG = 1
LOADER_MODULES = ("torch.utils.data.dataloader", "torchdata.stateful_dataloader.stateful_dataloader")
"""In these, the iterator of a loader starts its workers when it is made."""


class Termination:
    """A context in which SIGTERM sets `requested`, and is passed to the handler of before.

    Python allows handlers only in the main thread: elsewhere, nothing changes. Contexts may be nested.

    `is_awaited`: the budget has ended, and SIGTERM follows while the script writes its results. A script
    without a handler of its own then ignores it, from the end of the context on. `is_within`: whether the
    code that a signal interrupts belongs to the training; elsewhere the handler of before is restored, and
    receives the signal.
    """

    def __init__(self) -> None:
        self.is_within: Callable[[FrameType | None], bool] = lambda frame: True
        self._has_ended: Callable[[], bool] = bool
        self.requested, self.is_awaited, self._depth = False, False, 0
        self._is_installed, self._pid = False, os.getpid()
        self._before: object = None
        self._inner: object = None

    def __enter__(self) -> Self:
        if self._depth == 0 and is_main_thread():
            self._before, self._pid = live_handler(), os.getpid()
            signal.signal(signal.SIGTERM, self._receive)
            self._inner, self._is_installed = self._before, True
        self._depth += 1
        return self

    def passes_to(self, handler: object) -> None:
        """Pass the signal to this handler instead of that of before, which is restored at the end."""
        self._inner = handler

    def __exit__(self, *error: object) -> None:
        self._depth -= 1
        # A generator that holds this context may be closed in any thread.
        if self._depth == 0 and self._is_installed and is_main_thread():
            self._is_installed = False
            # A handler that the script has set since then stays.
            if signal.getsignal(signal.SIGTERM) == self._receive:
                self._restore()
                self.ignore_if_awaited()

    def ignore_if_awaited(self) -> None:
        """Ignore the signal that is awaited, unless a context or the script handles it.

        By a handler: what the process starts, such as a pool, would inherit `SIG_IGN`, and hang at its end.
        """
        is_free = self._depth == 0 and is_main_thread() and live_handler() == signal.SIG_DFL
        if self.is_awaited and is_free:
            self._before, self._pid = signal.SIG_DFL, os.getpid()
            signal.signal(signal.SIGTERM, self._ignore)
            # Python takes its handlers away long before its process has ended.
            atexit.register(self._ignore_at_exit)
            outlive_parent()

    def ignore_after(self, has_ended: Callable[[], bool]) -> None:
        """Ignore the signal if the budget has ended when it comes; until then it ends the process.

        For a script that asks what is left, and ends at a moment of its own choice.
        """
        if self._depth == 0 and is_main_thread() and live_handler() == signal.SIG_DFL:
            self._before, self._pid, self._has_ended = signal.SIG_DFL, os.getpid(), has_ended
            signal.signal(signal.SIGTERM, self._end_unless_ended)

    def _end_unless_ended(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._pid:
            self._end_forked(number, frame)
        elif not self._has_ended():
            self._restore()
            os.kill(os.getpid(), number)

    def _ignore_at_exit(self) -> None:
        if signal.getsignal(signal.SIGTERM) == self._ignore:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def _ignore(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._pid:
            self._end_forked(number, frame)

    def _end_forked(self, number: int, frame: FrameType | None) -> None:
        """End a forked process, which has inherited the handler: its own `terminate()` must end it.

        A worker of a loader that has not left the group yet goes on: the signal was meant for its script.
        """
        if not is_made_by_loader(frame):
            self._restore()
            os.kill(os.getpid(), number)

    def _restore(self) -> None:
        is_known = callable(self._before) or isinstance(self._before, int)
        signal.signal(signal.SIGTERM, self._before if is_known else signal.SIG_DFL)  # type: ignore[arg-type]

    def _receive(self, number: int, frame: FrameType | None) -> None:
        is_forked = os.getpid() != self._pid
        self.requested = not is_forked and self.is_within(frame)
        if is_forked:
            self._end_forked(number, frame)
        elif not self.requested:
            self._restore()
            os.kill(os.getpid(), number)
        elif callable(self._inner):
            self._inner(number, frame)


def within_caller(module: str, function: str) -> Callable[[FrameType | None], bool]:
    """Return a test of whether a frame is inside that function, which has called this one."""
    frame: FrameType | None = sys._getframe()
    while frame and (frame.f_code.co_name, frame.f_globals.get("__name__")) != (function, module):
        frame = frame.f_back
    # A frame would keep the data of the training alive.
    code = frame.f_code if frame else None

    def is_within(frame: FrameType | None) -> bool:
        while frame is not None and code is not None:
            if frame.f_code is code:
                return True
            frame = frame.f_back
        return code is None

    return is_within


def live_handler() -> object:
    """Return the handler of SIGTERM, without those of trainings that have ended with an error."""
    found: object = signal.getsignal(signal.SIGTERM)
    while isinstance(owner := getattr(found, "__self__", None), Termination):
        if found != owner._end_unless_ended and owner.is_within(sys._getframe()):
            break
        found = owner._before
    return found


def is_made_by_loader(frame: FrameType | None) -> bool:
    """Return whether a forked process is a worker that a loader is making, by the frames of its parent."""
    while frame is not None:
        if frame.f_code.co_name == "__init__" and frame.f_globals.get("__name__") in LOADER_MODULES:
            return True
        frame = frame.f_back
    return False


def outlive_parent() -> None:
    """Receive no signal where the parent ends: it may be a script that only waits, which SIGTERM ends.

    torch.multiprocessing.spawn interrupts its processes then (PR_SET_PDEATHSIG, Linux only).
    """
    if sys.platform == "linux" and multiprocessing.parent_process() is not None:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0)


def is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
