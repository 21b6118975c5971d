"""A column of weights: stored beside the target, no feature, and part of the statistics of train."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_files import of, preprocessed, recipe_of, samples_of, table_of
from pydantic import ValidationError

from shoestring.core.datasets import WEIGHT_COLUMN, Encoding
from shoestring.core.errors import DataError, RecipeError
from shoestring.core.types import Format
from shoestring.data.inspect.page import inspect_data
from shoestring.data.recipe import Recipe

Rows = list[dict[str, object]]


def rows_of(count: int = 600, **changes: Any) -> Rows:
    """Return rows with a weight from 1 to 3."""
    rng = np.random.default_rng(0)
    return [
        {
            "id": each,
            "size": round(float(rng.normal()), 3),
            "shade": "rgb"[rng.integers(3)],
            "y": int(rng.random() < 0.3),
            "w": int(rng.integers(1, 4)),
        }
        | changes
        for each in range(count)
    ]


def recipe(path: Path, **changes: Any) -> Recipe:
    # All copies of a row are in one split.
    fields = {"weight": "w", "split": {"by": ["id"]}} | changes
    return recipe_of(path, **fields)


def encoding_of(manifest: Any) -> Encoding:
    assert manifest.encoding is not None
    found: Encoding = manifest.encoding
    return found


@pytest.mark.parametrize("format", [Format.ARROW, Format.PACKED, Format.PARQUET])
def test_batches_have_weights_with_a_mean_of_1_in_train(tmp_path: Path, format: Format) -> None:
    _, manifest, store = preprocessed(recipe(of(tmp_path, rows_of())), tmp_path, format)
    encoding = encoding_of(manifest)
    assert {each.name for each in encoding.features} == {"size", "shade"}
    (field,) = encoding.of_use("weight")
    assert (field.name, field.dtype) == (WEIGHT_COLUMN, "float64")
    samples = samples_of(store, manifest, "train")
    assert samples["weight"].dtype == np.float32
    assert float(samples["weight"].mean()) == pytest.approx(1, rel=1e-6)
    stored = np.asarray(table_of(store, manifest, "train")[WEIGHT_COLUMN])
    assert {*stored.tolist()} == {1.0, 2.0, 3.0}
    assert encoding.weight is not None and encoding.weight.column == "w"
    assert encoding.weight.mean == pytest.approx(stored.mean())


@pytest.mark.parametrize("target", [{"column": "y"}, {"column": "size", "task": "regression"}])
def test_a_weight_of_k_is_the_row_k_times_in_the_statistics_of_train(
    tmp_path: Path, target: dict[str, str]
) -> None:
    rows = rows_of()
    repeated = [{**row, "w": 1} for row in rows for _ in range(int(str(row["w"])))]
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    features = {"numeric": ["y"] if target["column"] == "size" else ["size"], "categorical": ["shade"]}
    found = []
    for folder, table in (("a", rows), ("b", repeated)):
        asked = recipe(of(tmp_path / folder, table), target=target, **features)
        found.append(encoding_of(preprocessed(asked, tmp_path / folder)[1]))
    weighted, again = found
    assert weighted.train_prior == pytest.approx(again.train_prior, rel=1e-9)
    for one, other in zip(weighted.features, again.features, strict=True):
        assert (one.mean, one.sd) == pytest.approx((other.mean, other.sd), rel=1e-9)


def test_weights_of_1_change_nothing_but_the_weight(tmp_path: Path) -> None:
    path = of(tmp_path, rows_of(w=1))
    _, weighted, store = preprocessed(recipe(path), tmp_path / "a")
    _, plain, other = preprocessed(recipe(path, weight="", leaks=["w"]), tmp_path / "b")
    one, two = encoding_of(weighted), encoding_of(plain)
    assert (one.features, one.train_prior, one.classes) == (two.features, two.train_prior, two.classes)
    for split in ("train", "val", "test"):
        rows = table_of(store, weighted, split)
        assert rows.drop_columns([WEIGHT_COLUMN]).equals(table_of(other, plain, split))


def test_rows_without_a_weight_and_of_weight_0_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = rows_of()
    kept = [row for number, row in enumerate(rows) if number >= 30]
    for number in range(30):
        # Of no influence, whatever else they hold.
        rows[number] |= {"w": "" if number < 10 else 0, "size": 1e6, "y": 1}
    (tmp_path / "all").mkdir(), (tmp_path / "kept").mkdir()
    _, found, store = preprocessed(recipe(of(tmp_path / "all", rows)), tmp_path / "all")
    _, other, others = preprocessed(recipe(of(tmp_path / "kept", kept)), tmp_path / "kept")
    assert found.quarantined == {"the weight w is missing": 10, "the weight w is 0": 20}
    assert encoding_of(found).features == encoding_of(other).features
    for split in ("train", "val", "test"):
        assert table_of(store, found, split).equals(table_of(others, other, split))


@pytest.mark.parametrize(("value", "named"), [(-0.5, "-0.5"), ("inf", "inf")])
def test_a_weight_below_0_or_infinite_is_refused_before_anything_is_paid(
    tmp_path: Path, value: object, named: str
) -> None:
    rows = [row | {"w": 0.5} for row in rows_of()]
    rows[7]["w"] = value
    asked = recipe(of(tmp_path, rows))
    found = f"the weight w is {named} in a row, and below 0 or infinite in 1 of the 600 rows"
    assert found in inspect_data(asked).refusal
    with pytest.raises(DataError, match=found):
        preprocessed(asked, tmp_path)


def test_weights_that_are_all_0_or_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    zeros = recipe(of(tmp_path, rows_of(w=0)))
    assert "the weight w is 0 or missing in all 600 rows" in inspect_data(zeros).refusal
    with pytest.raises(DataError, match="the weight w is 0 or missing in all rows of train"):
        preprocessed(zeros, tmp_path)
    text = recipe(of(tmp_path / "text", rows_of(w="heavy")))
    assert "the weight w is of type string, not a number" in inspect_data(text).refusal
    with pytest.raises(RecipeError, match="weight: none is not a column of table rows"):
        preprocessed(recipe(of(tmp_path, rows_of()), weight="none"), tmp_path)


@pytest.mark.parametrize("clash", [{"numeric": ["w"]}, {"leaks": ["w"]}, {"target": {"column": "w"}}])
def test_the_weight_has_no_other_use(tmp_path: Path, clash: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="w is the weight, and is named elsewhere too"):
        recipe(tmp_path / "rows.csv", **clash)


def test_texts_have_no_weight(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="`weight`"):
        Recipe.model_validate({"name": "mine", "source": {"t": {"path": "a.txt", "text": {}}}, "weight": "w"})


def test_a_weight_of_a_joined_table_weighs_the_rows_of_the_main_one(tmp_path: Path) -> None:
    shades: Rows = [{"shade": shade, "w": weight} for shade, weight in zip("rgb", (1, 2, 5), strict=True)]
    main = [{name: value for name, value in row.items() if name != "w"} for row in rows_of()]
    asked = recipe(
        of(tmp_path, main),
        source={"rows": {"path": of(tmp_path, main)}, "shades": {"path": of(tmp_path, shades, "shades.csv")}},
        main="rows",
        joins=[{"table": "shades", "by": ["shade"], "columns": ["w"]}],
    )
    assert inspect_data(asked).refusal == ""
    _, manifest, store = preprocessed(asked, tmp_path)
    assert {*np.asarray(table_of(store, manifest, "train")[WEIGHT_COLUMN]).tolist()} == {1.0, 2.0, 5.0}


def test_the_split_does_not_depend_on_the_weight(tmp_path: Path) -> None:
    rows = [{**row, "size": number / 7} for number, row in enumerate(rows_of(2000))]
    other = [{**row, "w": 9} for row in rows]
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    found = []
    for folder, table in (("a", rows), ("b", other)):
        _, manifest, store = preprocessed(recipe(of(tmp_path / folder, table), split={}), tmp_path / folder)
        assert manifest.split_rule is not None and manifest.split_rule.ignored == ("w", "y")
        found.append(table_of(store, manifest, "test")["size"])
    assert found[0].equals(found[1])


def test_the_data_page_names_the_weight_and_warns_of_extreme_ones(tmp_path: Path) -> None:
    rows = rows_of()
    for row in rows[:6]:
        row["w"] = 100_000
    rows[6]["w"], rows[7]["w"] = 0, ""
    page = inspect_data(recipe(of(tmp_path, rows)))
    (entry,) = [each for each in page.columns if each.name == "w"]
    assert entry.use == "weight"
    assert entry.reason == "`weight`; of the rows read, 1 without a weight and 1 of weight 0 are left out"
    (warning,) = [each for each in page.warnings if each.column == "w"]
    assert warning.sentence == (
        "column w: extreme weights, 598 rows read, from 1 to 100000, count like 6.0 of equal weight; "
        "cap them, or expect wide intervals"
    )
    assert sum(page.splits.values()) == 598
    (tmp_path / "even").mkdir()
    even = inspect_data(recipe(of(tmp_path / "even", rows_of())))
    assert not [each for each in even.warnings if each.column == "w"]


def test_a_version_that_reuses_parts_has_the_statistics_of_a_run_from_nothing(tmp_path: Path) -> None:
    from shoestring.backends.folder_store import FolderStore
    from shoestring.data.transforms.ingest import ingest
    from shoestring.data.transforms.preprocess import preprocess

    def quiet(what: str, rows: int) -> None:
        pass

    def version(store: FolderStore, scratch: Path, folder: Path) -> Encoding:
        scratch.mkdir(parents=True, exist_ok=True)
        asked = recipe(folder)
        key, _ = ingest(asked, Format.ARROW, store, scratch, quiet)
        return encoding_of(preprocess(asked, key, Format.ARROW, store, scratch, quiet)[1])

    folder = tmp_path / "files"
    folder.mkdir()
    rows = [{**row, "w": int(str(row["w"])) / 7} for row in rows_of(900)]
    for number in range(3):
        of(folder, rows[number * 300 : number * 300 + 300], f"{number}.csv")
    store = FolderStore(tmp_path / "store")
    version(store, tmp_path / "scratch", folder)
    (folder / "1.csv").unlink()
    of(folder, [{**row, "id": f"{row['id']}0"} for row in rows[:200]], "3.csv")
    grown = version(store, tmp_path / "scratch", folder)
    anew = version(FolderStore(tmp_path / "new"), tmp_path / "other", folder)
    assert grown.model_copy(update={"dictionary_sha256": ""}) == anew.model_copy(
        update={"dictionary_sha256": ""}
    )
