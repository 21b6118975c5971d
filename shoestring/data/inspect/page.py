"""The data page: how each column of a recipe is read and used, the target, and what looks wrong.

It is made from a sample of bounded size. Nothing is reserved, and nothing is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from shoestring.core.errors import DataError, RecipeError
from shoestring.core.interfaces import RemoteSources
from shoestring.data.increments.schema_version import NO_SCHEMA, SchemaVersion
from shoestring.data.inspect.columns import SampleColumn, SampleTarget, sample_column, sample_target
from shoestring.data.inspect.faults import find_faults, weight_fault
from shoestring.data.inspect.images import image_entry
from shoestring.data.inspect.page_records import (
    ClassShare,
    ColumnEntry,
    DataPage,
    DataWarning,
    JoinEntry,
    TargetEntry,
    Use,
)
from shoestring.data.inspect.preview import preview_target
from shoestring.data.inspect.sample import read_samples
from shoestring.data.inspect.schema.column_readings import check_numeric, column_remarks, file_remarks
from shoestring.data.inspect.schema.left_out import left_out_entries
from shoestring.data.inspect.schema.schema_changes import check_misfits, schema_changes
from shoestring.data.inspect.schema.time_remarks import time_remarks
from shoestring.data.inspect.tables.joins import join_findings, join_sample
from shoestring.data.inspect.tables.labels import label_findings
from shoestring.data.inspect.tables.lost_rows import losing_classes
from shoestring.data.inspect.tables.split_page import (
    page_splits,
    split_column_remarks,
    split_findings,
    split_names,
    split_remarks,
)
from shoestring.data.inspect.tables.table_files import doubled_files, file_entries
from shoestring.data.inspect.tables.table_sample import THOROUGH, SampleSize, TableSample
from shoestring.data.inspect.texts.text_page import text_page
from shoestring.data.inspect.uses import column_uses, type_name
from shoestring.data.recipe import Recipe
from shoestring.data.sources.files import estimate_size
from shoestring.data.sources.remote.no_remote import NO_REMOTE_SOURCES
from shoestring.data.values import WrittenDate, WrittenNumber

MAX_CLASSES_SHOWN = 10
UNKNOWN_USE: tuple[Use, str] = ("not used", "the types of the rows read do not fit the recipe")
QUANTILES = {"minimum": 0.0, "5%": 0.05, "25%": 0.25, "median": 0.5, "75%": 0.75, "95%": 0.95, "maximum": 1.0}


def inspect_data(
    recipe: Recipe,
    remote: RemoteSources = NO_REMOTE_SOURCES,
    known: SchemaVersion = NO_SCHEMA,
    size: SampleSize = THOROUGH,
) -> DataPage:
    """Return the data page of a recipe. What a run would be refused for is its `refusal`.

    `known`: the columns of the last version of the data. `size`: how much of a table is read.

    Raises:
        RecipeError: a file or a column that the recipe names does not exist.
        DataError: a file cannot be read, or has no rows.
        SourceUnreachable, UsageError: `remote` cannot read a URL.
    """
    if recipe.text is not None:
        return text_page(recipe, recipe.text, remote)[0]
    return inspect_samples(recipe, read_samples(recipe, remote, size, known), remote, known)


def inspect_samples(
    recipe: Recipe,
    samples: Mapping[str, TableSample],
    remote: RemoteSources,
    known: SchemaVersion = NO_SCHEMA,
) -> DataPage:
    """Return the same of samples that are read already."""
    try:
        check_misfits(samples)
        check_numeric(recipe, samples)
        prediction, refusal = preview_target(recipe, samples), ""
    except (DataError, RecipeError) as error:
        prediction, refusal = "", str(error)
    page, misfit = _page(recipe, samples, remote, prediction, known)
    return page.model_copy(update={"refusal": refusal or (str(misfit) if misfit else "")})


def page_of_run(
    recipe: Recipe, remote: RemoteSources = NO_REMOTE_SOURCES, known: SchemaVersion = NO_SCHEMA
) -> DataPage:
    """Return the data page of a recipe that a run can use. Raises what a run would be refused for, too."""
    if recipe.text is not None:
        page, refusal = text_page(recipe, recipe.text, remote)
        if refusal is not None:
            raise refusal
        return page
    samples = read_samples(recipe, remote, known=known)
    check_misfits(samples)
    check_numeric(recipe, samples)
    page, misfit = _page(recipe, samples, remote, preview_target(recipe, samples), known)
    if misfit is not None:
        raise misfit
    return page


def _page(
    recipe: Recipe,
    samples: Mapping[str, TableSample],
    remote: RemoteSources,
    prediction: str,
    known_schema: SchemaVersion,
) -> tuple[DataPage, RecipeError | None]:
    """Return the page, and what does not fit the recipe if all rows were read: a type, or a join."""
    joined = (found := join_sample(recipe, samples)).rows
    main, target = samples[recipe.main], _target(recipe, joined)
    columns = [sample_column(name, joined[name]) for name in joined.column_names]
    uses, misfit = _uses(recipe, _schema(recipe, samples, joined), columns, joined)
    rows, known = _row_count(recipe, main, remote), int(target.known.sum()) if target else 0
    entries = (*_entries(recipe, samples, columns, uses), *left_out_entries(recipe.main, main.table))
    splits, unit = page_splits(recipe, joined, main, target, rows * known // joined.num_rows)
    page = DataPage(
        recipe=recipe.name,
        rows=rows,
        is_whole=main.is_whole,
        rows_read=joined.num_rows,
        sample=main.part_read,
        misfits=main.misfits,
        lost=main.lost,
        unread=main.unread,
        files=_file_remarks(recipe, samples),
        listed=file_entries(samples),
        joins=found.entries,
        findings=_findings(recipe, samples, found.entries, columns, uses, target, joined),
        without_target=joined.num_rows - known,
        splits=splits,
        unit=unit,
        prediction=prediction,
        refusal="",
        target=_target_entry(target) if target else None,
        columns=entries,
        changes=schema_changes(known_schema, samples, entries),
        warnings=(warnings := _warnings(recipe, columns, target, rows)),
        times=time_remarks(recipe, samples, columns, {each.column for each in warnings}),
        images=image_entry(recipe.image, main.table) if recipe.image is not None else None,
    )
    return page, (misfit or found.refusal) if main.is_whole else None


def _file_remarks(recipe: Recipe, samples: Mapping[str, TableSample]) -> tuple[str, ...]:
    """Return how files are read that are not plain, and the splits that they or a column give."""
    main = samples[recipe.main]
    return (
        *file_remarks(sample.table for sample in samples.values()),
        *split_remarks(recipe, split_names(recipe, main)),
        *split_column_remarks(recipe, main),
    )


def _entries(
    recipe: Recipe,
    samples: Mapping[str, TableSample],
    columns: Sequence[SampleColumn],
    uses: Mapping[str, tuple[Use, str]],
) -> tuple[ColumnEntry, ...]:
    owners = {name: join.table for join in recipe.joins for name in join.columns}
    return tuple(
        _entry(recipe, each, owner := owners.get(each.name, recipe.main), samples[owner], *uses[each.name])
        for each in columns
    )


def _findings(
    recipe: Recipe,
    samples: Mapping[str, TableSample],
    joins: Sequence[JoinEntry],
    columns: Sequence[SampleColumn],
    uses: Mapping[str, tuple[Use, str]],
    target: SampleTarget | None,
    rows: pa.Table,
) -> tuple[str, ...]:
    """Return what looks wrong in the tables, their files, joins and labels."""
    labels = {name for name, (use, _) in uses.items() if use in ("categorical", "category and words")}
    return (
        *doubled_files(samples),
        *(each for sample in samples.values() for each in sample.late),
        *join_findings(joins),
        *split_findings(recipe, rows, samples[recipe.main]),
        *losing_classes(recipe.main, samples[recipe.main], target),
        *label_findings(columns, target, labels, is_whole=samples[recipe.main].is_whole),
    )


def _uses(
    recipe: Recipe, schema: pa.Schema, columns: Sequence[SampleColumn], rows: pa.Table
) -> tuple[dict[str, tuple[Use, str]], RecipeError | None]:
    """Return the use of each column; and why there is none, if a type does not fit the recipe."""
    try:
        return column_uses(recipe, schema, columns, rows), None
    except RecipeError as error:
        return {each.name: UNKNOWN_USE for each in columns}, error


def _row_count(recipe: Recipe, main: TableSample, remote: RemoteSources) -> int:
    """Return the rows of the main table, or an estimate that is at least those read."""
    return (
        main.rows_read if main.is_whole else max(main.rows_read, estimate_size(recipe, remote).rows_estimate)
    )


def _schema(recipe: Recipe, samples: Mapping[str, TableSample], rows: pa.Table) -> pa.Schema:
    """Return the types of all columns of the main table and its joins, including joins that are left out."""
    schema = rows.schema
    for join in recipe.joins:
        fields = [samples[join.table].rows.schema.field(name) for name in join.columns]
        schema = pa.unify_schemas([schema, pa.schema(fields)])
    return schema


def _target(recipe: Recipe, rows: pa.Table) -> SampleTarget | None:
    """Return the target in the sample.

    None: it does not fit its task, or it is in a joined table that is left out.
    """
    try:
        return sample_target(recipe.target, rows[recipe.target.column])
    except (KeyError, RecipeError):
        return None


def _warnings(
    recipe: Recipe, columns: Sequence[SampleColumn], target: SampleTarget | None, rows: int
) -> tuple[DataWarning, ...]:
    """Return the warnings about the columns that may become features, and about the weight."""
    found = [fault for each in columns if each.name == recipe.weight for fault in weight_fault(each)]
    if named := {*recipe.categorical, *recipe.numeric, *recipe.dates, *recipe.texts}:
        features = [each for each in columns if each.name in named]
    else:
        features = [each for each in columns if each.name not in recipe.unused_columns]
    return (*find_faults(features, target, rows, are_named=bool(named)), *found)


def _entry(
    recipe: Recipe, column: SampleColumn, table: str, sample: TableSample, use: Use, reason: str
) -> ColumnEntry:
    reading = sample.readings.get(column.name)
    kind = reading.kind if reading else None
    written = f", written with {kind.name}" if isinstance(kind, WrittenNumber | WrittenDate) else ""
    is_category = column.name in recipe.categorical or use == "leak"
    return ColumnEntry(
        name=column.name,
        table=table,
        type=type_name(column.kind) + written,
        use=use,
        reason=reason,
        values=len(column.values),
        missing=int((~column.filled).sum()),
        missing_as=dict(reading.missing) if reading else {},
        remarks=column_remarks(column.name, sample, is_category=is_category),
    )


def _target_entry(target: SampleTarget) -> TargetEntry | None:
    if target.numbers is not None:
        numbers = np.quantile(target.numbers[target.known], list(QUANTILES.values()))
        found = dict(zip(QUANTILES, map(float, numbers), strict=True))
        return TargetEntry(column=target.name, task=target.task, quantiles=found)
    counts = np.bincount(target.codes[target.known], minlength=len(target.classes))
    shown = tuple(
        ClassShare(name=target.classes[code], share=round(float(counts[code] / counts.sum()), 6))
        for code in np.argsort(-counts, kind="stable")[:MAX_CLASSES_SHOWN]
    )
    return TargetEntry(
        column=target.name, task=target.task, class_count=int((counts > 0).sum()), classes=shown
    )
