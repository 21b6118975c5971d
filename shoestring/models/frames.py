"""Predict the rows of a table in memory: of pandas, polars or pyarrow."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from shoestring.core.errors import UsageError
from shoestring.models.model import FittedModel, joined_columns


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
        given = {name: self.fitted.read_table(name, _as_table(each)) for name, each in (tables or {}).items()}
        rows = self.fitted.reader(table.column_names, "the frame", given)
        predicted = rows.predict(table)
        rows.check()
        for note in rows.notes:
            warnings.warn(note, stacklevel=2)
        return _like(frame, pa.table(joined_columns({name: table[name] for name in keep}, predicted)))


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
