"""Predict the rows of a file, or of a recipe's source, into a file, in order and in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa
from pydantic import Field

from shoestring.core.errors import RecipeError, UsageError
from shoestring.core.interfaces import RemoteSources, Store
from shoestring.core.record import Record
from shoestring.data.recipe import Recipe
from shoestring.data.sources.remote.fetch import FetchFolder
from shoestring.data.transforms.image_field import batch_images
from shoestring.data.transforms.ingest import RawFiles, unchanged_sources
from shoestring.models.data_files import InputRows, open_rows, read_whole, rows_of, writing
from shoestring.models.model import FittedModel, joined_columns

BATCH_ROWS = 1 << 15
NO_TABLES: Mapping[str, Path] = MappingProxyType({})

ReportDone = Callable[[int], None]
"""Receives the number of rows so far; it may raise to stop the prediction."""


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
    report: ReportDone = lambda rows: None,
) -> PredictedFile:
    """Write the predictions of the rows of `data` to `out`, after the columns to `keep`. `tables`: files for
    the joins, instead of those of the model's folder. `report`: called with the rows so far.

    Raises UsageError: a file that is not there, a column to keep that it lacks, a suffix without a format;
    DataError: rows that cannot be read, columns that are missing or of another type. Nothing is written then.
    """
    opened = open_rows(data, model.record.recipe.image)
    given = {name: open_rows(path) for name, path in tables.items()}
    return _predict_rows(model, opened, str(data), out, keep, given, report)


def predict_source(
    model: FittedModel, recipe: Recipe, store: Store, remote: RemoteSources, out: Path, report: ReportDone
) -> PredictedFile:
    """Write the predictions of the rows of a recipe's main table to `out`, as `predict_file` does. Tables for
    the joins are those of the recipe's source, and else those of the model's folder.

    Raises RecipeError: the recipe names no data, or other images than the model's; DataError: also for data
    that changes meanwhile; what RemoteSources raises, and what `report` raises.
    """
    if recipe.image != model.record.recipe.image:
        raise RecipeError("`image` of the source differs from that of the model's recipe: write it as there")
    used = {recipe.main, *model.record.inputs.joined}
    # Other tables are not read, so those on servers are not fetched.
    read = recipe.model_copy(update={"source": {k: each for k, each in recipe.source.items() if k in used}})
    with FetchFolder(remote, store, lambda found, done: report(0)) as fetched:
        raw = RawFiles.of(read, store, remote, fetched)
        opened = {name: rows_of(files, read.source[name].image) for name, files in raw.by_table.items()}
        main = opened.pop(recipe.main)
        found = _predict_rows(model, main, f"table {recipe.main}", out, recipe.keep, opened, report)
    unchanged_sources(read, raw.digests, store, remote)
    return found


def _predict_rows(
    model: FittedModel,
    opened: InputRows,
    place: str,
    out: Path,
    keep: Sequence[str],
    tables: Mapping[str, InputRows],
    report: ReportDone,
) -> PredictedFile:
    """Write the predictions of rows, which messages call `place`."""
    image = model.record.recipe.image
    if missing := [name for name in keep if name not in opened.columns]:
        raise UsageError(f"{place} has no column {missing[0]} to keep: it has {', '.join(opened.columns)}")
    given = {name: model.read_table(name, read_whole(rows)) for name, rows in tables.items()}
    rows = model.reader(opened.columns, place, given)
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
