"""Check that the columns named in a recipe exist."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType

from shoestring.core.datasets import IMAGE_COLUMN
from shoestring.core.errors import RecipeError
from shoestring.data.recipe import Recipe
from shoestring.data.sources.typed.arrow_types import LeftOut

NONE_LEFT_OUT: Mapping[str, LeftOut] = MappingProxyType({})


def check_columns(
    recipe: Recipe, tables: Mapping[str, Sequence[str]], left_out: Mapping[str, LeftOut] = NONE_LEFT_OUT
) -> None:
    """Check all columns that the recipe names. `tables` maps each table to its columns, less those that are
    `left_out`. Raises RecipeError.

    `leaks` are checked as well, because a misspelt leak would be used as a feature.
    """
    require = partial(_require, left_out)
    known = list(tables[recipe.main])
    for join in recipe.joins:
        usage, other = f"the join with {join.table}", f"table {join.table}"
        require(usage, join.by, known, f"table {recipe.main}")
        require(usage, (*join.by, *join.columns), tables[join.table], other)
        if both := sorted(set(join.columns) & set(known)):
            raise RecipeError(
                f"the join with {join.table} adds {', '.join(both)}, which {recipe.main} already has: "
                "remove it from `columns`"
            )
        known += join.columns
    columns = [*dict.fromkeys(name for found in tables.values() for name in found)]
    require("kinds", [*recipe.kinds], columns, "a table")
    if recipe.image is not None:
        of_bytes = [name for name, why in left_out.items() if why.holds_bytes]
        own = [name for name in dict.fromkeys([*tables[recipe.main], *of_bytes]) if name != IMAGE_COLUMN]
        require("image.column", (recipe.image.column,), own, f"table {recipe.main}")
    place = " and ".join(
        dict.fromkeys([f"table {recipe.main}", *(f"table {join.table}" for join in recipe.joins)])
    )
    require("the target", (recipe.target.column,), known, place)
    require("weight", (recipe.weight,) if recipe.weight else (), known, place)
    require("split.by", recipe.split.by, known, place)
    if recipe.split.time:
        # The boundaries are found before tables are joined.
        require("split.time", (recipe.split.time,), tables[recipe.main], f"table {recipe.main}")
    if recipe.split.column:
        require("split.column", (recipe.split.column,), tables[recipe.main], f"table {recipe.main}")
    # A leak may be a column that is left out in any case.
    require("leaks", recipe.leaks, [*known, *left_out], place)
    features = (*recipe.categorical, *recipe.numeric, *recipe.dates, *recipe.texts)
    require("the features", features, known, place)


def _require(
    left_out: Mapping[str, LeftOut], usage: str, wanted: Sequence[str], known: Sequence[str], place: str
) -> None:
    if missing := [name for name in wanted if name not in known]:
        if (why := left_out.get(missing[0])) is not None:
            raise RecipeError(
                f"{usage}: the column {missing[0]} is {why.sentence}; or do not name it, and it is left out"
            )
        verb = "is not a column" if len(missing) == 1 else "are not columns"
        raise RecipeError(f"{usage}: {', '.join(missing)} {verb} of {place}, which has {', '.join(known)}")
