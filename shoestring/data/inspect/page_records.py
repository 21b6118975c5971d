"""The data page as it is stored with a run: columns, target, and what looks wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from shoestring.core.record import Record, StoredRecord

Fault = Literal["target recoded", "id", "constant", "leak in time"]
MAX_NAMES = 6
"""The columns of one type that are named in a sentence."""

Use = Literal["target", "leak", "categorical", "numeric", "date", "text", "group", "not used"]


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
        misfits: rows that ingest would quarantine.
        splits: the rows with a target by split; an estimate unless `is_whole`.
        unit: what the split keeps together: rows, distinct rows, days or groups; empty: it is not known yet.
        prediction: what is predicted, as a sentence; empty if it is refused.
        refusal: why a run would be refused; empty if it would not.
    """

    recipe: str
    rows: int
    is_whole: bool
    rows_read: int
    misfits: int
    without_target: int
    splits: dict[str, int]
    unit: str = Field("", exclude_if=lambda unit: not unit)
    prediction: str
    refusal: str
    target: TargetEntry | None
    columns: tuple[ColumnEntry, ...]
    warnings: tuple[DataWarning, ...]
    changes: tuple[SchemaChange, ...] = Field((), exclude_if=lambda changes: not changes)
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
            return ()
        of_type: dict[str, list[str]] = {}
        for each in self.columns:
            of_type.setdefault(each.type, []).append(each.name)
        shown = "; ".join(f"{_names(names)}: {type_}" for type_, names in of_type.items())
        return (f"columns: {shown}", *self.remarks)

    @property
    def remarks(self) -> tuple[str, ...]:
        """How missing values are written, and what is to know of the reading of single columns."""
        places: dict[str, list[str]] = {}
        for each in self.columns:
            for spelling, rows in each.missing_as.items():
                places.setdefault(spelling, []).append(f"{each.name} ({rows:,})")
        missing = "; ".join(f"{spelling!r} in {_names(found)}" for spelling, found in places.items())
        remarks = (f"column {each.name}: {remark}" for each in self.columns for remark in each.remarks)
        return (*([f"missing values: {missing}"] if missing else ()), *remarks)

    @property
    def sentences(self) -> tuple[str, ...]:
        """Differences from the last version of the data, and warnings."""
        found = (*(each.sentence for each in self.changes), *(each.sentence for each in self.warnings))
        return (*found, *(self.texts.findings if self.texts else ()))
