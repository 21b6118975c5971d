"""The files by which a supervisor and its child communicate, in a folder to which the stage's own code can
write, too.
"""

from __future__ import annotations

import io
import os
import shutil
import stat
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from shoestring.core.errors import DataError
from shoestring.core.record import Record, validation_message

MAX_FILE_BYTES = 1 << 20
MAX_MESSAGE_CHARS = 300
MAX_REASON_CHARS = 50_000
"""Of a child's reason, so that its result file stays below the limit."""

R = TypeVar("R", bound=Record)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file of a scratch folder, whole or not at all. Raises OSError."""
    temporary = path.with_suffix(".new")
    temporary.unlink(missing_ok=True)
    # A FIFO of this name would block the writer, and a link would lead it out of the folder.
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    temporary.replace(path)


def read_scratch_file(path: Path, kind: type[R]) -> R | None:
    """Return the record in a file of a scratch folder; None: there is no file.

    Raises:
        DataError: it is not a regular file of at most 1 MiB that holds such a record.
    """
    try:
        with io.BufferedReader(io.FileIO(path, opener=_open_at_once)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise DataError(f"{path.name} is not a regular file")
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(f"{path.name} cannot be read: {error.strerror or error}") from error
    if len(data) > MAX_FILE_BYTES:
        raise DataError(f"{path.name} has more than {MAX_FILE_BYTES:,} bytes")
    try:
        return kind.model_validate_json(data)
    except ValidationError as error:
        message = validation_message(error)[:MAX_MESSAGE_CHARS]
        raise DataError(f"{path.name} is not a {kind.__name__}: {message}") from error


def remove_folder(folder: Path) -> None:
    """Delete a folder and all that is in it, as far as that is permitted."""
    # Python's function has one call and one open handle for each of the folders in one another.
    with suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
    if folder.is_dir() and not folder.is_symlink():
        with suppress(OSError):
            subprocess.run(["rm", "-rf", "--", folder], stderr=subprocess.DEVNULL)


def _open_at_once(path: str, flags: int) -> int:
    # Opening a FIFO would wait for a writer, and a link may lead to a device without an end.
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW)
