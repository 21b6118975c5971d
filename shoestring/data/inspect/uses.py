"""Find the use of each column of a recipe's tables, or why it is not used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from shoestring.data.inspect.columns import SampleColumn
from shoestring.data.inspect.page_records import Use
from shoestring.data.recipe import Recipe
from shoestring.data.transforms.encode import MIN_CATEGORY_ROWS, FeatureKind
from shoestring.data.transforms.feature_kinds import (
    date_columns,
    feature_types,
    possible_texts,
)
from shoestring.data.transforms.hashing.hashed_text import BUCKETS, TextLook, look_at

BOTH: Use = "category and words"


def type_name(kind: pa.DataType) -> str:
    """Return the type of a column in words."""
    types = pa.types
    for name, is_of in (
        ("whole number", types.is_integer),
        ("number", types.is_floating),
        ("true or false", types.is_boolean),
        ("date and time", types.is_timestamp),
        ("date", types.is_date),
        ("text", types.is_string),
    ):
        if is_of(kind):
            return name
    return str(kind)


def column_uses(
    recipe: Recipe, schema: pa.Schema, columns: Sequence[SampleColumn], rows: pa.Table
) -> dict[str, tuple[Use, str]]:
    """Return what each column is used as, and why: the recipe's key, or what the sample shows.

    `schema`: the types of all columns that a run would have. `rows`: the sample.

    Raises:
        RecipeError: the type of a column that the recipe names does not fit its key.
    """
    features, dates = feature_types(recipe, schema), date_columns(recipe, schema)
    found = {each.name: _use(recipe, each, features, dates) for each in columns}
    for name in recipe.texts:
        is_both = name in recipe.categorical
        found[name] = (BOTH, "`categorical` and `texts`") if is_both else ("text", "`texts`")
    hashed = f"its words are hashed into {BUCKETS} numbers"
    for name in possible_texts(recipe, schema):
        look = look_at(rows[name]) if name in rows.column_names else TextLook()
        if look.is_free:
            found[name] = "text", f"free text: {hashed}"
        elif look.is_shared:
            use, reason = found[name]
            found[name] = BOTH if use == "categorical" else "text", f"{reason}; {hashed}"
    return found


def _use(
    recipe: Recipe, column: SampleColumn, features: Mapping[str, FeatureKind], dates: Sequence[str]
) -> tuple[Use, str]:
    name, is_named = column.name, recipe.names_features
    if name == recipe.target.column:
        return "target", "`target`"
    if name == recipe.weight:
        return "weight", _weight_reason(column)
    if name in recipe.leaks:
        return "leak", "`leaks`"
    if name in recipe.image_columns and name not in features:
        return "not used", "the paths of the images"
    if name in dates:
        moment = " and hour" if name == recipe.split.time else ", hour and moment"
        days = ", and days between dates" if len(dates) > 1 else ""
        return "date", "`dates`" if is_named else f"its month, weekday{moment}{days}"
    if name in features:
        kind = features[name]
        return (kind, f"`{kind}`") if is_named else _inferred_use(column, kind)
    if name == recipe.split_column:
        return "not used", "`split.column`" if recipe.split.column else "`splits`: the names of the files"
    if name in recipe.split.by:
        return "group", "`split.by`"
    if name == recipe.split.time:
        return "not used", "`split.time`"
    if is_named:
        return "not used", "not named under `categorical`, `numeric`, `dates` or `texts`"
    return "not used", "a time of day"


def _weight_reason(column: SampleColumn) -> str:
    numbers = np.zeros(0) if column.numbers is None else column.numbers
    left_out = {"without a weight": int((~column.filled).sum()), "of weight 0": int((numbers == 0).sum())}
    found = " and ".join(f"{rows:,} {what}" for what, rows in left_out.items() if rows)
    return f"`weight`; of the rows read, {found} are left out" if found else "`weight`"


def _inferred_use(column: SampleColumn, kind: FeatureKind) -> tuple[Use, str]:
    """Return the use of a column that the recipe does not name: it has to differ from row to row."""
    filled = column.filled
    counts = np.bincount(column.codes[filled]) if filled.any() else np.zeros(1, np.int64)
    if not filled.any() or (len(column.values) < 2 and (kind == "categorical" or filled.all())):
        return "not used", "constant" if filled.any() else "without a value"
    if kind == "numeric":
        return kind, "a number"
    if counts.max() < MIN_CATEGORY_ROWS:
        return "not used", f"none of its values is in {MIN_CATEGORY_ROWS} rows or more"
    return kind, f"{len(column.values):,} values"
