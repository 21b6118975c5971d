"""The raw columns that the features of a model are computed from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations

from pydantic import Field

from shoestring.core.datasets import GROUP_COLUMN, TARGET_COLUMN, Encoding
from shoestring.core.record import Record
from shoestring.data.loading.record_columns import column_of
from shoestring.data.recipe import Join, Recipe
from shoestring.data.transforms.dates import elapsed_name, part_names
from shoestring.data.transforms.encode import encoded_name
from shoestring.data.transforms.hashing.hashed_text import hashed_names
from shoestring.models.raw_columns import RawColumn


class ModelInputs(Record):
    """What a model reads of its tables.

    - main: the columns of the main table that features are computed from.
    - keys: those that joins look rows up by.
    - joins: of each table that a feature comes from the columns that are used, in the order of the joins.
    - joined: the columns of these tables.
    - dates, texts: the columns whose parts and distances, or words, are features.
    """

    main: tuple[RawColumn, ...]
    keys: tuple[RawColumn, ...] = ()
    joins: tuple[Join, ...] = ()
    joined: dict[str, tuple[RawColumn, ...]] = Field({})
    dates: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()


def inputs_of(
    encoding: Encoding, recipe: Recipe, tables: Mapping[str, Mapping[str, RawColumn]]
) -> ModelInputs:
    """Return what the features of an encoding are computed from. `tables`: all raw columns by table, as the
    data set has them."""
    known = [*tables[recipe.main], *(name for join in recipe.joins for name in join.columns)]
    sources = _sources(known)
    used, dates, texts = set[str](), set[str](), set[str]()
    for feature in encoding.features:
        column = column_of(feature)
        if column not in sources:
            pair = next(pair for pair in permutations(known, 2) if elapsed_name(*pair) == column)
            used.update(pair)
            dates.update(pair)
            continue
        name, use = sources[column]
        used.add(name)
        if use != "value":
            (dates if use == "date" else texts).add(name)
    joins, keys = list[Join](), set[str]()
    for join in reversed(recipe.joins):
        if columns := tuple(name for name in join.columns if name in used or name in keys):
            joins.insert(0, join.model_copy(update={"columns": columns}))
            keys |= {*join.by}
    main = tables[recipe.main]
    return ModelInputs(
        main=tuple(main[name] for name in main if name in used),
        keys=tuple(main[name] for name in main if name in keys),
        joins=tuple(joins),
        joined={
            join.table: tuple(tables[join.table][name] for name in (*join.by, *join.columns))
            for join in joins
        },
        dates=tuple(name for name in known if name in dates),
        texts=tuple(name for name in known if name in texts),
    )


def _sources(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return for each name that a stored column may have the raw column that it is computed from, and how."""

    def found() -> Iterator[tuple[str, tuple[str, str]]]:
        for name in names:
            yield from ((part, (name, "date")) for part in part_names(name))
            yield from ((words, (name, "text")) for words in hashed_names(name))
        for name in names:
            # A column of its own goes before the part of another.
            yield encoded_name(name), (name, "value")

    return {stored: source for stored, source in found() if stored not in (TARGET_COLUMN, GROUP_COLUMN)}
