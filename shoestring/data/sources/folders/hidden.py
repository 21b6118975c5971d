"""Files and folders that hold no data of their own: notebooks' checkpoints, mounted volumes, unfinished
tasks."""

from __future__ import annotations

from pathlib import PurePosixPath


def is_hidden(name: str) -> bool:
    """Return whether a file or one of its folders is hidden, by its name below the source."""
    return any(part[0] == "." for part in PurePosixPath(name).parts)


def is_visible(name: str) -> bool:
    """Return whether a file is read, by its name below the source: unless it or one of its folders begins
    with `.` or `_`. A folder of a key, _KEY=VALUE, is read."""
    *folders, file = PurePosixPath(name).parts
    is_private = file[0] == "_" or any(folder[0] == "_" and "=" not in folder for folder in folders)
    return not is_private and not is_hidden(name)
