from __future__ import annotations

import csv
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from commands import flights_lines
from data_files import ingested, of, preprocessed, quiet, recipe_of, samples_of, table_of
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from shoestring.core.datasets import GROUP_COLUMN, StoredField
from shoestring.core.errors import DataError, RecipeError
from shoestring.core.types import Format
from shoestring.data.formats.readers import open_rows
from shoestring.data.split_settings import SPLITS
from shoestring.data.storage.blobs import open_blob
from shoestring.data.transforms.preprocess import preprocess
from shoestring.data.transforms.split import assign_splits


def some(count: int) -> list[dict[str, object]]:
    return [
        {"id": number, "a": number % 5, "w": "ab"[number % 2], "y": number % 2} for number in range(count)
    ]


@pytest.mark.parametrize("format", Format)
def test_every_row_with_a_target_is_in_exactly_one_split_with_codes_and_raw_numbers(
    tmp_path: Path, format: Format
) -> None:
    rows = some(300)
    for number in range(7):
        rows[number * 40]["y"] = ""
    recipe = recipe_of(of(tmp_path, rows), numeric=["id"], categorical=["w"])
    _, manifest, store = preprocessed(recipe, tmp_path, format)
    assert manifest.rows == 293
    assert manifest.quarantined == {"y is missing": 7}
    assert manifest.encoding is not None and manifest.encoding.fields == (
        StoredField(name="id", dtype="float64", use="number"),
        StoredField(name="w", dtype="int32", use="code"),
        StoredField(name="y", dtype="int32", use="target"),
    )
    assert manifest.row_bytes == 16
    ids = []
    for split in SPLITS:
        records = open_rows([open_blob(store, part.sha256) for part in manifest.splits[split]], format)
        assert records.dtype.itemsize == 16
        for batch in records.scan(64):
            ids.append(batch["id"])
            assert set(zip(batch["w"].tolist(), batch["y"].tolist(), strict=True)) <= {(1, 1), (2, 2)}
    assert len(np.unique(np.concatenate(ids))) == 293


def test_codes_and_statistics_are_fitted_on_train_only(tmp_path: Path) -> None:
    rows = [
        {
            "day": number // 10,
            "w": "often" if number // 10 else "first-day",
            "n": float(number),
            "y": number % 2,
        }
        for number in range(600)
    ]
    path, outcomes = of(tmp_path, rows), set()
    for seed in range(40):
        recipe = recipe_of(path, categorical=["w"], numeric=["n"], split={"by": ["day"]}, seed=seed)
        trained_on = assign_splits(pa.table({"day": [0]}), recipe.split, seed, ["day"]).split_indices[
            0
        ] == SPLITS.index("train")
        outcomes.add(bool(trained_on))
        if trained_on and len(outcomes) == 1:
            continue
        _, manifest, store = preprocessed(recipe, tmp_path)
        assert manifest.encoding is not None
        assert manifest.encoding.features[0].cardinality == (3 if trained_on else 2)
        train, val, test = (samples_of(store, manifest, split) for split in SPLITS)
        assert (0 in {*val["code"].flatten(), *test["code"].flatten()}) is not trained_on
        assert 0 not in train["code"]
        assert np.mean(train["number"]) == pytest.approx(0, abs=1e-5)
        assert np.std(train["number"]) == pytest.approx(1, abs=1e-5)
        assert abs(np.mean(test["number"])) > 1e-3
        if len(outcomes) == 2:
            return
    raise AssertionError(f"in forty splits, the first day was always or never in train: {outcomes}")


def test_a_join_adds_columns_and_keeps_rows_without_a_match(tmp_path: Path) -> None:
    rows = [{"id": number, "k": number % 4, "y": number % 2} for number in range(400)]
    path, more = of(tmp_path, rows), of(tmp_path, [{"k": 0, "t": 1.0}, {"k": 1, "t": 3.0}], "more.csv")
    recipe = recipe_of(
        path,
        source={"rows": {"path": path}, "more": {"path": more}},
        main="rows",
        joins=[{"table": "more", "by": ["k"], "columns": ["t"]}],
        categorical=["k"],
        numeric=["t"],
    )
    _, manifest, store = preprocessed(recipe, tmp_path)
    train = samples_of(store, manifest, "train")
    assert manifest.rows == 400
    assert manifest.encoding is not None
    assert [each.name for each in manifest.encoding.features] == ["k", "t", "t_missing"]
    by_key = {key: {*train["number"][train["code"][:, 0] == key + 1, 1].tolist()} for key in range(4)}
    assert by_key == {0: {0.0}, 1: {0.0}, 2: {1.0}, 3: {1.0}}


def test_inferred_features_exclude_what_cannot_be_one(tmp_path: Path) -> None:
    """The target, leaks, groups, dates that are constant, constants and columns whose values are all rare."""
    moment = datetime(2013, 1, 1, tzinfo=UTC).isoformat()
    rows: list[dict[str, object]] = [
        {
            "group": number // 3,
            "when": moment,
            "late": number % 2,
            "same": 7,
            "name": f"n{number}",
            "few": number % 6,
            "many": number * number,
            "size": number / 7,
            "fair": number % 3 == 0,
            "word": "abc"[number % 3],
            "y": number % 2,
        }
        for number in range(600)
    ]
    _, manifest, _ = preprocessed(
        recipe_of(of(tmp_path, rows), leaks=["late"], split={"by": ["group"]}), tmp_path
    )
    assert manifest.encoding is not None
    assert {feature.name: feature.kind for feature in manifest.encoding.features} == {
        "few": "numeric",
        "many": "numeric",
        "size": "numeric",
        "fair": "categorical",
        "word": "categorical",
    }
    categories = ["name", "fair", "word", "when_month", "when_weekday", "when_hour"]
    fields = [field.name for field in manifest.encoding.fields]
    assert fields == ["same", "few", "many", "size", "when", *categories, "y", GROUP_COLUMN]


