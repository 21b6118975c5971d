"""Encoded columns: what is stored of a value, and what a model reads of it."""

from __future__ import annotations

from datetime import UTC, datetime, time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from data_files import preprocessed, recipe_of, samples_of, table_of
from hypothesis import given
from hypothesis import strategies as st

from shoestring.core.datasets import Encoding, Feature, StoredField
from shoestring.core.errors import DataError, RecipeError
from shoestring.data.formats.dictionaries import read_model_codes, write_dictionaries
from shoestring.data.formats.readers import EncodedRows
from shoestring.data.loading.samples import Collator, Samples
from shoestring.data.recipe import Target
from shoestring.data.storage.blobs import open_blob
from shoestring.data.transforms.column_encoders import CategoryColumn, NumberColumn
from shoestring.data.transforms.encode import (
    MIN_CATEGORY_ROWS,
    FeatureKind,
    RunningMoments,
)
from shoestring.data.transforms.target import MAX_INFERRED_CLASSES, TargetFit, TargetStatistics


def column(values: list[Any], kind: pa.DataType | None = None) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(values, kind)])


def fitted(kind: FeatureKind, *batches: pa.ChunkedArray) -> CategoryColumn | NumberColumn:
    """Return a column that has met these batches of train."""
    found = CategoryColumn("x") if kind == "categorical" else NumberColumn("x")
    for batch in batches:
        found.encode(batch, np.ones(len(batch), np.bool_))
    return found


def read(encoder: CategoryColumn | NumberColumn, values: pa.ChunkedArray, folder: Path) -> Samples:
    """Return what a model reads of values that are not in train."""
    stored = np.asarray(encoder.encode(values, np.zeros(len(values), np.bool_)))
    records = np.zeros(len(stored), [("x", stored.dtype), ("y", "f4")])
    records["x"] = stored
    path = folder / "dictionaries.arrow"
    write_dictionaries([encoder.dictionary()] if isinstance(encoder, CategoryColumn) else [], path)
    encoding = Encoding(features=encoder.features(), task="regression")
    return Collator(encoding, records.dtype, read_model_codes(path)).collate(records)


def of_target(target: Target, values: pa.ChunkedArray) -> TargetStatistics:
    fit = TargetFit(target, values.type)
    fit.add(values)
    return fit.statistics()


def test_category_codes_are_sorted_from_one_and_rare_missing_or_unseen_ones_are_zero(tmp_path: Path) -> None:
    train = ["b"] * MIN_CATEGORY_ROWS + ["a"] * MIN_CATEGORY_ROWS
    codes = fitted("categorical", column([*train, *["rare"] * (MIN_CATEGORY_ROWS - 1), None]))
    found = read(codes, column(["a", "b", "rare", None, "never"]), tmp_path)["code"]
    assert found.dtype == np.int32
    assert found[:, 0].tolist() == [1, 2, 0, 0, 0]
    assert codes.features()[0].cardinality == 3


def test_stored_codes_stay_the_same_whatever_comes_after_them() -> None:
    codes, some = CategoryColumn("x"), np.zeros(3, np.bool_)
    before = codes.encode(column(["b", None, "a"]), some)
    codes.encode(column(["0", "c", "b"]), some)
    assert codes.encode(column(["b", None, "a"]), some).equals(before)
    assert before.to_pylist() == [1, 0, 2]


def test_a_column_without_values_is_the_unknown_category(tmp_path: Path) -> None:
    codes = fitted("categorical", column([None, None], pa.string()))
    assert not codes.is_informative()
    assert read(codes, column([None], pa.string()), tmp_path)["code"].tolist() == [[0]]


