"""Splits that the data gives: in a column, or by the names of its files and folders."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_files import of, preprocessed, recipe_of, samples_of, table_of
from image_sources import SIZE, idx_files, image_folder, noise
from split_sources import BY_COLUMN, Row, named_source, numbered
from text_sources import documents_of, story, text_folder, text_recipe

from shoestring.core.datasets import Manifest
from shoestring.core.errors import DataError, RecipeError
from shoestring.core.interfaces import Store
from shoestring.data.inspect.page import inspect_data, page_of_run
from shoestring.data.split_settings import SPLITS, split_of_name


def numbers_of(store: Store, manifest: Manifest) -> dict[str, list[int]]:
    """Return the `n` of each split, sorted."""
    return {
        split: sorted(map(int, table_of(store, manifest, split)["n"].to_pylist()))
        if manifest.splits[split]
        else []
        for split in SPLITS
    }


def test_rows_are_in_the_splits_that_a_column_names_however_it_spells_them(tmp_path: Path) -> None:
    rows = numbered(1000, ("train", " Training", "VALID", "dev", "test"))
    recipe = recipe_of(of(tmp_path, rows), **BY_COLUMN)
    _, manifest, store = preprocessed(recipe, tmp_path)
    assert numbers_of(store, manifest) == {
        "train": [n for n in range(1000) if n % 5 < 2],
        "val": [n for n in range(1000) if n % 5 in (2, 3)],
        "test": [n for n in range(1000) if n % 5 == 4],
    }
    assert manifest.split_rule is not None and manifest.split_rule.given == SPLITS
    assert {"fold", "n", "town"} - {*table_of(store, manifest, "train").column_names} == {"fold"}
    page = inspect_data(recipe)
    assert page.splits == {"train": 400, "val": 400, "test": 200}
    assert "rows are in the splits that fold names" in page.notes


def test_a_split_that_the_data_lacks_is_drawn_from_train_by_the_rows_and_added_rows_move_none(
    tmp_path: Path,
) -> None:
    rows = numbered(4000, ("train", "train", "train", "test"))
    _, first, store = preprocessed(recipe_of(of(tmp_path, rows), **BY_COLUMN), tmp_path / "one")
    before = numbers_of(store, first)
    assert before["test"] == [n for n in range(4000) if n % 4 == 3]
    assert not {*before["val"]} & {*before["train"]} and len(before["val"] + before["train"]) == 3000
    # A ninth: 0.1 of 0.8 and 0.1.
    assert 270 < len(before["val"]) < 400
    added = [{**row, "n": 5000 + int(str(row["n"]))} for row in rows[:400]]
    path = of(tmp_path, [*added, *rows], "more.csv")
    _, second, store = preprocessed(recipe_of(path, **BY_COLUMN), tmp_path / "two")
    after = numbers_of(store, second)
    assert [[n for n in after[split] if n < 5000] for split in SPLITS] == [before[split] for split in SPLITS]


def test_groups_stay_together_in_the_split_that_is_drawn(tmp_path: Path) -> None:
    rows = [row | {"who": f"w{int(str(row['n'])) // 10}"} for row in numbered(2000)]
    for row in rows[1600:]:
        row["fold"] = "test"
    recipe = recipe_of(of(tmp_path, rows), split={"column": "fold", "by": ["who"]})
    _, manifest, store = preprocessed(recipe, tmp_path)
    found = numbers_of(store, manifest)
    assert found["test"] == [*range(1600, 2000)]
    groups = {split: {n // 10 for n in numbers} for split, numbers in found.items()}
    assert groups["val"] and not groups["val"] & groups["train"]
    assert manifest.split_unit == "groups"


def test_rows_without_a_split_are_left_out_and_counted_and_those_without_a_target_give_none(
    tmp_path: Path,
) -> None:
    rows = numbered(1000, ("train", "valid"))
    for number in (3, 500):
        rows[number]["fold"] = ""
    # As a competition has its test file: no answers.
    rows += [{**row, "fold": "test", "y": ""} for row in rows[:200]]
    recipe = recipe_of(of(tmp_path, rows), **BY_COLUMN)
    _, manifest, store = preprocessed(recipe, tmp_path)
    found = numbers_of(store, manifest)
    assert manifest.quarantined["fold is missing, which names the split"] == 2
    assert manifest.split_rule is not None and manifest.split_rule.given == ("train", "val")
    assert found["val"] == [n for n in range(1, 1000, 2) if n not in (3, 500)]
    assert len(found["test"]) > 20 and all(n % 2 == 0 for n in found["test"])
    notes = inspect_data(recipe).notes
    sentence = "rows are in the splits that fold names; rows of test are drawn from train; 2 without one are"
    assert any(note.startswith(sentence) for note in notes), notes


@pytest.mark.parametrize(
    ("folds", "message"),
    [
        (
            ("train", "holdout", "holdout"),
            r"fold holds 'holdout' \(666 rows\), which name no split: write train",
        ),
        (("valid", "test"), r"no row is of train: fold names val 500, test 500"),
    ],
)
def test_a_column_that_does_not_name_splits_is_refused_before_a_run(
    tmp_path: Path, folds: tuple[str, ...], message: str
) -> None:
    recipe = recipe_of(of(tmp_path, numbered(1000, folds)), **BY_COLUMN)
    for start in (page_of_run, lambda recipe: preprocessed(recipe, tmp_path)):
        with pytest.raises(DataError, match=message):
            start(recipe)
    assert inspect_data(recipe).refusal


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_the_name_of_each_file_or_folder_gives_the_split_of_its_rows(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "data"
    rows = [{key: row[key] for key in ("n", "y")} for row in numbered(900)]
    for index, name in enumerate(("train-00000-of-00001", "valid/part-0", "Test_set/part-0")):
        path = folder / f"{name}.{kind}"
        path.parent.mkdir(parents=True, exist_ok=True)
        part = pa.Table.from_pylist(rows[index * 300 : index * 300 + 300])
        if kind == "parquet":
            pq.write_table(part, path)
        elif kind == "csv":
            part.to_pandas().to_csv(path, index=False)
        else:
            part.to_pandas().to_json(path, orient="records", lines=True)
    recipe = recipe_of(folder, **named_source(folder))
    _, manifest, store = preprocessed(recipe, tmp_path)
    assert numbers_of(store, manifest) == {
        "train": [*range(300)],
        "val": [*range(300, 600)],
        "test": [*range(600, 900)],
    }
    page = inspect_data(recipe)
    assert page.splits == dict.fromkeys(SPLITS, 300)
    assert any("the splits that the names of files give, such as train-00000" in note for note in page.notes)


def test_a_file_that_is_added_later_goes_to_the_split_of_its_name_and_moves_no_other(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    of(folder, numbered(300)[:200], "train.csv")
    of(folder, numbered(300)[200:250], "test.csv")
    recipe = recipe_of(folder, **named_source(folder), leaks=["fold"])
    _, first, store = preprocessed(recipe, tmp_path)
    of(folder, numbered(300)[250:], "test-2.csv")
    _, second, store = preprocessed(recipe, tmp_path)
    assert numbers_of(store, first)["test"] == [*range(200, 250)]
    assert numbers_of(store, second)["test"] == [*range(200, 300)]
    for split in ("train", "val"):
        assert numbers_of(store, first)[split] == numbers_of(store, second)[split]


def test_folders_of_images_that_are_split_already_are_kept_as_they_are(tmp_path: Path) -> None:
    pixels = noise(60)
    image_folder(tmp_path / "data" / "train", pixels[:40])
    image_folder(tmp_path / "data" / "val", pixels[40:50])
    image_folder(tmp_path / "data" / "test", pixels[50:])
    # Without a label: no row of it can be learnt or tested.
    image_folder(tmp_path / "data", noise(3, seed=1), ("test",))
    recipe = recipe_of(tmp_path, **named_source(tmp_path / "data", image=SIZE), target={"column": "label"})
    _, manifest, store = preprocessed(recipe, tmp_path)
    assert [len(samples_of(store, manifest, split)) for split in SPLITS] == [40, 10, 10]
    assert manifest.encoding is not None and manifest.encoding.classes == ("bright", "dark")
    assert samples_of(store, manifest, "val")["image"].reshape(10, 4, 6).mean() == pixels[40:50].mean()


def test_idx_files_are_split_by_their_names_and_val_is_drawn_from_train(tmp_path: Path) -> None:
    folder = idx_files(tmp_path / "data", noise(400))
    idx_files(folder, noise(50, seed=1), "t10k")
    recipe = recipe_of(folder, **named_source(folder, image=SIZE), target={"column": "label"})
    _, manifest, store = preprocessed(recipe, tmp_path)
    found = [len(samples_of(store, manifest, split)) for split in SPLITS]
    assert found[0] + found[1] == 400 and 20 < found[1] < 80 and found[2] == 50
    expected = inspect_data(recipe).splits
    assert expected == {"train": 356, "val": 44, "test": 50}
    without = inspect_data(
        recipe_of(folder, source={"rows": {"path": folder, "image": SIZE}}, target={"column": "label"})
    )
    assert any("`splits: true` in the source keeps their rows" in note for note in without.notes)


def test_paths_in_a_table_name_the_splits_of_images(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    image_folder(folder, noise(40), ("train", "test"))
    rows: list[Row] = [
        {"file": f"{name}/{number:04}.png", "kind": "ab"[number // 2 % 2]}
        for number in range(40)
        for name in [("train", "test")[number % 2]]
    ]
    path = of(folder, [*rows, {"file": "other.png", "kind": "a"}], "labels.csv")
    image_folder(folder, noise(1, seed=2), (".",))
    (folder / "0000.png").rename(folder / "other.png")
    source = named_source(path, image=SIZE | {"column": "file"})
    _, manifest, store = preprocessed(recipe_of(path, **source, target={"column": "kind"}), tmp_path)
    found = [len(samples_of(store, manifest, split)) for split in SPLITS]
    assert (found[0] + found[1], found[2]) == (20, 20)
    assert manifest.quarantined["_split is missing, which names the split"] == 1


def test_texts_are_in_the_split_that_their_file_names(tmp_path: Path) -> None:
    texts: dict[str, str | bytes] = {
        f"wiki.{split}.txt": "\f".join(f"{split} {number} {story(number)}" for number in range(count))
        for split, count in (("train", 30), ("valid", 6), ("test", 4))
    }
    folder = text_folder(tmp_path / "texts", texts)
    recipe = text_recipe(folder, separator="\f")
    recipe = recipe.model_copy(
        update={"source": {"rows": recipe.source["rows"].model_copy(update={"splits": True})}}
    )
    _, manifest, store = preprocessed(recipe, tmp_path)
    for split, word, count in (("train", b"train", 30), ("val", b"valid", 6), ("test", b"test", 4)):
        documents = [each for each in documents_of(samples_of(store, manifest, split)) if each]
        assert len(documents) == count and all(each.startswith(word) for each in documents)
    page = inspect_data(recipe)
    assert page.splits == {"train": 30, "val": 6, "test": 4}
    assert any("names of files give, such as wiki.train.txt" in note for note in page.notes)


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("train.csv", "train"),
        ("adult.test.gz", "test"),
        ("en/validation/part-3.parquet", "val"),
        ("train/test_tube/3.png", "train"),
        ("seg_train/seg_train/sea/1.jpg", "train"),
        ("t10k-images-idx3-ubyte", "test"),
        (r"Valid\7.png", "val"),
        ("train-and-test.csv", None),
        ("contest.csv", None),
        ("trainer/7.png", None),
    ],
)
def test_a_split_is_a_word_of_a_name_and_the_outermost_folder_decides(name: str, split: str | None) -> None:
    assert split_of_name(name) == split


def test_files_that_do_not_all_name_a_split_are_refused_with_the_name(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    of(folder, numbered(), "test.csv")
    with pytest.raises(RecipeError, match=r"no file is named by train, and test.csv by test"):
        inspect_data(recipe_of(folder, **named_source(folder)))
    of(folder, numbered(), "rest.csv")
    with pytest.raises(RecipeError, match=r"rest.csv names no split, as train.csv, valid/rest.csv or"):
        inspect_data(recipe_of(folder, **named_source(folder)))


def test_one_thing_alone_splits_the_rows_and_it_belongs_to_the_main_table(tmp_path: Path) -> None:
    path = of(tmp_path, numbered())
    with pytest.raises(ValueError, match="rows are split by `time`, n, or by `column`, fold"):
        recipe_of(path, split={"time": "n", "column": "fold"})
    with pytest.raises(ValueError, match=r"files name the splits \(`splits`\), or `split.time` does"):
        recipe_of(path, **named_source(path), split={"time": "n"})
    joined = {"source": {"rows": {"path": path}, "towns": {"path": path, "splits": True}}, "main": "rows"}
    with pytest.raises(ValueError, match="`splits` belongs to the main table 'rows', not to 'towns'"):
        recipe_of(path, **joined)
    with pytest.raises(RecipeError, match=r"split.column: part is not a column of table rows"):
        inspect_data(recipe_of(path, split={"column": "part"}))
    with pytest.raises(ValueError, match=r"texts are used alone: remove `split.column`"):
        text_recipe(tmp_path, split={"column": "fold"})
