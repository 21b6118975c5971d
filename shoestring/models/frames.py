"""Predict the rows of a table in memory: of pandas, polars or pyarrow."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from shoestring.core.errors import UsageError
from shoestring.models.model import FittedModel, Rows, joined_columns
from shoestring.training.losses.scores import Array


@dataclass(frozen=True, slots=True)
class Model:
    """A trained model that predicts raw rows. `shoestring.load` opens one."""

    fitted: FittedModel

    def predict(
        self, frame: Any, *, keep: Sequence[str] = (), tables: Mapping[str, Any] | None = None
    ) -> Any:
        """Return the predictions of the rows of a table of pandas, polars or pyarrow as a table of the same
        library, in the same order; one of pandas keeps its index.

        Its columns are `keep`, then `prediction`, and of a classification `probability_CLASS` for each class.
        The table has the columns of the source that the model reads; the target may be absent. Values that
        are read as missing are said as warnings.

        Args:
            frame: the rows.
            keep: columns of `frame` to repeat before the predictions.
            tables: the joined tables by name, instead of those that are kept with the model.

        Raises:
            UsageError: an argument is no table, or names a column or a table that is not there.
            DataError: a column is missing, or of another type.
        """
        table = _as_table(frame)
        if missing := [name for name in keep if name not in table.column_names]:
            raise UsageError(
                f"the frame has no column {missing[0]} to keep: it has {', '.join(table.column_names)}"
            )
        rows = self._rows(table, tables)
        predicted = rows.predict(table)
        _warn(rows)
        return _like(frame, pa.table(joined_columns({name: table[name] for name in keep}, predicted)))

    def encode(self, frame: Any, *, tables: Mapping[str, Any] | None = None) -> dict[str, Array]:
        """Return the rows of a table as the model reads them: the inputs of its file of ONNX.

        - code: int32[rows, categories], 0 for a value that is missing or unknown.
        - number: float32[rows, numbers], in standard deviations from the mean of train.
        - image: uint8[rows, channels, height, width].

        Each is there if the model reads it. Arguments, warnings and errors are those of `predict`.
        """
        table = _as_table(frame)
        rows = self._rows(table, tables)
        samples = rows.encode(table)
        _warn(rows)
        return {use: values for use, values in samples.fields.items() if values.shape[1]}

    def _rows(self, table: pa.Table, tables: Mapping[str, Any] | None) -> Rows:
        given = {name: self.fitted.read_table(name, _as_table(each)) for name, each in (tables or {}).items()}
        return self.fitted.reader(table.column_names, "the frame", given)


def _warn(rows: Rows) -> None:
    """Raise DataError, or warn, about values that were read as missing."""
    rows.check()
    for note in rows.notes:
        warnings.warn(note, stacklevel=3)


def _as_table(frame: Any) -> pa.Table:
    if isinstance(frame, pa.Table):
        return frame
    if isinstance(frame, pa.RecordBatch):
        return pa.Table.from_batches([frame])
    if (pandas := sys.modules.get("pandas")) and isinstance(frame, pandas.DataFrame):
        return pa.Table.from_pandas(frame, preserve_index=False)
    if (polars := sys.modules.get("polars")) and isinstance(frame, polars.DataFrame):
        return frame.to_arrow()
    raise UsageError(
        f"a table of pandas, polars or pyarrow is expected, and this is {type(frame).__name__}: collect a "
        "lazy one first"
    )


def _like(frame: Any, table: pa.Table) -> Any:
    """Return a table as a frame of the library of `frame`."""
    match type(frame).__module__.partition(".")[0]:
        case "pandas":
            return table.to_pandas().set_index(frame.index)
        case "polars":
            return sys.modules["polars"].from_arrow(table)
        case _:
            return table
