"""Check that the columns named in a recipe exist."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shoestring.core.errors import RecipeError
from shoestring.data.recipe import Recipe


def check_columns(recipe: Recipe, tables: Mapping[str, Sequence[str]]) -> None:
    """Check all columns that the recipe names. `tables` maps each table to its columns. Raises RecipeError.

    `leaks` are checked as well, because a misspelt leak would be used as a feature.
    """
    known = list(tables[recipe.main])
    for join in recipe.joins:
        usage, other = f"the join with {join.table}", f"table {join.table}"
        _require(usage, join.by, known, f"table {recipe.main}")
        _require(usage, (*join.by, *join.columns), tables[join.table], other)
        if both := sorted(set(join.columns) & set(known)):
            raise RecipeError(
                f"the join with {join.table} adds {', '.join(both)}, which {recipe.main} already has: "
                "remove it from `columns`"
            )
        known += join.columns
    columns = [*dict.fromkeys(name for found in tables.values() for name in found)]
    _require("kinds", [*recipe.kinds], columns, "a table")
    if recipe.image is not None:
        _require("image.column", (recipe.image.column,), tables[recipe.main], f"table {recipe.main}")
    place = " and ".join(
        dict.fromkeys([f"table {recipe.main}", *(f"table {join.table}" for join in recipe.joins)])
    )
    _require("the target", (recipe.target.column,), known, place)
    _require("split.by", recipe.split.by, known, place)
    _require("leaks", recipe.leaks, known, place)
    features = (*recipe.categorical, *recipe.numeric, *recipe.dates, *recipe.texts)
    _require("the features", features, known, place)


def _require(usage: str, wanted: Sequence[str], known: Sequence[str], place: str) -> None:
    if missing := [name for name in wanted if name not in known]:
        verb = "is not a column" if len(missing) == 1 else "are not columns"
        raise RecipeError(f"{usage}: {', '.join(missing)} {verb} of {place}, which has {', '.join(known)}")
