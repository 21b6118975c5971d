"""SIGTERM as a request: the loop ends at its next batch instead of in the middle of one."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Self


class Termination:
    """A context in which SIGTERM sets `requested`, and is passed to the handler of before.

    Python allows handlers only in the main thread: elsewhere, nothing changes. Contexts may be nested.

    `is_awaited`: the budget has ended, and SIGTERM follows while the script writes its results. A script
    without a handler of its own ignores it from the end of the context on. `is_within`: whether the code that
    a signal interrupts belongs to the training; elsewhere the handler of before is restored, and receives the
    signal.
    """

    def __init__(self) -> None:
        self.is_within: Callable[[FrameType | None], bool] = lambda frame: True
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
                if self.is_awaited and self._before == signal.SIG_DFL:
                    signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def _restore(self) -> None:
        is_known = callable(self._before) or isinstance(self._before, int)
        signal.signal(signal.SIGTERM, self._before if is_known else signal.SIG_DFL)  # type: ignore[arg-type]

    def _receive(self, number: int, frame: FrameType | None) -> None:
        is_own = os.getpid() == self._pid and self.is_within(frame)
        self.requested = is_own
        if not is_own:
            # A forked process inherits this handler, and its own terminate() must end it.
            self._restore()
            os.kill(os.getpid(), number)
        elif callable(self._inner):
            self._inner(number, frame)


def live_handler() -> object:
    """Return the handler of SIGTERM, without those of trainings that have ended with an error."""
    found: object = signal.getsignal(signal.SIGTERM)
    while isinstance(owner := getattr(found, "__self__", None), Termination):
        if owner.is_within(sys._getframe()):
            break
        found = owner._before
    return found


def is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


class PatientWorker:
    """Initialises a worker of a loader so that it survives the first SIGTERM, and not the second.

    A signal to the process group reaches the workers, too. Without them, PyTorch would end the step that runs
    with an error. `inner`: the script's own function for it.
    """

    def __init__(self, inner: Callable[[int], None] | None) -> None:
        self._inner = inner

    def __call__(self, worker: int) -> None:
        signal.signal(signal.SIGTERM, lambda number, frame: signal.signal(number, signal.SIG_DFL))
        if self._inner is not None:
            self._inner(worker)
