"""The data page as it is stored with a run: columns, target, and what looks wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from shoestring.core.record import Record, StoredRecord

Fault = Literal["target recoded", "id", "constant", "leak in time", "extreme weights"]
MAX_NAMES = 6
"""The columns of one type that are named in a sentence."""

Use = Literal[
    "target",
    "weight",
    "leak",
    "categorical",
    "category and words",
    "numeric",
    "date",
    "text",
    "group",
    "not used",
]


class DataWarning(Record):
    """One column that looks wrong: what was found, with its numbers, and the recipe key that changes it."""

    column: str
    fault: Fault
    finding: str
    advice: str

    @property
    def sentence(self) -> str:
        return f"column {self.column}: {self.fault}, {self.finding}; {self.advice}"


class SchemaChange(Record):
    """A difference in one column from the last version of the data, and its consequence."""

    column: str
    change: Literal["added", "removed", "retyped", "misfits"]
    finding: str

    @property
    def sentence(self) -> str:
        return f"column {self.column}: {self.finding}"


class ColumnEntry(Record):
    """One column: its type, its use and the reason of this use. `values` counts its different values.

    `missing_as`: how often each spelling of a missing value occurs. `remarks`: what is to know of its
    reading, a sentence each.
    """

    name: str
    table: str
    type: str
    use: Use
    reason: str
    values: int
    missing: int
    missing_as: dict[str, int] = Field({}, exclude_if=lambda found: not found)
    remarks: tuple[str, ...] = Field((), exclude_if=lambda remarks: not remarks)


class FileEntry(Record):
    """One file of a table. `rows`: None if it was not read whole."""

    table: str
    name: str
    size_bytes: int
    rows: int | None


class JoinEntry(Record):
    """One join: how many of the rows read found a row of its table.

    `unmatched`: a few keys that found none. `similar`: one of them, and the key of the table most like it.
    """

    table: str
    by: tuple[str, ...]
    rows: int
    matched: int
    unmatched: tuple[str, ...] = ()
    similar: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return ", ".join(self.by)

    @property
    def sentence(self) -> str:
        return f"{self.matched:,} of {self.rows:,} rows found a row of {self.table} by {self.key}"


class ClassShare(Record):
    """One class of the target, and its share of the rows with a target."""

    name: str
    share: float


class TargetEntry(Record):
    """The distribution of the target: its largest classes, or the quantiles of a number."""

    column: str
    task: Literal["binary", "multiclass", "regression"]
    class_count: int = 0
    classes: tuple[ClassShare, ...] = ()
    quantiles: dict[str, float] = Field({})


class ImageEntry(Record):
    """The images: the shape that is stored (channels, height, width), and what the first look at a few found:
    their sizes (height x width) and how many cannot be used, by reason."""

    shape: tuple[int, int, int]
    looked_at: int
    sizes: dict[str, int]
    unusable: dict[str, int]


class TextEntry(Record):
    """The texts: their files, documents, bytes, encoding and expected rows; the documents that
    cannot be used, by reason; and what looks wrong, a sentence each."""

    files: int
    documents: int
    size_bytes: int
    rows: int
    row_tokens: int
    vocabulary: int | None = Field(None, exclude_if=lambda vocabulary: vocabulary is None)
    encoding: str
    unusable: dict[str, int]
    findings: tuple[str, ...]


def _names(names: Sequence[str]) -> str:
    more = len(names) - MAX_NAMES
    return ", ".join(names) if more <= 1 else f"{', '.join(names[:MAX_NAMES])} and {more} more"


class DataPage(StoredRecord):
    """The columns, the rows and the target of a recipe, and the problems that a sample of its data shows.

    Of texts, `rows` are those of tokens; `rows_read`, `misfits` and `splits` count documents, and
    `without_target` those that are empty.

    Args:
        rows: of the main table; an estimate unless `is_whole`.
        rows_read: the rows of the sample; all counts below are of these.
        sample: which part of the main table was read; empty: all of it, or it is not known.
        misfits: rows that ingest would quarantine. `lost`: these by reason.
        unread: values that do not fit the type of their column, and are missing.
        files: how files are read that are not plain CSV, and the splits that they name, a sentence each.
        listed: the files of the tables, where one has several.
        findings: what looks wrong in whole tables, their joins, files and labels, a sentence each.
        splits: the rows with a target by split; an estimate unless `is_whole`.
        unit: what the split keeps together: rows, distinct rows, times, days or groups; empty: it is not
            known yet.
        times: what is to know of the rows' times, a sentence each.
        prediction: what is predicted, as a sentence; empty if it is refused.
        refusal: why a run would be refused; empty if it would not.
    """

    recipe: str
    rows: int
    is_whole: bool
    rows_read: int
    misfits: int
    unread: int = Field(0, exclude_if=lambda unread: not unread)
    sample: str = Field("", exclude_if=lambda sample: not sample)
    lost: dict[str, int] = Field({}, exclude_if=lambda lost: not lost)
    files: tuple[str, ...] = Field((), exclude_if=lambda files: not files)
    listed: tuple[FileEntry, ...] = Field((), exclude_if=lambda listed: not listed)
    joins: tuple[JoinEntry, ...] = Field((), exclude_if=lambda joins: not joins)
    findings: tuple[str, ...] = Field((), exclude_if=lambda findings: not findings)
    without_target: int
    splits: dict[str, int]
    unit: str = Field("", exclude_if=lambda unit: not unit)
    prediction: str
    refusal: str
    target: TargetEntry | None
    columns: tuple[ColumnEntry, ...]
    warnings: tuple[DataWarning, ...]
    changes: tuple[SchemaChange, ...] = Field((), exclude_if=lambda changes: not changes)
    times: tuple[str, ...] = Field((), exclude_if=lambda times: not times)
    images: ImageEntry | None = Field(None, exclude_if=lambda images: images is None)
    texts: TextEntry | None = Field(None, exclude_if=lambda texts: texts is None)

    @property
    def notes(self) -> tuple[str, ...]:
        """The prediction, how the columns are read, and the warnings, as sentences."""
        return (self.prediction, *self.readings, *(f"warning: {each}" for each in self.sentences))

    @property
    def readings(self) -> tuple[str, ...]:
        """How the columns are read: those of each type, and what is to know of single ones."""
        if not self.columns:
            return self.remarks
        of_type: dict[str, list[str]] = {}
        for each in self.columns:
            of_type.setdefault(each.type, []).append(each.name)
        shown = "; ".join(f"{_names(names)}: {type_}" for type_, names in of_type.items())
        return (f"columns: {shown}", *self.remarks)

    @property
    def remarks(self) -> tuple[str, ...]:
        """How files are read, how missing values are written, and what is to know of single columns and of
        times."""
        places: dict[str, list[str]] = {}
        for each in self.columns:
            for spelling, rows in each.missing_as.items():
                places.setdefault(spelling, []).append(f"{each.name} ({rows:,})")
        missing = "; ".join(f"{spelling!r} in {_names(found)}" for spelling, found in places.items())
        remarks = (f"column {each.name}: {remark}" for each in self.columns for remark in each.remarks)
        joins = (each.sentence for each in self.joins)
        found = (*([f"missing values: {missing}"] if missing else ()), *remarks)
        return (*self.files, *joins, *found, *self.times)

    @property
    def sentences(self) -> tuple[str, ...]:
        """Differences from the last version of the data, and warnings."""
        found = (*(each.sentence for each in self.changes), *(each.sentence for each in self.warnings))
        return (*self.findings, *found, *(self.texts.findings if self.texts else ()))
