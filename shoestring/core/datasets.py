"""Data sets in the store: manifests, their parts, the encoding of a data set that models read, and how fast
the store's formats are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any, Literal

from pydantic import Field, model_validator

from shoestring.core import store_layout
from shoestring.core.record import SCHEMA_VERSION, Record, StoredRecord
from shoestring.core.types import STANDARD_CLASS, Format, StorageClassName

TARGET_COLUMN = "y"
"""The field of the target."""

GROUP_COLUMN = "_group"
"""The field of the units of rows, where the split kept several together: a bootstrap draws them so."""

IMAGE_COLUMN = "_image"
"""The column of images: bytes of image files in a raw data set, pixels in an encoded one."""

TEXT_COLUMN = "_text"
"""The column of documents in a raw data set: their bytes, as UTF-8."""

TOKENS_COLUMN = "_tokens"
"""The column of rows of tokens in an encoded data set."""

WEIGHT_COLUMN = "_weight"
"""The field of the weights of rows."""


def is_empty(value: object) -> bool:
    """Return whether a field is left out of its record, as earlier versions did not write it."""
    return not value


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

    `cardinality` is the number of codes, where code 0 is 'unknown or missing'; 0 for a numeric feature. The
    words of a category that `has_words` are features too. A numeric feature is (value - mean) / sd, and 0 for
    a missing value; or, with `marks_missing`, 1 for a missing value and 0 for any other.
    """

    name: str
    kind: Literal["categorical", "numeric"]
    cardinality: int = 0
    has_words: bool = Field(False, exclude_if=lambda has_words: not has_words)
    column: str = Field(
        "",
        exclude_if=lambda column: not column,
        description="the stored column; empty: `name`, which an earlier version stored ready to use",
    )
    mean: float = Field(0.0, exclude_if=lambda mean: mean == 0)
    sd: float = Field(1.0, exclude_if=lambda sd: sd == 1)
    marks_missing: bool = Field(False, exclude_if=lambda marks: not marks)


Use = Literal["code", "number", "image", "tokens", "target", "group", "weight"]

DTYPES = {"int32": "int32", "int64": "int64", "float": "float32", "double": "float64"}
"""Arrow's name of a scalar type -> NumPy's."""


class StoredField(Record):
    """A field of the stored rows. Its values are raw: statistics of train are applied when a batch is made.

    - code: an index into the dictionary of the field; 0 is 'unknown or missing'.
    - number: a value in its own unit; NaN is 'missing'.
    - image: pixels from 0 to 255. tokens: ids of a vocabulary.
    - target: what is predicted. group: the unit of the row. weight: what the row counts.
    """

    name: str
    dtype: str = Field(description="type of a value, as NumPy names it; in little-endian order")
    shape: tuple[int, ...] = Field(
        (), description="of the values of a row; images: channels, height, width; tokens: their number"
    )
    storage: Literal["fixed", "variable"] = Field(
        "fixed", description="whether each row has as many bytes as the next"
    )
    use: Use


def stored_fields(arrow_types: Mapping[str, str], shaped: Iterable[StoredField]) -> tuple[StoredField, ...]:
    """Return the fields of columns, in order. `shaped`: those of images and tokens, whose column holds bytes.

    Raises ValueError for any other column that is neither a whole number nor a floating-point one.
    """
    known = {each.name: each for each in shaped}
    return tuple(known.get(name) or _scalar(name, type_) for name, type_ in arrow_types.items())


def _scalar(name: str, arrow_type: str) -> StoredField:
    if arrow_type not in DTYPES:
        raise ValueError(f"column {name} is of type {arrow_type}: encoded columns are {', '.join(DTYPES)}")
    by_name: dict[str, Use] = {TARGET_COLUMN: "target", GROUP_COLUMN: "group", WEIGHT_COLUMN: "weight"}
    by_type: Use = "number" if arrow_type in ("float", "double") else "code"
    return StoredField(name=name, dtype=DTYPES[arrow_type], use=by_name.get(name, by_type))


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
        exclude_if=is_empty,
        description="digest of the blob with the tokens, in the format of tokenizers; empty: they are bytes",
    )


LossMetric = Literal["log_loss", "balanced_log_loss", "rmse", "mae", "quantile_loss", "bits_per_byte"]


class Loss(Record):
    """What a model minimises, if it is neither the log loss nor the squared error.

    `balanced`: the log loss with rows weighted so that all classes count the same. `quantile`: the quantile
    loss (Koenker and Bassett 1978, "Regression quantiles") of this quantile; half the absolute error at 0.5.
    """

    balanced: bool = False
    quantile: float | None = None


STANDARD_LOSS, MEDIAN = Loss(), 0.5


class RowWeight(Record):
    """The column of the weights of rows, and their mean in train, by which they are divided."""

    column: str
    mean: float


