"""The folder of temporary files, into which a run on this machine writes the script of each step."""

from __future__ import annotations

import os
import shutil
import tempfile

from shoestring.core.errors import NO_SPACE, StoreFull, UsageError

NEEDED_BYTES = 1 << 20
"""The scripts and artifacts of a small run take half of this."""


def check_temporary_space() -> None:
    """Check that temporary files can be written.

    The steps' shells use TMPDIR as it is, while Python takes another folder where it cannot write.

    Raises StoreFull: the disk is full; UsageError: it is no folder to write to.
    """
    folder = os.environ.get("TMPDIR") or tempfile.gettempdir()
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            file.write(bytes(NEEDED_BYTES))
            size_bytes = file.tell()
    except OSError as error:
        if error.errno not in NO_SPACE:
            reason = (error.strerror or str(error)).lower().replace("directory", "folder")
            raise UsageError(
                f"cannot write temporary files to {folder}: {reason}: set TMPDIR to another folder"
            ) from None
        size_bytes = 0
    if size_bytes < NEEDED_BYTES:
        free_bytes = shutil.disk_usage(folder).free
        raise StoreFull(
            f"no space left for temporary files in {folder}: {free_bytes:,} bytes are free, and the steps of "
            f"a run need at least {NEEDED_BYTES:,}: free some space, or set TMPDIR to a folder on a larger "
            "disk"
        )
