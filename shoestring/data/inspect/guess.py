"""Guess a recipe from a data file: the target, the split and the leaks, each with its reason."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from shoestring.core.errors import DataError, RecipeError
from shoestring.core.interfaces import RemoteSources
from shoestring.data.inspect.columns import SampleColumn, sample_column
from shoestring.data.inspect.faults import find_faults
from shoestring.data.inspect.images import guess_images
from shoestring.data.inspect.page import inspect_samples
from shoestring.data.inspect.page_records import DataPage, DataWarning
from shoestring.data.inspect.sample import read_image_sample, read_sample
from shoestring.data.inspect.schema.time_remarks import time_proposal
from shoestring.data.inspect.tables.split_page import has_split_names
from shoestring.data.inspect.tables.table_sample import TableSample
from shoestring.data.recipe import Recipe, Target
from shoestring.data.source import Source
from shoestring.data.sources.check_columns import check_columns
from shoestring.data.sources.files import list_data_files
from shoestring.data.sources.open_table import left_out_of, open_images, open_table
from shoestring.data.sources.remote.no_remote import NO_REMOTE_SOURCES
from shoestring.data.sources.table import FilesTable
from shoestring.data.split_settings import split_of_word
from shoestring.data.transforms.target import MAX_CLASSES

TABLE = "rows"

TARGET_NAME = re.compile(
    r"^(y|target|label|labels|class|classes|outcome|response|result|churn|churned|survived|default|"
    r"defaulted|fraud|is_fraud|converted|diagnosis|species|quality|price|sales|income|rating|score)$",
    re.I,
)
"""Names of columns that people predict."""

GROUP_NAME = re.compile(
    r"^(customer|client|user|patient|account|subject|person|member|household|session|device|store|group|"
    r"family|individual)([_ ]?(id|number|no|key))?$|[_ ]id$",
    re.I,
)
"""Names of columns whose rows belong together."""

MIN_GROUPS = 30
MAX_GROUP_SHARE = 0.5
"""A column splits the rows by group when it has at least this many values, and at most this many a row."""

MAX_TARGET_SHARE = 0.5
"""Text with more different values for each row than this is no class to predict."""

MAX_ALTERNATIVES = 5

MAX_SPLIT_WORDS = 10
"""A column with more values does not name splits."""


@dataclass(frozen=True, slots=True)
class RecipeGuess:
    """A recipe for one table, and the reasons for what is in it.

    `alternatives`: other columns that could be the target. `split_reason`: why rows are split by group; empty
    if they are not. `leaks`: the columns that become no features, and why. `by_time`: what proposes a split
    by time.
    """

    recipe: Recipe
    page: DataPage
    is_target_given: bool
    alternatives: tuple[str, ...]
    split_reason: str
    leaks: tuple[DataWarning, ...]
    by_time: tuple[str, ...] = ()


def guess_recipe(
    data: str, target: str | None = None, remote: RemoteSources = NO_REMOTE_SOURCES
) -> RecipeGuess:
    """Return the recipe for a file, or a folder of files of one table. A run of it is not refused.

    `data`: its path or its URL.

    Raises:
        RecipeError: there is no such file, or no column `target`.
        DataError: no column can be the target, or a run would be refused.
        SourceUnreachable, UsageError: `remote` cannot read the URL.
    """
    source, table, sample = _read(_source(data), remote)
    columns = [sample_column(name, sample.rows[name]) for name in sample.rows.column_names]
    candidates = [target] if target else _candidates(columns, sample.rows_read)
    if not candidates:
        raise DataError(f"no column of {data} looks like a target: name one with --target")
    recipe = Recipe(
        name=recipe_name(data), source={TABLE: source}, main=TABLE, target=Target(column=candidates[0])
    )
    alternatives = tuple(candidates[1 : MAX_ALTERNATIVES + 1])
    check_columns(recipe, {TABLE: sample.rows.column_names}, left_out_of({TABLE: table}))

    def inspect(recipe: Recipe) -> DataPage:
        return inspect_samples(recipe, {TABLE: sample}, remote)

    found = RecipeGuess(recipe, inspect(recipe), target is not None, alternatives, "", ())
    found = _with_leaks(found, inspect)
    by_time = tuple(time_proposal(found.recipe, columns, {each.column for each in found.leaks}))
    found = replace(_with_split(found, columns, inspect), by_time=by_time)
    if found.page.refusal:
        raise DataError(f"no run of this recipe would start: {found.page.refusal}")
    return found


def _read(source: Source, remote: RemoteSources) -> tuple[Source, FilesTable, TableSample]:
    """Return the source with what its files are, its table, and a sample of it."""
    files = list_data_files(source, remote)
    if has_split_names(file.name for file in files):
        source = source.model_copy(update={"splits": True})
        files = list_data_files(source, remote)
    table = open_table(files)
    if (image := guess_images(table)) is None:
        return source, table, read_sample(TABLE, files, table)
    sample = read_image_sample(TABLE, files, open_images(image, files))
    return source.model_copy(update={"image": image}), table, sample


def _source(data: str) -> Source:
    """Return the source of a path or a URL. Raises RecipeError."""
    try:
        return Source(url=data) if "://" in data else Source(path=Path(data))
    except ValidationError as error:
        # What follows `?`, or precedes `@`, may be a credential.
        shown = re.sub(r"//[^/]*@", "//", data.partition("?")[0])
        raise RecipeError(f"{shown}: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None


def recipe_name(data: str) -> str:
    """Return a name for the recipe of a file: the file's, in lower case, with `-` for other characters."""
    stem = Path(data).absolute().name.split(".")[0].lower()
    return re.sub(r"[^a-z0-9_-]+", "-", stem).strip("-_")[:63] or "data"