class Encoding(Record):
    """How a data set is stored, and how a model reads it: its fields, the features that are computed from
    them, and the loss of a model on it.

    Of texts, `y` is the number of bytes that the predicted tokens of a row stand for, and `_group` is the
    document that they begin with.
    """

    features: tuple[Feature, ...]
    fields: tuple[StoredField, ...] = Field((), description="of the stored rows, in order")
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
    loss: Loss = Field(STANDARD_LOSS, exclude_if=lambda loss: loss == STANDARD_LOSS)
    weight: RowWeight | None = Field(None, exclude_if=lambda weight: weight is None)

    @model_validator(mode="before")
    @classmethod
    def _of_version_4(cls, data: Any) -> Any:
        return _encoding_of_today(data)

    def of_use(self, use: Use) -> tuple[StoredField, ...]:
        """Return the fields of this use."""
        return tuple(each for each in self.fields if each.use == use)

    @property
    def loss_metric(self) -> LossMetric:
        """The metric that is the loss of a training and its validations."""
        if self.task == "next_token":
            return "bits_per_byte"
        if self.task != "regression":
            return "balanced_log_loss" if self.loss.balanced else "log_loss"
        if self.loss.quantile is None:
            return "rmse"
        return "mae" if self.loss.quantile == MEDIAN else "quantile_loss"


class SplitRule(Record):
    """How rows were assigned to splits: by the hash of the unit that a row belongs to.

    - groups: rows with equal values in `split.by`.
    - documents: equal documents.
    - distinct rows: rows of the main table that are equal but for the columns in `ignored`.
    - rows: each row alone, by its position among rows that are equal in the same way.

    With `split.time`, rows of one time are assigned by `boundaries`: days, times, or rows, if none repeats.
    Of the splits `given`, the data names the rows itself; others are drawn from its rows of train.
    """

    unit: Literal["groups", "documents", "distinct rows", "rows", "days", "times"]
    ignored: tuple[str, ...] = Field((), exclude_if=is_empty, description="target, weight, leaks, images")
    given: tuple[str, ...] = Field((), exclude_if=is_empty)
    boundaries: tuple[str, ...] = Field(
        (), exclude_if=is_empty, description="the first times of val and test: `split.time`"
    )


class Manifest(StoredRecord):
    """One version of a data set: its contents, their location, and its inputs."""

    name: str
    format: Format
    storage_class: StorageClassName = STANDARD_CLASS
    columns: dict[str, str] = Field({}, exclude_if=is_empty, description="of raw data: column -> Arrow type")
    splits: dict[str, tuple[DatasetPart, ...]] = Field(description="name of a split or table -> its parts")
    rows: int
    row_bytes: int = Field(description="bytes of one row, decoded")
    size_bytes: int
    parents: tuple[str, ...] = ()
    settings_sha256: str
    quarantined: dict[str, int] = Field({}, description="reason -> quarantined rows")
    unread: dict[str, int] = Field({}, exclude_if=is_empty, description="reason -> values read as missing")
    lost_classes: dict[str, int] = Field({}, exclude_if=is_empty, description="class -> quarantined rows")
    quarantine: str | None = Field(None, description="key of the blob with the quarantined rows and values")
    encoding: Encoding | None = None
    split_rule: SplitRule | None = Field(
        None,
        exclude_if=lambda rule: rule is None,
        description="null: raw data; or an earlier version hashed whole rows, with the target",
    )

    @model_validator(mode="before")
    @classmethod
    def _of_version_4(cls, data: Any) -> Any:
        return _manifest_of_today(data)

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


def _manifest_of_today(data: Any) -> Any:
    """Return the manifest of an encoded data set with its fields: version 4 wrote the Arrow types of its
    columns, and of its fields only those with a shape. Any other is returned as it is."""
    if not isinstance(data, Mapping) or not isinstance(encoding := data.get("encoding"), Mapping):
        return data
    if not (columns := data.get("columns")):
        return data
    fields = stored_fields(columns, map(_with_use, encoding.get("fields", ())))
    changes = {"columns": {}, "encoding": {**encoding, "fields": fields}, "schema_version": SCHEMA_VERSION}
    return {**data, **changes}


def _encoding_of_today(data: Any) -> Any:
    """Return the encoding of a model with the uses of its fields, which version 4 called roles. Any other is
    returned as it is."""
    if not isinstance(data, Mapping) or not data.get("fields"):
        return data
    return {**data, "fields": tuple(map(_with_use, data["fields"]))}


def _with_use(field: Any) -> Any:
    if not isinstance(field, Mapping) or "role" not in field:
        return field
    rest = {name: value for name, value in field.items() if name != "role"}
    return StoredField.model_validate({**rest, "use": field["role"]})
