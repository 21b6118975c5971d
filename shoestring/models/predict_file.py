"""Predict the rows of a file into another file, in order and in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa
from pydantic import Field

from shoestring.core.errors import UsageError
from shoestring.core.record import Record
from shoestring.data.transforms.image_field import batch_images
from shoestring.models.data_files import open_rows, read_whole, writing
from shoestring.models.model import FittedModel, joined_columns

BATCH_ROWS = 1 << 15
NO_TABLES: Mapping[str, Path] = MappingProxyType({})


class PredictedFile(Record):
    """The result of a prediction of a file."""

    rows: int
    notes: tuple[str, ...] = Field((), description="sentences about values that were read as missing")
    unknown_shares: dict[str, float] = Field(
        {},
        description="category -> the share of its values that the model does not know; above 0",
    )


def predict_file(
    model: FittedModel,
    data: Path,
    out: Path,
    keep: Sequence[str] = (),
    tables: Mapping[str, Path] = NO_TABLES,
    report: Callable[[int], None] = lambda rows: None,
) -> PredictedFile:
    """Write the predictions of the rows of `data` to `out`, after the columns to `keep`. `tables`: files for
    the joins, instead of those of the model's folder. `report`: called with the rows so far.

    Raises UsageError: a file that is not there, a column to keep that it lacks, a suffix without a format;
    DataError: rows that cannot be read, columns that are missing or of another type. Nothing is written then.
    """
    image = model.record.recipe.image
    opened = open_rows(data, image)
    if missing := [name for name in keep if name not in opened.columns]:
        raise UsageError(f"{data} has no column {missing[0]} to keep: it has {', '.join(opened.columns)}")
    given = {name: model.read_table(name, read_whole(path)) for name, path in tables.items()}
    rows = model.reader(opened.columns, str(data), given)
    done, step = 0, BATCH_ROWS if image is None else batch_images(image)
    with writing(out) as write:
        for batch in opened.batches:
            for start in range(0, max(1, batch.num_rows), step):
                table = batch.slice(start, step)
                kept = {name: table[name] for name in keep}
                write(pa.table(joined_columns(kept, rows.predict(table))))
                done += table.num_rows
                report(done)
        rows.check()
    shares = {name: each.share for name, each in rows.unknown.items() if each.unknown}
    return PredictedFile(rows=done, notes=tuple(rows.notes), unknown_shares=shares)