@examples(8)
@given(seed=st.integers(0, 2**32 - 1), format=st.sampled_from(Format))
def test_equal_inputs_give_equal_manifests_and_all_formats_hold_equal_rows(
    tmp_path_factory: pytest.TempPathFactory, seed: int, format: Format
) -> None:
    folder = tmp_path_factory.mktemp("same")
    recipe = recipe_of(of(folder, some(200)), seed=seed)
    first, manifest, store = preprocessed(recipe, folder / "one", format)
    second, _, other = preprocessed(recipe, folder / "two", format)
    assert first == second
    assert store.fetch(first).read_bytes() == other.fetch(second).read_bytes()
    _, plain, third = preprocessed(recipe, folder / "three", Format.ARROW)
    for split in SPLITS:
        assert table_of(store, manifest, split).equals(table_of(third, plain, split))


def test_a_class_unseen_in_train_is_dropped_and_counted(tmp_path: Path) -> None:
    rows = some(200)
    for seed in range(50):
        rows[0]["w"] = "only-once"
        recipe = recipe_of(of(tmp_path, rows), target={"column": "w"}, seed=seed)
        _, manifest, _ = preprocessed(recipe, tmp_path)
        assert manifest.encoding is not None
        if "only-once" not in manifest.encoding.classes:
            assert manifest.quarantined == {"w is of a class that train does not contain": 1}
            assert manifest.rows == 199
            return
        assert manifest.quarantined == {}
    raise AssertionError("in fifty splits, the first row was always in train")


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"numeric": ["w"]}, RecipeError, "numeric feature w contains text"),
        ({"split": {"by": ["a"]}, "seed": 1}, DataError, "no rows were assigned to"),
        ({"target": {"column": "w", "above": 1}}, RecipeError, "is of type string"),
        ({"leaks": ["id", "a", "w"]}, DataError, "are constant in train"),
    ],
)
def test_data_that_cannot_be_encoded_is_refused_with_the_reason(
    tmp_path: Path, changes: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        preprocessed(recipe_of(of(tmp_path, some(100)), **changes), tmp_path)


def test_a_feature_with_the_name_of_the_encoded_target_is_renamed(tmp_path: Path) -> None:
    rows = [{"y": number / 3, "z": number % 2} for number in range(100)]
    _, manifest, store = preprocessed(recipe_of(of(tmp_path, rows), target={"column": "z"}), tmp_path)
    assert manifest.encoding is not None
    assert [field.name for field in manifest.encoding.fields] == ["y_", "y"]
    assert {*samples_of(store, manifest, "train")["target"].tolist()} == {0, 1}


def test_names_that_clash_with_encoded_columns_are_refused(tmp_path: Path) -> None:
    rows = [
        {"t": "" if number % 3 else number / 7, "t_missing": number * 0.5, "y": number % 2}
        for number in range(100)
    ]
    with pytest.raises(RecipeError, match="two columns called t_missing"):
        preprocessed(recipe_of(of(tmp_path, rows)), tmp_path)


def test_columns_that_were_not_ingested_are_refused(tmp_path: Path) -> None:
    recipe = recipe_of(of(tmp_path, some(100)))
    key, _, store = ingested(recipe, tmp_path)
    changed = recipe.model_copy(update={"numeric": ("b",)})
    with pytest.raises(RecipeError, match="the features: b is not a column"):
        preprocess(changed, key, Format.ARROW, store, tmp_path / "scratch", quiet)


def test_a_day_of_flights_is_in_one_split_and_the_target_is_the_delay(tmp_path: Path) -> None:
    (tmp_path / "flights.csv").write_bytes(b"".join(flights_lines(30_000)))
    recipe = recipe_of(
        tmp_path / "flights.csv",
        target={"column": "arr_delay", "above": 15},
        categorical=["carrier", "origin"],
        numeric=["distance"],
        split={"by": ["year", "month", "day"]},
    )
    _, manifest, store = preprocessed(recipe, tmp_path, Format.PACKED)
    with (tmp_path / "flights.csv").open() as lines:
        truth = [row for row in csv.DictReader(lines) if row["arr_delay"] != "NA"]
    days = {split: {*table_of(store, manifest, split)[GROUP_COLUMN].to_pylist()} for split in SPLITS}
    assert (
        sum(map(len, days.values()))
        == len({row["day"] + row["month"] for row in truth})
        == len(set.union(*days.values()))
    )
    assert manifest.quarantined == {"arr_delay is missing": 30_000 - len(truth)}
    late = sum(table_of(store, manifest, split)["y"].to_pylist().count(1) for split in SPLITS)
    assert late == sum(int(row["arr_delay"]) > 15 for row in truth)
    assert manifest.encoding is not None
    assert manifest.encoding.features[0].cardinality <= 1 + len({row["carrier"] for row in truth})
