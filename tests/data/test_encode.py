from __future__ import annotations

from datetime import UTC, datetime, time
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoestring.core.errors import DataError, RecipeError
from shoestring.data.recipe import Target
from shoestring.data.transforms.encode import (
    MAX_INFERRED_CATEGORIES,
    MIN_CATEGORY_ROWS,
    CategoryEncoder,
    FeatureFit,
    FeatureKind,
    NumberEncoder,
    RunningMoments,
)
from shoestring.data.transforms.target import MAX_INFERRED_CLASSES, TargetEncoder, TargetFit


def column(values: list[Any], kind: pa.DataType | None = None) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(values, kind)])


def fitted(kind: FeatureKind | None, *batches: pa.ChunkedArray) -> CategoryEncoder | NumberEncoder:
    fit = FeatureFit("x", kind)
    for batch in batches:
        fit.add(batch)
    return fit.encoder()


def answer(target: Target, values: pa.ChunkedArray) -> TargetEncoder:
    fit = TargetFit(target, values.type)
    fit.add(values)
    return fit.encoder()


def test_category_codes_are_sorted_from_one_and_rare_missing_or_unseen_ones_are_zero() -> None:
    codes = fitted(
        "categorical",
        column(
            ["b"] * MIN_CATEGORY_ROWS
            + ["a"] * MIN_CATEGORY_ROWS
            + ["rare"] * (MIN_CATEGORY_ROWS - 1)
            + [None]
        ),
    )
    (encoded,) = codes.encode(column(["a", "b", "rare", None, "never"]))
    assert encoded.type == pa.int32()
    assert encoded.to_pylist() == [1, 2, 0, 0, 0]
    assert codes.features()[0].cardinality == 3


def test_few_distinct_integers_are_inferred_as_categories_and_many_as_numbers() -> None:
    assert isinstance(
        fitted(None, column(list(range(MAX_INFERRED_CATEGORIES)) * MIN_CATEGORY_ROWS)), CategoryEncoder
    )
    assert isinstance(
        fitted(None, column(list(range(MAX_INFERRED_CATEGORIES + 1)) * MIN_CATEGORY_ROWS)), NumberEncoder
    )


@given(
    values=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50),
    offset=st.sampled_from([0.0, 1e9]),
    cuts=st.lists(st.integers(0, 50), max_size=4),
)
def test_moments_over_batches_equal_those_of_all_values(
    values: list[float], offset: float, cuts: list[int]
) -> None:
    whole, moments = np.array(values) + offset, RunningMoments()
    for batch in np.split(whole, sorted(min(cut, len(whole)) for cut in cuts)):
        moments.add(column(batch.tolist(), pa.float64()))
    assert moments.count == len(whole)
    assert moments.mean == pytest.approx(whole.mean(), rel=1e-12, abs=1e-9)
    assert moments.sd == pytest.approx(whole.std(), rel=1e-6, abs=1e-3)


def test_numbers_are_standardised_and_a_missing_one_is_zero_with_an_indicator() -> None:
    numbers = fitted("numeric", column([1.0, 3.0, None, float("nan"), float("inf")]))
    values, missing = numbers.encode(column([2.0, 4.0, None, float("-inf")]))
    assert values.type == missing.type == pa.float32()
    assert values.to_pylist() == [0.0, 2.0, 0.0, 0.0]
    assert missing.to_pylist() == [0.0, 0.0, 1.0, 1.0]
    assert [feature.name for feature in numbers.features()] == ["x", "x_missing"]


def test_a_number_rarely_missing_in_train_has_no_indicator() -> None:
    (values,) = fitted("numeric", column([1.0, 3.0])).encode(column([None, 3.0], pa.float64()))
    assert values.to_pylist() == [0.0, 1.0]
    assert len(fitted("numeric", column([1.0, 3.0] * 100 + [None])).features()) == 1


@pytest.mark.filterwarnings("error")
def test_a_number_beyond_the_encoded_type_is_refused_with_its_column() -> None:
    with pytest.raises(DataError, match=r"column x holds numbers up to 1e\+300, and at most 1e\+30"):
        fitted("numeric", column([1.0, 2.0]), column([-1e300, 0.5]))


def test_a_constant_number_is_zero_and_not_a_division_by_zero() -> None:
    assert fitted("numeric", column([5, 5])).encode(column([5, 6]))[0].to_pylist() == [0.0, 1.0]


