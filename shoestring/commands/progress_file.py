"""The progress that a command reports, in a file of its own."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from shoestring.core.errors import DataError
from shoestring.core.record import Count, Record
from shoestring.data.scratch.scratch_files import read_scratch_file


class CommandProgress(Record):
    """The progress of a command, as it writes it to `$SHOESTRING_PROGRESS`."""

    samples: Count = 0
    total: Count | None = None
    loss: float | None = Field(None, description="the last loss, or any other number to watch")


class ProgressReader:
    """The last progress that a command wrote. Garbage is ignored; `fault` is its error."""

    def __init__(self, path: Path) -> None:
        self.last: CommandProgress | None = None
        self.fault = ""
        self._path = path

    def read(self) -> CommandProgress | None:
        """Return the newest progress; None: there was none yet."""
        try:
            self.last = read_scratch_file(self._path, CommandProgress) or self.last
        except DataError as error:
            self.fault = str(error)
        return self.last
