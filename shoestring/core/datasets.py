"""Data sets in the store: manifests, their parts, the encoding of a data set that models read, and how fast
the store's formats are.
"""

from __future__ import annotations

from typing import Literal

from pydantic import AwareDatetime, Field

from shoestring.core import store_layout
from shoestring.core.record import Record, StoredRecord
from shoestring.core.types import STANDARD_CLASS, Format, StorageClassName


class DatasetPart(Record):
    """One immutable object of a data set."""

    sha256: str
    rows: int
    size_bytes: int

    @property
    def key(self) -> str:
        return store_layout.blob(self.sha256)


class Feature(Record):
    """An encoded input column.

    `cardinality` is the number of codes, where code 0 is 'unknown or missing'; 0 for a numeric column.
    """

    name: str
    kind: Literal["categorical", "numeric"]
    cardinality: int = 0


class Encoding(Record):
    """The encoding of a data set: int32 codes, standardised float32, target column `y`, and `_group` if it
    was split by group.
    """

    features: tuple[Feature, ...]
    task: Literal["binary", "multiclass", "regression"]
    classes: tuple[str, ...] = ()
    train_prior: tuple[float, ...] = Field(
        (), description="class frequencies in the train split; for regression (mean, standard deviation)"
    )


class Manifest(StoredRecord):
    """One version of a data set: its contents, their location, and its inputs."""

    name: str
    format: Format
    storage_class: StorageClassName = STANDARD_CLASS
    columns: dict[str, str] = Field(description="column -> Arrow type")
    splits: dict[str, tuple[DatasetPart, ...]] = Field(description="name of a split or table -> its parts")
    rows: int
    row_bytes: int = Field(description="bytes of one row, decoded")
    size_bytes: int
    parents: tuple[str, ...] = ()
    settings_sha256: str
    quarantined: dict[str, int] = Field({}, description="reason -> quarantined rows")
    quarantine: str | None = Field(None, description="key of the blob with the quarantined rows")
    encoding: Encoding | None = None


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


class VolumeProbe(StoredRecord):
    """The measured speeds of one volume."""

    volume: str
    as_of: AwareDatetime
    speeds: tuple[FormatSpeed, ...]
