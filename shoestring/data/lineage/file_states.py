"""The source files of a recipe now, compared with those of a data set."""

from __future__ import annotations

from typing import Literal

from pydantic import AwareDatetime, Field

from shoestring.core.record import Record
from shoestring.data.retention.verification import BytesCheck
from shoestring.data.source_files import SourceFile

FileState = Literal["unchanged", "changed", "rewritten", "added", "removed"]
"""rewritten: it has changed, with its size and its time of change, or its version, as they were."""


class FileCheck(Record):
    """A source file now, and as the data set has it. Images or texts of a table on this machine are one."""

    name: str
    place: str
    size_bytes: int | None = Field(description="now; of one that is removed as it was, null: not recorded")
    state: FileState
    recorded_sha256: str = Field("", description="empty: it was added")
    found_sha256: str = Field("", description="empty: it was removed")
    files: int = Field(1, exclude_if=lambda files: files == 1)


class SourceCheck(Record):
    """The source files of a recipe, compared with those of its newest data set."""

    recipe: str
    dataset: str = Field(description="key of the data set")
    ingested_at: AwareDatetime | None = Field(description="null: an earlier version made it")
    counts: dict[FileState, int]
    files: tuple[FileCheck, ...]

    @property
    def differs(self) -> bool:
        return any(each.state != "unchanged" for each in self.files)


class RecipeCheck(BytesCheck):
    """The result of reading the source files of a recipe again, and what is stored of it."""

    sources: SourceCheck


def compared(now: SourceFile, before: SourceFile | None) -> FileCheck:
    """Return a source file now, compared with what a data set has of it. `before`: None where it has none."""
    state: FileState = "unchanged"
    if before is None:
        state = "added"
    elif before.sha256 != now.sha256:
        state = "rewritten" if _looks_unchanged(before, now) else "changed"
    return FileCheck(
        name=now.name,
        place=now.place,
        size_bytes=now.size_bytes,
        state=state,
        recorded_sha256=before.sha256 if before else "",
        found_sha256=now.sha256,
        files=now.files,
    )


def _looks_unchanged(before: SourceFile, now: SourceFile) -> bool:
    """Return whether two versions are the same to all that people see of them. The last time of a file on
    this machine, that of its inode, is set by no program."""
    if now.is_remote:
        return before.version == now.version
    return bool(before.version) and before.version.split()[:2] == now.version.split()[:2]


def removed(before: SourceFile) -> FileCheck:
    """Return a source file that was removed."""
    return FileCheck(
        name=before.name,
        place=before.place,
        size_bytes=before.size_bytes,
        state="removed",
        recorded_sha256=before.sha256,
        files=before.files,
    )
