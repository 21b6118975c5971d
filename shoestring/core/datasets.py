"""Data sets in the store: manifests, their parts, the encoding of a data set that models read, and how fast
the store's formats are.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Literal

from pydantic import AwareDatetime, Field

from shoestring.core import store_layout
from shoestring.core.record import Record, StoredRecord
from shoestring.core.types import STANDARD_CLASS, Format, StorageClassName

TARGET_COLUMN = "y"
"""The target column of an encoded data set."""

GROUP_COLUMN = "_group"
"""The column of the units of rows, where the split kept several rows together. A bootstrap draws the rows of
a unit together."""

IMAGE_COLUMN = "_image"
"""The column of images: bytes of image files in a raw data set, pixels in an encoded one."""

TEXT_COLUMN = "_text"
"""The column of documents in a raw data set: their bytes, as UTF-8."""

TOKENS_COLUMN = "_tokens"
"""The column of rows of tokens in an encoded data set."""


MIN_FREE_BYTES = 1 << 30
"""What copies of a data set leave free on their volume."""


class DatasetPart(Record):
    """One immutable object of a data set."""

    sha256: str
    rows: int
    size_bytes: int

    @property
    def key(self) -> str:
        return store_layout.blob(self.sha256)


class Feature(Record):
    """An input of a model, computed from a stored column when a batch is collated.

    `cardinality` is the number of codes, where code 0 is 'unknown or missing'; 0 for a numeric feature. A
    numeric feature is (value - mean) / sd, and 0 for a missing value; or, with `marks_missing`, 1 for a
    missing value and 0 for any other.
    """

    name: str
    kind: Literal["categorical", "numeric"]
    cardinality: int = 0
    column: str = Field(
        "",
        exclude_if=lambda column: not column,
        description="the stored column; empty: `name`, which an earlier version stored ready to use",
    )
    mean: float = Field(0.0, exclude_if=lambda mean: mean == 0)
    sd: float = Field(1.0, exclude_if=lambda sd: sd == 1)
    marks_missing: bool = Field(False, exclude_if=lambda marks: not marks)


class ShapedField(Record):
    """A field of the stored record that holds an array of fixed shape."""

    name: str
    dtype: Literal["uint8", "uint16"]
    shape: tuple[int, ...] = Field(
        description="without the rows; of an image: channels, height, width; of tokens: their number"
    )
    role: Literal["image", "tokens"]


class Vocabulary(Record):
    """The tokens of a data set of texts: ids from 0 to `size` - 1.

    `start` precedes each document, and `padding` follows the last one of a part. Neither is predicted.
    """

    kind: Literal["bytes", "bpe"]
    size: int
    start: int
    padding: int
    bytes_per_token: float = Field(description="mean bytes of text of a token in train")
    sha256: str = Field(
        "",
        exclude_if=lambda sha256: not sha256,
        description="digest of the blob with the tokens, in the format of tokenizers; empty: they are bytes",
    )


class Encoding(Record):
    """How a model reads a data set: its features, its fields with a shape, the target column `y`, and
    `_group` where the split kept several rows together.

    Of texts, `y` is the number of bytes that the predicted tokens of a row stand for, and `_group` is the
    document that they begin with.
    """

    features: tuple[Feature, ...]
    fields: tuple[ShapedField, ...] = Field((), exclude_if=lambda fields: not fields)
    vocabulary: Vocabulary | None = Field(None, exclude_if=lambda vocabulary: vocabulary is None)
    task: Literal["binary", "multiclass", "regression", "next_token"]
    classes: tuple[str, ...] = ()
    train_prior: tuple[float, ...] = Field(
        (),
        description=(
            "class frequencies in the train split; for regression (mean, standard deviation); "
            "for texts the frequency of each token"
        ),
    )
    dictionary_sha256: str = Field(
        "",
        exclude_if=lambda sha256: not sha256,
        description="digest of the blob with the value of each code; empty: codes are stored ready to use",
    )


class SplitRule(Record):
    """How rows were assigned to splits: by the hash of the unit that a row belongs to.

    - groups: rows with equal values in `split.by`.
    - documents: equal documents.
    - distinct rows: rows of the main table that are equal but for the columns in `ignored`.
    - rows: each row alone, by its position among rows that are equal in the same way.
    """

    unit: Literal["groups", "documents", "distinct rows", "rows"]
    ignored: tuple[str, ...] = Field(
        (), exclude_if=lambda ignored: not ignored, description="the target, the leaks, the names of images"
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
    split_rule: SplitRule | None = Field(
        None,
        exclude_if=lambda rule: rule is None,
        description="null: raw data; or an earlier version hashed whole rows, with the target",
    )

    @property
    def split_unit(self) -> str:
        """The unit of the split rule. An earlier version recorded none."""
        if self.split_rule is not None:
            return self.split_rule.unit
        return "documents" if self.encoding and self.encoding.vocabulary else "rows"

    @property
    def blobs(self) -> tuple[str, ...]:
        """The digests of the blobs of the data set: its parts, the quarantined rows, its dictionary, its
        vocabulary."""
        parts = (part.sha256 for of_split in self.splits.values() for part in of_split)
        quarantine = PurePosixPath(self.quarantine).name if self.quarantine else ""
        dictionary = self.encoding.dictionary_sha256 if self.encoding else ""
        tokens = self.encoding.vocabulary if self.encoding else None
        return (*parts, *filter(None, (quarantine, dictionary, tokens.sha256 if tokens else "")))


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
