"""Do the columns that a recipe names exist?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shoestring.core.errors import RecipeError
from shoestring.data.recipe import Recipe


def check_columns(recipe: Recipe, tables: Mapping[str, Sequence[str]]) -> None:
    """`tables`: the columns of each. A misspelt leak would leak, so leaks are checked as well. Raises RecipeError."""
    known = list(tables[recipe.main])
    for join in recipe.joins:
        _require(f"the join with {join.table}", join.by, known, f"table {recipe.main}")
        _require(
            f"the join with {join.table}",
            (*join.by, *join.columns),
            tables[join.table],
            f"table {join.table}",
        )
        if both := sorted(set(join.columns) & set(known)):
            raise RecipeError(
                f"the join with {join.table} brings in {', '.join(both)}, which {recipe.main} has already: leave it out of `columns`"
            )
        known += join.columns
    place = " and ".join(
        dict.fromkeys([f"table {recipe.main}", *(f"table {join.table}" for join in recipe.joins)])
    )
    _require("the target", (recipe.target.column,), known, place)
    _require("split.by", recipe.split.by, known, place)
    _require("leaks", recipe.leaks, known, place)
    _require("the features", (*recipe.categorical, *recipe.numeric), known, place)


def _require(what: str, wanted: Sequence[str], known: Sequence[str], place: str) -> None:
    if missing := [name for name in wanted if name not in known]:
        verb = "is not a column" if len(missing) == 1 else "are not columns"
        raise RecipeError(f"{what}: {', '.join(missing)} {verb} of {place}, which has {', '.join(known)}")
