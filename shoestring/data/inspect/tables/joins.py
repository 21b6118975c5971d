"""The joins of a sample: how many rows of the main table find a row in each of the other tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from shoestring.core.errors import RecipeError
from shoestring.data.inspect.page_records import JoinEntry
from shoestring.data.inspect.tables.table_sample import TableSample
from shoestring.data.recipe import Join, Recipe
from shoestring.data.transforms.join import JoinLookup

MIN_MATCHED = 0.5
"""A join that finds a row for a smaller share of the rows is named."""

MAX_KEYS_SHOWN = 3


@dataclass(frozen=True, slots=True)
class JoinedSample:
    """The rows of the main table with its joins. `refusal`: of a join that found no row, if all rows were
    read."""

    rows: pa.Table
    entries: tuple[JoinEntry, ...]
    refusal: RecipeError | None


def join_sample(recipe: Recipe, samples: Mapping[str, TableSample]) -> JoinedSample:
    """Return the sample of the main table with its joins.

    A join is left out if its table is too large to be read whole, or if its keys and those of the sample are
    of different types, which all rows may not be. Raises DataError for repeated keys, and RecipeError for
    keys of different types in tables that were read whole.
    """
    main, entries, refusal = samples[recipe.main], list[JoinEntry](), None
    joined = main.rows
    for join in recipe.joins:
        if not samples[join.table].is_whole:
            continue
        lookup = JoinLookup(samples[join.table].rows, join)
        try:
            joined = lookup.join(joined)
        except RecipeError:
            if main.is_whole:
                raise
            continue
        entries.append(_entry(join, lookup))
        try:
            lookup.check()
        except RecipeError as error:
            refusal = refusal or error
    return JoinedSample(joined, tuple(entries), refusal if main.is_whole else None)


def _entry(join: Join, lookup: JoinLookup) -> JoinEntry:
    similar, count = lookup.similar_keys(), lookup.count
    return JoinEntry(
        table=join.table,
        by=join.by,
        rows=count.rows,
        matched=count.matched,
        unmatched=tuple(count.unmatched[:MAX_KEYS_SHOWN]),
        similar=similar or (),
    )


def join_findings(entries: Sequence[JoinEntry]) -> Iterator[str]:
    """Yield a sentence for each join that finds a row for less than half of the rows."""
    for each in entries:
        if each.matched >= MIN_MATCHED * each.rows:
            continue
        keys = ", ".join(map(repr, each.unmatched))
        without = f"; the keys {keys} found none" if keys else f"; the others have no value in {each.key}"
        like = f" ({each.table} has {each.similar[1]!r})" if each.similar else ""
        yield f"{each.sentence}{without}{like}"
