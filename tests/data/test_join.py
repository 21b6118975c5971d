from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoestring.core.errors import DataError, RecipeError
from shoestring.data.recipe import Join
from shoestring.data.transforms.join import JoinLookup

JOIN = Join(table="more", by=("k", "l"), columns=("v",))

keys = st.tuples(st.integers(0, 5) | st.none(), st.sampled_from(["a", "b", "ü", None]))


def columns(found: list[tuple[int | None, str | None]]) -> dict[str, pa.Array]:
    return {
        "k": pa.array([k for k, _ in found], pa.int64()),
        "l": pa.array([l_ for _, l_ in found], pa.string()),
    }


@given(left=st.lists(keys, max_size=30), right=st.lists(keys, max_size=15, unique=True))
def test_a_left_join_equals_a_dictionary_lookup_without_nulls(
    left: list[tuple[int | None, str | None]], right: list[tuple[int | None, str | None]]
) -> None:
    more = pa.table(
        columns(right) | {"v": pa.array([float(place) for place in range(len(right))], pa.float64())}
    )
    truth = {key: float(place) for place, key in enumerate(right) if None not in key}
    joined = JoinLookup(more, JOIN).join(pa.table(columns(left)))
    assert joined["v"].to_pylist() == [truth.get(key) for key in left]
    assert joined.select(["k", "l"]).equals(pa.table(columns(left)))


def test_keys_of_different_width_are_compared_by_value() -> None:
    lookup = JoinLookup(pa.table({"k": [1, 2], "v": [10, 20]}), Join(table="more", by=("k",), columns=("v",)))
    assert lookup.join(pa.table({"k": pa.array([2, 3, 1], pa.int8())}))["v"].to_pylist() == [20, None, 10]


def test_keys_of_incompatible_types_are_a_recipe_error() -> None:
    lookup = JoinLookup(pa.table({"k": [1, 2], "v": [10, 20]}), Join(table="more", by=("k",), columns=("v",)))
    with pytest.raises(RecipeError, match="compares string with int64"):
        lookup.join(pa.table({"k": ["x"]}))


def test_a_repeated_key_is_reported() -> None:
    with pytest.raises(DataError, match="1 repeated key, such as k = 1, l = a"):
        JoinLookup(pa.table({"k": [1, 2, 1], "l": ["a", "a", "a"], "v": [1, 2, 3]}), JOIN)
