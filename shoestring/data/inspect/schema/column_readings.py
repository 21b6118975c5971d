"""Name how columns of text are read, and what is left out, with the key that changes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from shoestring.core.errors import RecipeError
from shoestring.data.inspect.tables.table_sample import TableSample
from shoestring.data.recipe import Recipe
from shoestring.data.sources.column_types import ColumnKind, kind_name, parse_column
from shoestring.data.sources.data_file import SAMPLE_BYTES
from shoestring.data.sources.images.image_tables import ImagePaths
from shoestring.data.sources.quarantine import ColumnMisfits
from shoestring.data.sources.table import SourceTable
from shoestring.data.sources.text.type_guess import ColumnReading
from shoestring.data.sources.untyped_table import UntypedTable
from shoestring.data.values import NUMBER, TEXT, THOUSANDS, WrittenDate, WrittenNumber, text_array

MAX_FILES_NAMED = 3
MAX_NEARLY_SHARE = 0.1
"""A column of text is named as one that was meant to be numbers or dates when at most this share of its
values does not fit."""


def file_remarks(tables: Iterable[SourceTable]) -> Iterator[str]:
    """Yield how the files of tables are read that are not plain CSV, a sentence each."""
    for table in tables:
        text = table.table if isinstance(table, ImagePaths) else table
        files = text.files if isinstance(text, UntypedTable) else ()
        found = [f"{file.name}: {'; '.join(remarks)}" for file in files if (remarks := file.remarks)]
        yield from found[:MAX_FILES_NAMED]
        if len(found) > MAX_FILES_NAMED:
            yield f"{len(found) - MAX_FILES_NAMED:,} more files are read in such a way"


def column_remarks(name: str, sample: TableSample, *, is_category: bool) -> tuple[str, ...]:
    """Return what is to know of the reading of a column, a sentence each; of a plain column nothing.

    `is_category`: it is used as categories, however its values are written.
    """
    if (reading := sample.readings.get(name)) is None:
        return ()
    if reading.kind == TEXT:
        return () if is_category else tuple(filter(None, [why_text(name, reading)]))
    return tuple(_typed_remarks(name, reading, sample))


def _typed_remarks(name: str, reading: ColumnReading, sample: TableSample) -> Iterator[str]:
    for other in reading.others:
        assert isinstance(other, WrittenNumber)
        yield (
            f"{reading.example!r} is read as {_read(reading.example, reading.kind)}; "
            f"if it is {_read(reading.example, other)}, state {stated(name, other)}"
        )
    misfits = sample.misfit_values.get(name)
    # Those of a kind that is stated, or of an earlier version, are a change of the schema.
    is_fixed = isinstance(sample.table, UntypedTable) and name in sample.table.fixed
    if misfits is not None and not is_fixed:
        yield (
            f"{misfits.total:,} of {reading.values:,} values are not {kind_name(reading.kind)}; the first is "
            f"{misfits.value!r} in {misfits.file}, row {misfits.row_number}; they are read as missing"
        )


def _read(text: str, kind: ColumnKind) -> str:
    values, _ = parse_column(text_array((text,)), kind)
    return f"{values[0].as_py():.12g}"


def why_text(name: str, reading: ColumnReading) -> str:
    """Return why a column is text that was probably meant to be numbers or dates; empty: it was not."""
    if reading.others:
        keys = " or ".join(stated(name, each) for each in reading.others)
        return f"read as text, since dates such as {reading.example!r} have two readings; state {keys}"
    if reading.nearest is None or reading.misfits > MAX_NEARLY_SHARE * reading.values:
        return ""
    return (
        f"read as text, since {reading.misfits:,} of {reading.values:,} values, such as {reading.example!r}, "
        f"are not {kind_name(reading.nearest)}; correct them to use it as such"
    )


def stated(name: str, kind: ColumnKind) -> str:
    """Return the key of a recipe that states a kind."""
    if isinstance(kind, WrittenDate):
        return f"`kinds: {{{name}: {kind.name}}}`"
    is_comma = isinstance(kind, WrittenNumber) and kind.decimal == ","
    return f"`kinds: {{{name}: {'decimal comma' if is_comma else 'thousands commas'}}}`"


def check_numeric(recipe: Recipe, samples: Mapping[str, TableSample]) -> None:
    """Raise RecipeError, with the first row and value, if a column under `numeric` is text."""
    for name in recipe.numeric:
        owner = next(each for each in (recipe.main, *samples) if name in samples[each].table.names)
        sample = samples[owner]
        if name not in sample.rows.column_names or sample.rows.schema.field(name).type != TEXT:
            continue
        found, advice = _first_text(name, sample), "or name it under `categorical`"
        if found is None:
            raise RecipeError(f"the numeric feature {name} is text: state its kind under `kinds`, {advice}")
        raise RecipeError(
            f"the numeric feature {name} contains text, such as {found.value!r} in {found.file}, "
            f"row {found.row_number}: correct the values that are not numbers, {advice}"
        )


def _first_text(name: str, sample: TableSample) -> ColumnMisfits | None:
    """Return the first value that is not a number as most of its column are; None: it is not found."""
    if not isinstance(sample.table, UntypedTable):
        return None
    nearest = sample.readings[name].nearest
    kind = nearest if nearest == NUMBER or isinstance(nearest, WrittenNumber) else THOUSANDS
    for file in sample.table.files:
        before = 0
        for block in file.blocks(SAMPLE_BYTES):
            texts = block.column(name)
            _, bad = parse_column(texts, kind)
            if bad.any():
                index = int(bad.argmax())
                return ColumnMisfits(1, texts[index].as_py(), file.name, file.row_number(before + index))
            before += len(texts)
    return None
