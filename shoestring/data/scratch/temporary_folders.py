"""Temporary folders, and the removal of those whose processes were killed.

The processes that use a folder hold a shared lock on it, which the kernel releases when the last of them has
ended, in whatever way. So a folder whose exclusive lock can be taken is left over. That is also true between
the containers of one machine, which do not see each other's processes. The name of a folder has the boot and
the host that made it: another machine that mounts the same volume does not see its lock.
"""

from __future__ import annotations

import atexit
import errno
import fcntl
import os
import re
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil

from shoestring.core.pod_ref import this_place
from shoestring.core.record import digest
from shoestring.data.scratch.scratch_files import remove_folder

NAME = re.compile(r"\.?shoestring-([0-9a-f]{8})-([0-9a-f]{8})-[a-z0-9_]{8}")
NO_BOOT = "0" * 8
NO_LOCKS = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EBADF, errno.ENOLCK)
"""Errors of a file system without locks on folders. There `remove_left_over` gets none either."""
NEW_S = 60.0
"""An empty folder of this age at most may be one that its process has not locked yet."""


@dataclass(frozen=True, slots=True)
class TemporaryFolder:
    """A folder that this process holds. `handle`: of its lock, also for a process that inherits it."""

    path: Path
    handle: int

    def remove(self) -> None:
        """Delete it and all that is in it, as far as that is permitted."""
        remove_folder(self.path)
        os.close(self.handle)


def make_folder(within: Path | None = None) -> TemporaryFolder:
    """Make a folder of this user's and hold it. `within`: a folder in which it is hidden; None: TMPDIR.

    Raises OSError.
    """
    boot, host = _this_machine()
    path = Path(tempfile.mkdtemp(prefix=f"{'.' if within else ''}shoestring-{boot}-{host}-", dir=within))
    return TemporaryFolder(path, hold_folder(path))


@contextmanager
def temporary_folder(within: Path | None = None) -> Iterator[Path]:
    """Yield a folder as `make_folder` makes it; remove it at the end, whatever is in it. Raises OSError."""
    folder = make_folder(within)
    try:
        yield folder.path
    finally:
        folder.remove()


def folder_until_exit() -> Path:
    """Remove what killed processes left, and return a new folder, which is removed when this process exits.

    Raises OSError.
    """
    remove_left_over()
    folder = make_folder()
    atexit.register(folder.remove)
    return folder.path


def hold_folder(folder: Path) -> int:
    """Open and lock a folder, so that nothing removes it as left over; return the handle, which holds it.

    Raises OSError: it cannot be opened or locked.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            os.close(handle)
            raise
    return handle


def remove_left_over(within: Path | None = None) -> None:
    """Remove the folders in `within` (None: in TMPDIR) that this user's processes made on this machine, and
    that no process holds. What cannot be removed stays.
    """
    with suppress(OSError):
        parent = within or _usual_parent()
        with os.scandir(parent) as entries:
            found = [parent / entry.name for entry in entries if NAME.fullmatch(entry.name)]
        for folder in found:
            with suppress(OSError):
                _remove_if_left_over(folder)


def _usual_parent() -> Path:
    """Return the folder in which Python makes temporary folders. It takes another one where that is full."""
    named = filter(None, map(os.environ.get, ("TMPDIR", "TEMP", "TMP")))
    return Path(next(named, "/tmp"))


def _remove_if_left_over(folder: Path) -> None:
    """Raises OSError: it is none, or it is a link, or a process holds it."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        found = os.fstat(handle)
        if found.st_uid != os.getuid() or not _is_of_this_machine(folder.name, found.st_mtime):
            return
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Its process locks it before it puts anything into it.
        if any(folder.iterdir()) or time.time() - found.st_mtime > NEW_S:
            remove_folder(folder)
    finally:
        os.close(handle)


def _is_of_this_machine(name: str, changed_s: float) -> bool:
    """Return whether the locks of this machine decide about a folder, by its name and its last change."""
    match, (own_boot, own_host) = NAME.fullmatch(name), _this_machine()
    assert match is not None
    boot, host = match.groups()
    if boot == own_boot:
        return boot != NO_BOOT or host == own_host
    # An earlier boot of this host. Another one of the same name would have changed it since.
    return host == own_host and changed_s < psutil.boot_time()


@cache
def _this_machine() -> tuple[str, str]:
    """Return short names of this boot, `NO_BOOT` where the system has none, and of this host."""
    return this_place()[0] or NO_BOOT, digest(socket.gethostname().encode())[:8]
