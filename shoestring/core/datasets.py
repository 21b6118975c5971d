"""Data sets as the store holds them: manifests, their parts, and how an encoded one is read."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from shoestring.core.record import Record, StoredRecord
from shoestring.core.types import STANDARD_CLASS, Format, StorageClassName


class DatasetPart(Record):
    """One immutable object of a data set."""

    sha256: str
    rows: int
    size_bytes: int

    @property
    def key(self) -> str:
        return f"blobs/{self.sha256}"


class Feature(Record):
    """An encoded input column. `cardinality` counts codes, 0 being 'unknown or missing'; 0 for a number."""

    name: str
    kind: Literal["categorical", "numeric"]
    cardinality: int = 0


class Encoding(Record):
    """How an encoded data set is to be read: int32 codes, standardised float32, target column `y`, and `_group` where groups were split."""

    features: tuple[Feature, ...]
    task: Literal["binary", "multiclass", "regression"]
    classes: tuple[str, ...] = ()
    train_prior: tuple[float, ...] = Field(
        (), description="class shares in train; for regression (mean, standard deviation)"
    )


class Manifest(StoredRecord):
    """A version of a data set: what it holds, where, and from what it was made."""

    name: str
    format: Format
    storage_class: StorageClassName = STANDARD_CLASS
    columns: dict[str, str] = Field(description="column -> Arrow type")
    splits: dict[str, tuple[DatasetPart, ...]] = Field(description="split or table name -> its parts")
    rows: int
    row_bytes: int = Field(description="bytes of one row, decoded")
    size_bytes: int
    parents: tuple[str, ...] = ()
    settings_sha256: str
    quarantined: dict[str, int] = Field({}, description="reason -> rows left out")
    quarantine: str | None = Field(None, description="key of the blob that holds the rows left out")
    encoding: Encoding | None = None