def test_whole_numbers_are_numbers_and_texts_and_booleans_are_categories(tmp_path: Path) -> None:
    rows = [f"{row % 3},{'ab'[row % 2]},{'true' if row % 5 else 'false'},{row % 2}" for row in range(400)]
    (tmp_path / "rows.csv").write_text("\n".join(["few,letter,flag,y", *rows]))
    _, manifest, _ = preprocessed(recipe_of(tmp_path / "rows.csv"), tmp_path)
    assert manifest.encoding is not None
    kinds = {each.name: each.kind for each in manifest.encoding.features}
    assert kinds == {"few": "numeric", "letter": "categorical", "flag": "categorical"}


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
        moments.add(batch)
    assert moments.count == len(whole)
    assert moments.mean == pytest.approx(whole.mean(), rel=1e-12, abs=1e-9)
    assert moments.sd == pytest.approx(whole.std(), rel=1e-6, abs=1e-3)


def test_numbers_are_standardised_and_a_missing_one_is_zero_with_an_indicator(tmp_path: Path) -> None:
    numbers = fitted("numeric", column([1.0, 3.0, None, float("nan"), float("inf")]))
    found = read(numbers, column([2.0, 4.0, None, float("-inf")]), tmp_path)["number"]
    assert found.dtype == np.float32
    assert found[:, 0].tolist() == [0.0, 2.0, 0.0, 0.0]
    assert found[:, 1].tolist() == [0.0, 0.0, 1.0, 1.0]
    assert [feature.name for feature in numbers.features()] == ["x", "x_missing"]


def test_large_numbers_close_to_each_other_keep_their_differences(tmp_path: Path) -> None:
    """As float32 they would be equal."""
    numbers = fitted("numeric", column([1.7e9, 1.7e9 + 2]))
    assert read(numbers, column([1.7e9, 1.7e9 + 1]), tmp_path)["number"][:, 0].tolist() == [-1.0, 0.0]


def test_a_number_rarely_missing_in_train_has_no_indicator(tmp_path: Path) -> None:
    found = read(fitted("numeric", column([1.0, 3.0])), column([None, 3.0], pa.float64()), tmp_path)
    assert found["number"].tolist() == [[0.0], [1.0]]
    assert len(fitted("numeric", column([1.0, 3.0] * 100 + [None])).features()) == 1


@pytest.mark.filterwarnings("error")
def test_a_number_beyond_what_models_read_is_refused_with_its_column() -> None:
    with pytest.raises(DataError, match=r"column x holds numbers up to 1e\+300, and at most 1e\+30"):
        fitted("numeric", column([1.0, 2.0]), column([-1e300, 0.5])).features()


def test_a_constant_number_is_zero_and_not_a_division_by_zero(tmp_path: Path) -> None:
    found = read(fitted("numeric", column([5, 5])), column([5, 6]), tmp_path)
    assert found["number"].tolist() == [[0.0], [1.0]]


@pytest.mark.parametrize(
    "values",
    [[True, False], [datetime(2013, 1, 1, tzinfo=UTC), datetime(2013, 1, 3, tzinfo=UTC)], [time(1), time(3)]],
)
def test_booleans_and_timestamps_can_be_numbers_or_categories(tmp_path: Path, values: list[Any]) -> None:
    scaled = read(fitted("numeric", column(values)), column(values), tmp_path)["number"]
    assert sorted(scaled[:, 0].tolist()) == [-1.0, 1.0]
    codes = read(fitted("categorical", column(values * MIN_CATEGORY_ROWS)), column(values), tmp_path)["code"]
    assert sorted(codes[:, 0].tolist()) == [1, 2]


@pytest.mark.parametrize(
    ("kind", "values", "varies"),
    [
        ("categorical", ["a"] * 9, False),
        ("categorical", ["a"] * 9 + ["b"] * 9, True),
        ("categorical", ["a"] * 9 + ["rare"], True),
        ("categorical", [str(number) for number in range(99)], False),
        ("numeric", [1.0] * 9, False),
        ("numeric", [1.0, 2.0], True),
        ("numeric", [1.0, None], True),
    ],
)
def test_a_constant_column_is_not_informative(kind: FeatureKind, values: list[Any], varies: bool) -> None:
    assert fitted(kind, column(values)).is_informative() is varies


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
    found = of_target(Target(column="y"), column(values))
    assert (found.task, found.classes) == (task, classes)