@pytest.mark.parametrize(
    "values",
    [[True, False], [datetime(2013, 1, 1, tzinfo=UTC), datetime(2013, 1, 3, tzinfo=UTC)], [time(1), time(3)]],
)
def test_booleans_and_timestamps_can_be_numbers_or_categories(values: list[Any]) -> None:
    (scaled,) = fitted("numeric", column(values)).encode(column(values))
    assert sorted(scaled.to_pylist()) == [-1.0, 1.0]
    (codes,) = fitted("categorical", column(values * MIN_CATEGORY_ROWS)).encode(column(values))
    assert sorted(codes.to_pylist()) == [1, 2]


@pytest.mark.parametrize(
    ("kind", "values", "varies"),
    [
        ("categorical", ["a"] * 9, False),
        ("categorical", ["a"] * 9 + ["b"] * 9, True),
        ("categorical", [str(number) for number in range(99)], False),
        ("numeric", [1.0] * 9, False),
        ("numeric", [1.0, 2.0], True),
        ("numeric", [1.0, None], True),
        (None, [1, 2], True),
        (None, [1, 1], False),
    ],
)
def test_a_constant_column_is_not_informative(
    kind: FeatureKind | None, values: list[Any], varies: bool
) -> None:
    fit = FeatureFit("x", kind)
    fit.add(column(values))
    assert fit.is_informative() is varies


@pytest.mark.parametrize(
    ("values", "task", "classes"),
    [
        ([0, 1, 1], "binary", ("0", "1")),
        ([0.0, 1.0, 1.0], "binary", ("0", "1")),
        ([True, False], "binary", ("false", "true")),
        (["yes", "no"], "binary", ("no", "yes")),
        ([10, 9, 2], "multiclass", ("2", "9", "10")),
        (["b", "a", "c"], "multiclass", ("a", "b", "c")),
        ([0.5, 1.5, 2.5], "regression", ()),
        (list(range(MAX_INFERRED_CLASSES + 1)), "regression", ()),
        (list(range(MAX_INFERRED_CLASSES)), "multiclass", tuple(map(str, range(MAX_INFERRED_CLASSES)))),
    ],
)
def test_the_task_is_inferred_from_the_target(values: list[Any], task: str, classes: tuple[str, ...]) -> None:
    found = answer(Target(column="y"), column(values))
    assert (found.task, found.classes) == (task, classes)


def test_a_threshold_makes_the_target_binary_with_train_shares_as_prior() -> None:
    found = answer(Target(column="y", above=15), column([14.0, 15.0, 16.0, 99.0]))
    assert found.classes == ("y <= 15", "y > 15")
    assert found.prior == (0.5, 0.5)
    assert found.encode(column([15, 16, None])).to_pylist() == [0, 1, None]


def test_a_regression_target_keeps_its_values_with_mean_and_deviation_as_prior() -> None:
    found = answer(Target(column="y", task="regression"), column([1, 3]))
    assert found.prior == (2.0, 1.0)
    assert found.encode(column([1, 7, None])).to_pylist() == [1.0, 7.0, None]
    assert found.encode(column([1, 7])).type == pa.float32()


def test_classes_are_encoded_by_index_and_a_class_unseen_in_train_is_null() -> None:
    found = answer(Target(column="y"), column(["b", "a", "c", "a"]))
    assert found.encode(column(["a", "c", "d", None])).to_pylist() == [0, 2, None, None]
    assert found.prior == (0.5, 0.25, 0.25)


@pytest.mark.parametrize(
    ("target", "values", "error", "message"),
    [
        (Target(column="y"), [1, 1], DataError, "1 distinct value: there is nothing to predict"),
        (Target(column="y", above=5), [1, 2], DataError, "nothing to predict"),
        (Target(column="y", above=5), ["a", "b"], RecipeError, "is of type string, not a number"),
        (Target(column="y", task="regression"), ["a", "b"], RecipeError, "is of type string, not a number"),
        (
            Target(column="y", task="binary"),
            [1, 2, 3],
            RecipeError,
            "3 distinct values, which does not fit the task binary",
        ),
        (
            Target(column="y"),
            [str(number) for number in range(1500)],
            RecipeError,
            "more than 1000 distinct values",
        ),
    ],
)
def test_a_target_that_cannot_be_predicted_is_refused_with_the_reason(
    target: Target, values: list[Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        answer(target, column(values))
