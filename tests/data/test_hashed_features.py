"""Free text becomes hashed numbers, and codes beyond a bound share hashed ones."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from data_files import preprocessed, recipe_of, table_of

from shoestring.core.errors import RecipeError
from shoestring.data.formats.dictionaries import read_dictionaries
from shoestring.data.inspect.page import inspect_data
from shoestring.data.loading.open_split import open_split, require_encoding
from shoestring.data.recipe import Recipe
from shoestring.data.split_settings import SPLITS
from shoestring.data.storage.blobs import open_blob
from shoestring.data.transforms.encode import HASHED_CODES, Dictionary
from shoestring.data.transforms.hashing.hashed_text import (
    BUCKETS,
    MIN_SHARED_VALUES,
    hashed_names,
    hashed_texts,
    look_at,
)
from shoestring.evaluation.baselines import predict_trees, train_trees
from shoestring.evaluation.split_rows import read_targets

ROWS = 400
NOT_NAMED = "not named under `categorical`, `numeric`, `dates` or `texts`"
FILLERS = ["the", "of", "a", "in", "my", "this", "that", "was", "is", "on", "it", "to", "we"]


def reviews(folder: Path) -> Path:
    """Write a table whose target depends on one word of a text."""
    random, lines = Random(3), ["note,town,name,y"]
    for number in range(ROWS):
        is_good = random.random() < 0.5
        words = [
            *random.sample(
                ["the", "of", "a", "in", "my", "this", "that", "was", "is", "on", "it", "to", "we"], 6
            ),
            f"w{number}",
        ]
        words.append("excellent" if is_good else "dreadful")
        random.shuffle(words)
        lines.append(f"{' '.join(words)},{random.choice('abc')},Jo {number},{'yes' if is_good else 'no'}")
    path = folder / "reviews.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_free_text_becomes_hashed_numbers_that_depend_on_their_row_alone(tmp_path: Path) -> None:
    recipe = recipe_of(reviews(tmp_path))
    _, manifest, store = preprocessed(recipe, tmp_path / "run")
    assert manifest.encoding is not None
    names = {each.name for each in manifest.encoding.features}
    assert names >= set(hashed_names("note")) and "note" not in names
    train = table_of(store, manifest, "train")
    values = np.column_stack([train[name].to_numpy() for name in hashed_names("note")])
    assert np.allclose((values**2).sum(1), 1)
    # One bucket is enough to tell the classes apart, but for the words that share it.
    classes = np.asarray(train["y"].to_numpy()) == train["y"][0].as_py()
    means = np.abs(values[classes].mean(0) - values[~classes].mean(0))
    assert means.max() > 0.2


def test_the_data_page_shows_free_text_and_the_recipe_overrides_it(tmp_path: Path) -> None:
    recipe = recipe_of(reviews(tmp_path))
    uses = {each.name: (each.use, each.reason) for each in inspect_data(recipe).columns}
    assert uses["note"] == ("text", f"free text: its words are hashed into {BUCKETS} numbers")
    assert uses["name"][0] == "not used"
    other = recipe.model_copy(update={"categorical": ("town",), "texts": ("name",)})
    uses = {each.name: (each.use, each.reason) for each in inspect_data(other).columns}
    assert (uses["name"], uses["note"][0]) == (("text", "`texts`"), "not used")
    _, manifest, _ = preprocessed(other, tmp_path / "run")
    assert manifest.encoding is not None
    assert {each.name for each in manifest.encoding.features} <= {"town", *hashed_names("name")}


def inspections(folder: Path, names: int = 150, **columns: list[str]) -> Path:
    """Write four rows for each of these names of three words, whose target depends on the first word."""
    lines = [",".join(["name", "x", *columns, "y"])]
    for row in range(4 * names):
        number = row % names
        kind = ("subway", "sushi")[number % 2]
        others = [values[row % len(values)] for values in columns.values()]
        cells = [f"{kind.upper()} no {number}", str(row % 7), *others, ("good", "bad")[number % 2]]
        lines.append(",".join(cells))
    path = folder / "inspections.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def use_of(recipe: Recipe, name: str) -> tuple[str, str]:
    return next((each.use, each.reason) for each in inspect_data(recipe).columns if each.name == name)


def test_text_that_repeats_with_many_values_is_a_category_and_its_words(tmp_path: Path) -> None:
    path = inspections(tmp_path, towns=[*"abc"])
    # One name has the rows that a code takes.
    path.write_text(path.read_text() + "SUBWAY no 0,1,a,good\n" * 9)
    recipe = recipe_of(path)
    assert use_of(recipe, "name") == (
        "category and words",
        f"150 values; its words are hashed into {BUCKETS} numbers",
    )
    assert use_of(recipe, "towns") == ("categorical", "3 values")
    _, manifest, store = preprocessed(recipe, tmp_path / "run")
    features = {each.name: each for each in require_encoding(manifest).features}
    assert features["name"].has_words and not features["towns"].has_words
    assert {*hashed_names("name")} & {*features} and not {*hashed_names("towns")} & {*features}
    train = table_of(store, manifest, "train")
    stored = np.column_stack([train[name].to_numpy() for name in hashed_names("name")])
    dictionary = read_dictionaries(open_blob(store, require_encoding(manifest).dictionary_sha256))["name"]
    for code, row in zip(train["name"].to_pylist(), stored, strict=True):
        assert (row == hashed_texts([dictionary.values[code - 1]])[0]).all()


def test_a_value_without_a_code_is_known_by_its_words(tmp_path: Path) -> None:
    """Each name has four rows, too few for a code, so that only its words predict the target."""
    path = inspections(tmp_path, town=[f"t{number}" for number in range(150)])
    recipe = recipe_of(path, split={"by": ["town"]})
    assert use_of(recipe, "name")[0] == "text"
    _, manifest, store = preprocessed(recipe, tmp_path / "run")
    encoding = require_encoding(manifest)
    read = {split: open_split(store, manifest, split) for split in SPLITS}
    trees = train_trees(encoding, read["train"], read["val"], 0, 1, lambda rounds: None)
    found = predict_trees(encoding, trees, read["test"]).argmax(axis=1)
    assert (found == read_targets(read["test"])).mean() > 0.95


@pytest.mark.parametrize(
    ("keys", "use", "kinds"),
    [
        ({"categorical": ["name"]}, ("categorical", "`categorical`"), {"categorical"}),
        ({"texts": ["name"]}, ("text", "`texts`"), {"numeric"}),
        (
            {"categorical": ["name"], "texts": ["name"]},
            ("category and words", "`categorical` and `texts`"),
            {"categorical", "numeric"},
        ),
        ({"numeric": ["x"]}, ("not used", NOT_NAMED), set()),
    ],
)
def test_a_recipe_that_names_features_decides_between_category_and_words(
    keys: dict[str, list[str]], use: tuple[str, str], kinds: set[str], tmp_path: Path
) -> None:
    recipe = recipe_of(inspections(tmp_path), **keys)
    assert use_of(recipe, "name") == use
    _, manifest, _ = preprocessed(recipe, tmp_path / "run")
    features = require_encoding(manifest).features
    assert {each.kind for each in features if each.name.startswith("name")} == kinds


@pytest.mark.parametrize(
    ("values", "is_shared"),
    [
        ([f"one of {index % MIN_SHARED_VALUES}" for index in range(500)], True),
        ([f"one of {index % (MIN_SHARED_VALUES - 1)}" for index in range(500)], False),
        ([f"Ann Lee{index % 200}" for index in range(500)], False),
        ([f"one of {index}" for index in range(500)], False),
        ([None] * 500, False),
    ],
)
def test_words_are_shared_by_many_values_of_several_words_that_repeat(
    values: list[str | None], is_shared: bool
) -> None:
    assert look_at(pa.chunked_array([pa.array(values, pa.string())])).is_shared == is_shared


def test_labels_of_a_category_with_words_are_compared(tmp_path: Path) -> None:
    path = inspections(tmp_path)
    path.write_text(path.read_text() + "SUBWAY no 0.,1,good\n" * 9)
    (finding,) = inspect_data(recipe_of(path)).findings
    assert "'SUBWAY no 0'" in finding and "'SUBWAY no 0.'" in finding


def test_a_column_of_numbers_is_no_text(tmp_path: Path) -> None:
    (path := tmp_path / "rows.csv").write_text("x,y\n" + "1,0\n2,1\n" * 50)
    recipe = recipe_of(path, texts=["x"])
    with pytest.raises(RecipeError, match="the column x, named under `texts`, is of type int64"):
        preprocessed(recipe, tmp_path / "run")


@pytest.mark.parametrize(
    ("values", "is_free"),
    [
        ([f"a word and {index}" for index in range(50)], True),
        (["the same few words"] * 50, False),
        ([f"id-{index}" for index in range(50)], False),
        ([f"Ann Lee{index}" for index in range(50)], False),
        ([None] * 50, False),
    ],
)
def test_free_text_differs_from_row_to_row_and_has_several_words(
    values: list[str | None], is_free: bool
) -> None:
    assert look_at(pa.chunked_array([pa.array(values, pa.string())])).is_free == is_free


def test_hashed_text_ignores_case_and_keeps_the_order_of_neighbours() -> None:
    one, same, turned, missing = hashed_texts(["Not good, bad!", "not GOOD bad", "not bad good", None])
    assert (one == same).all()
    assert (one != turned).any()
    assert not missing.any()


def test_codes_beyond_the_bound_share_those_of_their_hash() -> None:
    dictionary = Dictionary(most=100)
    values = [f"value {number}" for number in range(200_000)]
    codes = dictionary.encode(pa.chunked_array([values]))
    assert codes[:100].tolist() == list(range(1, 101))
    assert len(dictionary.values) == 100 + HASHED_CODES
    assert np.bincount(codes[100:]).max() < 100
    # The next version, and the next rows, have the same codes.
    later = Dictionary(dictionary.values, most=100)
    assert (later.encode(pa.chunked_array([values[::-1]]))[::-1] == codes).all()


def test_the_recipe_bounds_the_codes_of_a_column(tmp_path: Path) -> None:
    lines = [f"{'abcdefgh'[number % 8]},{number % 3},{number % 2}" for number in range(ROWS)]
    (path := tmp_path / "rows.csv").write_text("\n".join(["letter,x,y", *lines]) + "\n")
    _, manifest, store = preprocessed(recipe_of(path, max_categories=3), tmp_path / "run")
    assert manifest.encoding is not None
    found = next(each for each in manifest.encoding.features if each.name == "letter")
    assert found.cardinality == 1 + 8  # Few hashes are shared.
    used = set(table_of(store, manifest, "train")["letter"].to_pylist())
    assert used == set(range(1, 9))