def test_a_threshold_makes_the_target_binary_with_train_shares_as_prior() -> None:
    found = of_target(Target(column="y", above=15), column([14.0, 15.0, 16.0, 99.0]))
    assert found.classes == ("y <= 15", "y > 15")
    assert found.prior == (0.5, 0.5)


def test_a_regression_target_keeps_its_values_with_mean_and_deviation_as_prior(tmp_path: Path) -> None:
    rows = [f"{number % 7},{number / 4}" for number in range(200)]
    (tmp_path / "rows.csv").write_text("\n".join(["x,y", *rows]))
    _, manifest, store = preprocessed(recipe_of(tmp_path / "rows.csv"), tmp_path)
    assert manifest.encoding is not None and manifest.encoding.task == "regression"
    train = samples_of(store, manifest, "train")["target"]
    assert train.dtype == np.float32 and {*train.tolist()} <= {number / 4 for number in range(200)}
    assert manifest.encoding.train_prior == pytest.approx((train.mean(), train.std()), rel=1e-6)


def test_stored_classes_are_numbered_as_they_appear_and_read_in_their_order(tmp_path: Path) -> None:
    rows = [f"{number},{'cab'[number % 3]}" for number in range(300)]
    (tmp_path / "rows.csv").write_text("\n".join(["x,y", *rows]))
    _, manifest, store = preprocessed(recipe_of(tmp_path / "rows.csv"), tmp_path)
    encoding = manifest.encoding
    assert encoding is not None and encoding.classes == ("a", "b", "c")
    model_codes = read_model_codes(open_blob(store, encoding.dictionary_sha256))
    assert model_codes["y"].tolist() == [0, 2, 0, 1]
    stored, read_target = table_of(store, manifest, "val"), samples_of(store, manifest, "val")["target"]
    names = ["cab"[code - 1] for code in stored["y"].to_pylist()]
    assert [encoding.classes[index] for index in read_target] == names


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
        of_target(target, column(values))


def test_features_that_were_stored_ready_are_read_in_any_order() -> None:
    """As earlier versions stored them: side by side only by chance."""
    record = np.dtype([("n", "f4"), ("c", "i4"), ("m", "f4"), ("d", "i4"), ("y", "i4"), ("_group", "i4")])
    records = np.array([(0.5, 1, 2.5, 3, 1, 9), (1.5, 2, 3.5, 4, 0, 9)], record)
    features = (
        Feature(name="n", kind="numeric"),
        Feature(name="c", kind="categorical", cardinality=5),
        Feature(name="m", kind="numeric"),
        Feature(name="d", kind="categorical", cardinality=5),
    )
    encoding = Encoding(features=features, task="binary", classes=("no", "yes"))
    found = Collator(encoding, record).collate(EncodedRows([records]).take(np.array([1, 0])))
    assert found["code"].tolist() == [[2, 4], [1, 3]]
    assert found["number"].tolist() == [[1.5, 3.5], [0.5, 2.5]]
    assert found["target"].tolist() == [0, 1]
    assert found["group"].tolist() == [9, 9]


def test_damaged_codes_and_missing_columns_are_refused() -> None:
    feature = Feature(name="x", kind="categorical", cardinality=2, column="x")
    encoding = Encoding(features=(feature,), task="regression")
    record = np.dtype([("x", "i4"), ("y", "f4")])
    collator = Collator(encoding, record, {"x": np.array([0, 1], np.int32)})
    with pytest.raises(DataError, match="a stored code is in no dictionary"):
        collator.collate(np.array([(7, 0.0)], record))
    with pytest.raises(DataError, match="the data set has no columns x: run preprocess again"):
        Collator(encoding, np.dtype([("y", "f4")]))


def test_a_field_of_variable_length_is_refused_by_name() -> None:
    text = StoredField(name="text", dtype="uint8", storage="variable", use="tokens")
    with pytest.raises(DataError, match="rows of text differ in length, which this version"):
        Collator(
            Encoding(features=(), fields=(text,), task="regression"), np.dtype([("y", "f4"), ("text", "V8")])
        )