def _candidates(columns: Sequence[SampleColumn], rows: int) -> list[str]:
    """Return the columns that could be the target: those with a usual name, then from the last on."""
    faulty = {warning.column for warning in find_faults(columns, None, rows)}
    possible = [each for each in columns if each.name not in faulty and _can_be_target(each)]
    last_first = [each.name for each in reversed(possible)]
    return sorted(last_first, key=lambda name: not TARGET_NAME.match(name))


def _can_be_target(column: SampleColumn) -> bool:
    values, filled = len(column.values), int(column.filled.sum())
    if values < 2 or column.is_date or GROUP_NAME.search(column.name) or _names_splits(column):
        return False
    return column.numbers is not None or values <= min(MAX_CLASSES, MAX_TARGET_SHARE * filled)


def _with_leaks(found: RecipeGuess, inspect: Callable[[Recipe], DataPage]) -> RecipeGuess:
    """Return the guess without the features that look wrong, if any feature remains."""
    leaks = tuple(each for each in found.page.warnings if each.fault != "constant")
    recipe = found.recipe.model_copy(update={"leaks": tuple(each.column for each in leaks)})
    page = inspect(recipe) if leaks else found.page
    if page.refusal:
        return found
    late = {each.column for each in leaks if each.fault == "leak in time"}
    others = tuple(name for name in found.alternatives if name not in late)
    return replace(found, recipe=recipe, page=page, leaks=leaks, alternatives=others)


def _with_split(
    found: RecipeGuess, columns: Sequence[SampleColumn], inspect: Callable[[Recipe], DataPage]
) -> RecipeGuess:
    """Return the guess with rows split by a group, if a column shows groups and each split gets some; or as a
    column or the names of the files give the splits."""
    if found.recipe.split_column:
        return found
    given: list[tuple[dict[str, Any], str]] = [
        ({"column": each.name}, "its values name splits") for each in columns if _names_splits(each)
    ]
    groups = (({"by": (name,)}, reason) for name, reason in _groups(found, columns))
    for update, reason in (*given, *groups):
        split = found.recipe.split.model_copy(update=update)
        recipe = found.recipe.model_copy(update={"split": split})
        page = inspect(recipe)
        if not page.refusal and min(page.splits.values()):
            return replace(found, recipe=recipe, page=page, split_reason=reason)
    return found


def _names_splits(column: SampleColumn) -> bool:
    if not column.is_text or len(column.values) > MAX_SPLIT_WORDS:
        return False
    splits = {split_of_word(str(value)) for value in column.values.to_pylist()}
    return "train" in splits and len(splits) > 1 and None not in splits


def _groups(found: RecipeGuess, columns: Sequence[SampleColumn]) -> Iterator[tuple[str, str]]:
    """Yield the columns whose rows belong together, and why: groups by their name first, then dates."""
    possible = [
        each
        for each in columns
        if each.name not in (found.recipe.target.column, *found.recipe.leaks)
        and each.filled.all()
        and MIN_GROUPS <= len(each.values) <= MAX_GROUP_SHARE * len(each.codes)
    ]
    for each in sorted(possible, key=lambda each: each.is_date):
        if each.is_date or GROUP_NAME.search(each.name):
            yield each.name, f"rows of one {each.name} may resemble each other, so they go to the same split"
