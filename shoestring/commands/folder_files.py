"""The regular files of a folder that a command can change at any moment.

Each folder and file is opened by its name in the folder above it, and no link is followed: what is read or
written is always below the folder.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from shoestring.core.text import shown_line

UNFINISHED = (b".new", b".tmp")
"""Names of files that a program writes before it renames them end like this; they are not kept."""
MAX_DEPTH = 100
"""Folders in one another that are searched. One handle is open for each of them."""
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
# Opening a FIFO without O_NONBLOCK would wait for a writer.
OLD_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
NEW_FILE = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK
LINKS = (errno.ELOOP, errno.ENOTDIR)
OTHERS = (*LINKS, errno.ENOENT, errno.EISDIR, errno.ENXIO)
NO_FOLDER = "a symbolic link, or not a folder"
KINDS = {stat.S_IFLNK: "a symbolic link", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}
OpenFile = io.BufferedReader | io.BufferedRandom
NAMED, SHOWN_CHARS = 3, 80
"""Of what is left out: the paths that a message names, and how much of each."""


@dataclass
class FolderScan:
    """What is in a folder. Keys are paths below it; an empty one is the folder itself.

    `files`: size in bytes and time of the last change in nanoseconds, of each file that can be kept.
    `left_out`: what cannot, and why.
    """

    files: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    left_out: dict[bytes, str] = field(default_factory=dict)

    def add_folder(self, name: bytes, path: bytes, depth: int, parent: int | None = None) -> None:
        """Add what is in a folder. `name`: in the folder that `parent` is a handle of."""
        if depth > MAX_DEPTH:
            self.left_out[path] = f"more than {MAX_DEPTH} folders deep"
            return
        try:
            handle = os.open(name, FOLDER, dir_fd=parent)
            try:
                with os.scandir(handle) as entries:
                    for entry in entries:
                        self._add(entry, path and path + b"/", depth, handle)
            finally:
                os.close(handle)
        except FileNotFoundError:
            # It was deleted meanwhile.
            return
        except OSError as error:
            self.left_out[path] = NO_FOLDER if error.errno in LINKS else _unreadable(error.errno)

    def _add(self, entry: os.DirEntry[str], above: bytes, depth: int, folder: int) -> None:
        name = os.fsencode(entry.name)
        try:
            info = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            return
        if stat.S_ISDIR(info.st_mode):
            self.add_folder(name, above + name, depth + 1, folder)
        elif name.endswith(UNFINISHED):
            return
        elif not stat.S_ISREG(info.st_mode):
            self.left_out[above + name] = KINDS.get(stat.S_IFMT(info.st_mode), "a device")
        elif not os.access(name, os.R_OK, dir_fd=folder, effective_ids=True):
            self.left_out[above + name] = _unreadable(errno.EACCES)
        else:
            self.files[above + name] = (info.st_size, info.st_mtime_ns)


def scan_folder(folder: Path) -> FolderScan:
    """Return what is in a folder now; nothing, if it is not there."""
    found = FolderScan()
    found.add_folder(os.fsencode(folder), b"", 0)
    return found


def _unreadable(number: int | None) -> str:
    return f"it cannot be read: {os.strerror(number or errno.EIO)}"


def open_file(folder: Path, path: bytes, *, create: bool = False) -> OpenFile | None:
    """Open a regular file below a folder to read it; or create it empty, and the folders above it.

    Returns None: a link leads to it, there is no such file, or it is something else. Raises OSError: it
    cannot be opened.
    """
    *folders, name = path.split(b"/")
    if not {b"", b".", b".."}.isdisjoint((*folders, name)):
        return None
    try:
        above = os.open(folder, FOLDER)
        try:
            for each in folders:
                if create:
                    with suppress(FileExistsError):
                        os.mkdir(each, dir_fd=above)
                below = os.open(each, FOLDER, dir_fd=above)
                os.close(above)
                above = below
            handle = os.open(name, NEW_FILE if create else OLD_FILE, 0o600, dir_fd=above)
        finally:
            os.close(above)
    except OSError as error:
        if error.errno in OTHERS:
            return None
        raise
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return os.fdopen(handle, "w+b") if create else os.fdopen(handle, "rb")
    os.close(handle)
    return None


def shown_path(path: bytes) -> str:
    """Return a path as a terminal can show it: of a long one, its start and its end."""
    text = shown_line(path.decode(errors="backslashreplace"))
    half = SHOWN_CHARS // 2
    return text if len(text) <= SHOWN_CHARS else f"{text[:half]}...{text[-half:]}"


def left_out_text(left_out: Mapping[bytes, str]) -> str:
    """Return a sentence that names what was not kept; an empty one: nothing was left out."""
    if not left_out:
        return ""
    found = sorted(left_out.items())
    named = [f"{shown_path(path) or 'the folder itself'} ({why})" for path, why in found[:NAMED]]
    more = f" and {len(found) - NAMED:,} more" if len(found) > NAMED else ""
    return (
        f"not kept from $SHOESTRING_CHECKPOINTS: {', '.join(named)}{more}; what the next attempt needs has to"
        " be a readable regular file in that folder"
    )
