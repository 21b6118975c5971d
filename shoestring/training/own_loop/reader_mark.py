"""The mark that a process leaves beside its budget file, with its exit code: a meter is not its parent.

A training that a shell, make or torchrun started is a child of these. Its meter learns from its mark whether
it ended well, where its parent ends by the signal.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from pathlib import Path

from shoestring.spending.budget_file import END_SUFFIX, readers_folder

_marked = set[Path]()


def leave_mark(budget_file: Path) -> None:
    """Leave an empty file named by the process id, to which the exit code is written as one byte.

    Nothing is left where the meter keeps no readers. Python itself tells no code to its exit handlers: a
    function of the C library is called with it. Where the library has no `on_exit` (musl, macOS), or the
    process is killed, the file stays empty.
    """
    path = readers_folder(budget_file) / str(os.getpid())
    if path in _marked or not path.parent.is_dir():
        return
    _marked.add(path)
    with suppress(OSError, AttributeError):
        path.touch()
        libc = ctypes.CDLL(None)
        libc.fopen.restype = ctypes.c_void_p
        # Opened to append, and closed by what the process executes instead of itself.
        stream = ctypes.c_void_p(libc.fopen(os.fsencode(path), b"ae"))
        if not stream.value:
            return
        # The code is written at once: what ends after this may crash.
        libc.setbuf(stream, None)
        # Both take an int and a pointer: on_exit(3) calls fputc(code, stream).
        libc.on_exit(libc.fputc, stream)
        number = libc.fileno(stream)
        os.register_at_fork(after_in_child=lambda: _close(number))


def mark_end(budget_file: Path) -> None:
    """Leave a second mark: the process has seen the end of its budget, and writes its results."""
    path = readers_folder(budget_file) / f"{os.getpid()}{END_SUFFIX}"
    if path.parent.is_dir():
        with suppress(OSError):
            path.touch()


def _close(number: int) -> None:
    """Let a forked child, which ends with a code of its own, write elsewhere."""
    with suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        os.dup2(nowhere, number, inheritable=False)
        os.close(nowhere)
