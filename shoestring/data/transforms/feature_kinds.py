"""Which columns become features, and of which kind: by the recipe and by their types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from shoestring.core.errors import RecipeError
from shoestring.data.metrics import Task
from shoestring.data.recipe import Recipe
from shoestring.data.transforms.dates import elapsed_names, is_date, part_names
from shoestring.data.transforms.encode import FeatureKind
from shoestring.data.transforms.hashing.hashed_text import TextLook, hashed_names
from shoestring.data.transforms.joined_table import JoinedTable
from shoestring.data.transforms.target import TargetFit, is_known, is_numeric


@dataclass(frozen=True, slots=True)
class ColumnKinds:
    """The kinds of the features, in the order of their columns, and the task. `dates`: the columns whose
    parts are features too. `texts`: those whose hashed words are features, instead of a category or as well.
    """

    features: Mapping[str, FeatureKind]
    dates: tuple[str, ...]
    task: Task
    texts: tuple[str, ...] = ()


def column_kinds(recipe: Recipe, table: JoinedTable, schema: pa.Schema) -> ColumnKinds:
    """Return the kinds of the columns of `table`. Only columns that their types leave open are read.

    Raises RecipeError for features and targets whose types do not fit.
    """
    features, dates = feature_types(recipe, schema), date_columns(recipe, schema)
    target = TargetFit(recipe.target, schema.field(recipe.target.column).type)
    looks = {name: TextLook() for name in possible_texts(recipe, schema)}
    for columns in table.column_chunks([*looks, recipe.target.column]):
        for name in columns.column_names:
            column = columns[name]
            if name == recipe.target.column:
                target.add(column.filter(is_known(column)))
            elif not looks[name].is_over:
                looks[name].add(column)
    decided = {**features}
    for date in dates:
        decided |= dict.fromkeys(part_names(date), "categorical")
        # The times of val and test are later than all that train has.
        if recipe.names_features or date != recipe.split.time:
            decided[date] = "numeric"
    if not recipe.names_features:
        decided |= dict.fromkeys(elapsed_names(dates, schema.names), "numeric")
    texts = recipe.texts or tuple(name for name, look in looks.items() if look.is_free or look.is_shared)
    for text in texts:
        if text in looks and looks[text].is_free:
            decided.pop(text, None)
        decided |= dict.fromkeys(hashed_names(text), "numeric")
    if taken := {*schema.names} & {name for text in texts for name in hashed_names(text)}:
        raise RecipeError(
            f"free text becomes columns called {', '.join(sorted(taken)[:3])}, which the table has too: "
            "rename those, or name features under `categorical`, `numeric`, `dates` and `texts`"
        )
    return ColumnKinds(decided, dates, target.task, texts)


def feature_types(recipe: Recipe, schema: pa.Schema) -> dict[str, FeatureKind]:
    """Return the columns to encode, and their kinds.

    Without named features these are all columns but the target, the weight, the leaks, the groups, dates and
    times, and `split.time`. Raises RecipeError for columns whose types do not fit.
    """
    for name in recipe.numeric:
        if pa.types.is_string(schema.field(name).type):
            raise RecipeError(
                f"the numeric feature {name} contains text: name it under `categorical`, "
                "or fix the values that are not numbers"
            )
    if recipe.weight and not is_numeric(kind := schema.field(recipe.weight).type):
        raise RecipeError(
            f"the weight {recipe.weight} is of type {kind}, not a number: name another column, "
            "or fix the values that are not numbers"
        )
    named: dict[str, FeatureKind] = {
        **dict.fromkeys(recipe.categorical, "categorical"),
        **dict.fromkeys(recipe.numeric, "numeric"),
    }
    for name in recipe.texts:
        if not pa.types.is_string(schema.field(name).type):
            raise RecipeError(
                f"the column {name}, named under `texts`, is of type {schema.field(name).type}: "
                "name it under `categorical`, `numeric` or `dates`"
            )
    if recipe.names_features:
        return named
    return {
        field.name: _kind_of(field.type)
        for field in _free_columns(recipe, schema)
        if not pa.types.is_temporal(field.type) and field.name != recipe.split.time
    }


def possible_texts(recipe: Recipe, schema: pa.Schema) -> list[str]:
    """Return the columns that are free text if their values are; none when the recipe names features."""
    if recipe.names_features:
        return []
    return [each.name for each in _free_columns(recipe, schema) if pa.types.is_string(each.type)]


def date_columns(recipe: Recipe, schema: pa.Schema) -> tuple[str, ...]:
    """Return the columns of dates to use: those that the recipe names; all, when it names no features.

    Raises RecipeError for a column that holds no dates, and when a part's name is taken.
    """
    for name in recipe.dates:
        if not is_date(schema.field(name).type):
            raise RecipeError(
                f"the column {name}, named under `dates`, is of type {schema.field(name).type}: "
                "name it under `categorical` or `numeric`, or write its dates as YYYY-MM-DD"
            )
    found = recipe.dates
    if not recipe.names_features:
        found = tuple(each.name for each in _free_columns(recipe, schema) if is_date(each.type))
    taken = {*schema.names} & {part for name in found for part in part_names(name)}
    if taken:
        raise RecipeError(
            f"dates become columns called {', '.join(sorted(taken))}, which the table has too: rename those, "
            "or name features under `categorical`, `numeric` and `dates`"
        )
    return found


def _free_columns(recipe: Recipe, schema: pa.Schema) -> list[pa.Field]:
    """Return the columns that are features unless the recipe names some."""
    return [field for field in schema if field.name not in recipe.unused_columns]


def _kind_of(kind: pa.DataType) -> FeatureKind:
    """Numbers are no categories, however few there are: categories have no order, and the rare ones are
    one."""
    return "numeric" if is_numeric(kind) else "categorical"
