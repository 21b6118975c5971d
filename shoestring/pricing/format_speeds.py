"""How fast the formats of data sets are read and written, and how fast a store answers."""

from __future__ import annotations

from pydantic import AwareDatetime, Field

from shoestring.core.record import Record, StoredRecord
from shoestring.core.types import Format

MIN_FREE_BYTES = 1 << 30
"""What copies of a data set leave free on their volume."""


class FormatSpeed(Record):
    """The cost of one format on the store's volume: seconds = rows x ns / 1e9 + bytes / (bytes/s).

    Measured by the probe.
    """

    format: Format
    write_ns_per_row: int
    write_bytes_per_s: int
    scan_ns_per_row: int
    scan_bytes_per_s: int
    take_ns_per_row: int
    take_bytes_per_s: int
    size_ratio: float = Field(gt=0, description="bytes on disk per byte of row data")


class StoreFetch(Record):
    """How a stage gets the bytes of a store whose objects are not files of its own volume."""

    bytes_per_s: int = Field(gt=0, description="bytes that the store sends in a second")
    room_bytes: int = Field(ge=0, description="bytes of a data set that a stage can copy to its volume")


class StoreWait(Record):
    """How long a store that is far away takes for a request, and how many of them a stage's processes wait
    for, one after another.
    """

    request_s: float = Field(ge=0, description="seconds of a request, measured by the step that decided")
    requests: int = Field(ge=0, description="requests of a stage that are waited for")

    @property
    def stage_s(self) -> float:
        return self.request_s * self.requests


NO_WAIT = StoreWait(request_s=0, requests=0)


class VolumeProbe(StoredRecord):
    """The measured speeds of one volume."""

    volume: str
    as_of: AwareDatetime
    speeds: tuple[FormatSpeed, ...]
    fetch_bytes_per_s: int = Field(
        0,
        exclude_if=lambda rate: not rate,
        description="bytes that the store sends in a second; 0: its objects are files of the volume",
    )
