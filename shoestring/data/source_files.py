"""The source files of a data set, as they were when it was made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import AwareDatetime, Field

from shoestring.core import store_layout
from shoestring.core.errors import NotInStore
from shoestring.core.interfaces import Store
from shoestring.core.record import Record, StoredRecord, record_bytes


class SourceFile(Record):
    """A source file as it was read. The images or texts of a table are one, with their number."""

    name: str = Field(description="TABLE/FILE; TABLE for its images or texts together")
    place: str = Field("", description="path or URL; empty: not recorded")
    size_bytes: int | None = Field(None, description="null: not recorded")
    sha256: str = Field(description="of its bytes; empty: no run has fetched it in this version yet")
    version: str = Field(
        "",
        description="on a server its tag (ETag) or the time of its last change; on this machine its size and "
        "its times of change in nanoseconds; empty: not recorded",
    )
    read_at: AwareDatetime | None = Field(None, description="when its digest was computed")
    files: int = Field(1, exclude_if=lambda files: files == 1)

    @property
    def is_remote(self) -> bool:
        return "://" in self.place


class SourceRecord(StoredRecord):
    """The source files of a raw data set. Its key names the data set, which it goes with."""

    dataset: str = Field(description="key of the manifest")
    ingested_at: AwareDatetime
    files: tuple[SourceFile, ...]


def contents_of(files: Sequence[SourceFile]) -> str | None:
    """Return a line for each source file: its name, and the SHA-256 of its bytes. None: one is not known."""
    if not all(each.sha256 for each in files):
        return None
    return "\n".join(f"{each.name} {each.sha256}" for each in files)


def save_sources(store: Store, record: SourceRecord) -> None:
    """Store the source files of a data set, in place of those of an earlier reading. Raises StoreFull."""
    store.put(store_layout.sources(record.dataset), record_bytes(record))


def read_sources(store: Store, dataset: str) -> SourceRecord | None:
    """Return the source files of a raw data set; None: an earlier version recorded none."""
    try:
        data = store.fetch(store_layout.sources(dataset)).read_bytes()
        return SourceRecord.model_validate_json(data)
    except (NotInStore, ValueError):
        return None


def recorded_files(record: SourceRecord | None, digests: Mapping[str, str]) -> tuple[SourceFile, ...]:
    """Return the files of a data set, with all that is recorded of them. `digests`: of the files by name, as
    the data set's own digest covers them.
    """
    known = {each.name: each for each in record.files} if record else {}
    return tuple(
        known[name]
        if name in known and known[name].sha256 == sha256
        else SourceFile(name=name, sha256=sha256)
        for name, sha256 in digests.items()
    )
