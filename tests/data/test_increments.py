"""A new version of a data set works on what changed, and equals one that was made from nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from data_files import recipe_of, with_shops
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from shoestring.backends.folder_store import FolderStore
from shoestring.config.retention import RetentionPolicy
from shoestring.core import store_layout
from shoestring.core.datasets import DatasetPart, Manifest
from shoestring.core.errors import RecipeError
from shoestring.core.record import digest, record_bytes
from shoestring.core.types import Format
from shoestring.data.formats.dictionaries import read_dictionaries
from shoestring.data.loading.open_split import require_encoding
from shoestring.data.recipe import Recipe
from shoestring.data.retention.garbage import find_garbage
from shoestring.data.split_settings import SPLITS
from shoestring.data.storage.blobs import open_blob, save_manifest
from shoestring.data.storage.part_writer import REUSING, PartWriter, open_part
from shoestring.data.transforms.encode import MIN_CATEGORY_ROWS, RunningMoments
from shoestring.data.transforms.ingest import ingest
from shoestring.data.transforms.preprocess import preprocess

Cell = int | float | str | None


def rows_of(seed: int, count: int = 60) -> pa.Table:
    """Return rows of which each file has its own words."""
    random = np.random.default_rng(seed)
    numbers: list[float | None] = random.normal(100, 3, count).tolist()
    numbers[0] = None
    return pa.table(
        {
            "id": pa.array(random.integers(0, 10**6, count).tolist(), pa.int64()),
            "number": pa.array(numbers, pa.float64()),
            "word": [f"w{value % 4}" if value < 9 else f"s{seed}" for value in range(count)],
            "few": pa.array([(value * seed) % 7 for value in range(count)], pa.int64()),
            "y": [
                ["no", "yes", None][min(value % 9, 2) if value < 3 else value % 2] for value in range(count)
            ],
        }
    )


class Files:
    """The raw parts of a data set, one for each file."""

    def __init__(self, folder: Path, format: Format = Format.ARROW) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.store, self.folder, self.format = FolderStore(folder / "store"), folder, format
        self.encoded_rows = self.reused_rows = 0

    def encode(self, recipe: Recipe, files: Mapping[str, pa.Table]) -> Manifest:
        """Preprocess these files, in the order of their names."""
        parts: list[DatasetPart] = []
        for _, table in sorted(files.items()):
            writer = PartWriter(self.store, self.format, self.folder)
            writer.add(table)
            parts += writer.close()
        schema = next(iter(files.values())).schema
        raw = Manifest(
            name="mine-raw",
            format=self.format,
            columns={f"rows.{column.name}": str(column.type) for column in schema},
            splits={"rows": tuple(parts)},
            rows=sum(part.rows for part in parts),
            row_bytes=1,
            size_bytes=1,
            settings_sha256="",
        )
        key = save_manifest(self.store, raw)
        self.encoded_rows = self.reused_rows = 0
        return preprocess(recipe, key, self.format, self.store, self.folder, self._report)[1]

    def _report(self, phase: str, rows: int) -> None:
        if phase == REUSING:
            self.reused_rows = rows
        else:
            self.encoded_rows = rows

    def decoded(self, manifest: Manifest, split: str) -> list[dict[str, Cell]]:
        """Return the stored rows of a split, with the values of their codes."""
        encoding = require_encoding(manifest)
        values = {
            name: [None, *found.values]
            for name, found in read_dictionaries(open_blob(self.store, encoding.dictionary_sha256)).items()
        }
        table = pa.concat_tables(open_part(self.store, manifest, part) for part in manifest.splits[split])
        return [
            {name: values[name][value] if name in values else value for name, value in row.items()}
            for row in table.to_pylist()
        ]

    def train_rows(self, manifest: Manifest) -> dict[str, dict[str, tuple[int, int]]]:
        """Return the rows and the model's code of each value that has rows."""
        found = read_dictionaries(open_blob(self.store, require_encoding(manifest).dictionary_sha256))
        return {
            name: {
                value: (int(rows), int(code))
                for value, rows, code in zip(each.values, each.rows, each.model_codes, strict=True)
                if rows
            }
            for name, each in found.items()
        }


def assert_equal(files: Files, found: Manifest, cold: Files, expected: Manifest) -> None:
    """Check that two data sets are equal once their codes are decoded; their moments to 1e-12."""
    for split in SPLITS:
        assert repr(files.decoded(found, split)) == repr(cold.decoded(expected, split))
    assert files.train_rows(found) == cold.train_rows(expected)
    assert (found.rows, found.quarantined, found.columns) == (
        expected.rows,
        expected.quarantined,
        expected.columns,
    )
    ours, theirs = require_encoding(found), require_encoding(expected)
    assert ours.classes == theirs.classes and ours.train_prior == pytest.approx(theirs.train_prior, rel=1e-12)
    for one, other in zip(ours.features, theirs.features, strict=True):
        assert one.model_copy(update={"mean": 0, "sd": 1}) == other.model_copy(update={"mean": 0, "sd": 1})
        assert (one.mean, one.sd) == pytest.approx((other.mean, other.sd), rel=1e-12)


@pytest.mark.parametrize("format", Format)
@pytest.mark.parametrize("target", ["y", "number", "above"])
def test_a_changed_an_added_and_a_removed_file_are_all_that_is_worked_on(
    tmp_path: Path, format: Format, target: str
) -> None:
    column = {"column": "number", "above": 100} if target == "above" else {"column": target}
    recipe = recipe_of(tmp_path, target=column)
    files = Files(tmp_path / "warm", format)
    first = {f"{number}.csv": rows_of(number) for number in range(6)}
    files.encode(recipe, first)
    assert (files.encoded_rows, files.reused_rows) == (360, 0)
    second = {**first, "2.csv": rows_of(20), "9.csv": rows_of(9)}
    del second["4.csv"]
    found = files.encode(recipe, second)
    assert (files.encoded_rows, files.reused_rows) == (120, 240)
    cold = Files(tmp_path / "cold", format)
    assert_equal(files, found, cold, cold.encode(recipe, second))


@examples(12)
@given(changes=st.lists(st.dictionaries(st.integers(0, 5), st.integers(0, 9), max_size=3), max_size=3))
def test_any_changes_one_after_another_equal_a_cold_run(
    tmp_path_factory: pytest.TempPathFactory, changes: list[dict[int, int]]
) -> None:
    """A file gets other rows, or the rows of another file, or is removed (0)."""
    folder = tmp_path_factory.mktemp("changes")
    recipe = recipe_of(folder, numeric=["id", "number"], categorical=["word", "few"])
    files, cold = Files(folder / "warm"), Files(folder / "cold")
    present = {f"{number}.csv": rows_of(number + 1) for number in range(5)}
    files.encode(recipe, present)
    for change in changes:
        for number, seed in change.items():
            present[f"{number}.csv"] = rows_of(seed)
            if not seed and len(present) > 4:
                del present[f"{number}.csv"]
        assert_equal(files, files.encode(recipe, present), cold, cold.encode(recipe, present))


def test_codes_of_an_earlier_version_stay_and_those_of_gone_values_are_unknown(tmp_path: Path) -> None:
    recipe, files = recipe_of(tmp_path, categorical=["word"]), Files(tmp_path)
    present = {f"{number}.csv": rows_of(number) for number in range(1, 5)}
    before = files.encode(recipe, present)
    del present["1.csv"]
    after = files.encode(recipe, {**present, "0.csv": rows_of(8)})
    shas = [require_encoding(each).dictionary_sha256 for each in (before, after)]
    first, second = (read_dictionaries(open_blob(files.store, each))["word"] for each in shas)
    assert [*second.values] == [*first.values, "s8"]
    gone = first.values.index("s1")
    assert first.model_codes[gone] > 0 and first.rows[gone] >= MIN_CATEGORY_ROWS
    assert second.model_codes[gone] == second.rows[gone] == 0


def test_other_settings_and_a_damaged_result_are_made_from_nothing(tmp_path: Path) -> None:
    recipe, files = recipe_of(tmp_path), Files(tmp_path)
    present = {f"{number}.csv": rows_of(number) for number in range(5)}
    manifest = files.encode(recipe, present)
    for other in (recipe_of(tmp_path, seed=5), recipe):
        assert files.encode(other, present).rows == manifest.rows
        assert (files.encoded_rows, files.reused_rows) == (300, 0)
    # A part of a file that is removed has to be read, and is damaged.
    part = files.encode(recipe, present).splits["train"][1]
    path = files.store.fetch(part.key)
    path.chmod(0o600)
    path.write_bytes(b"damaged")
    del present["1.csv"]
    found = files.encode(recipe, present)
    assert files.encoded_rows == 240
    cold = Files(tmp_path / "cold")
    assert_equal(files, found, cold, cold.encode(recipe, present))


def features_of(manifest: Manifest) -> dict[str, str]:
    return {each.name: each.kind for each in require_encoding(manifest).features}


def test_kinds_of_the_first_version_stay(tmp_path: Path) -> None:
    """At first, `word` has single words, and `shop` names that repeat; the target gets a third class."""
    recipe, files = recipe_of(tmp_path, leaks=["id"]), Files(tmp_path)
    present = {f"{number}.csv": with_shops(rows_of(number), number) for number in range(5)}
    files.encode(recipe, present)
    late = pa.array([f"sentence {number} of very many free words" for number in range(295)])
    grown = present | {"9.csv": rows_of(9, 295).set_column(2, "word", late).append_column("shop", late)}
    assert not {"word", "shop"} & {*features_of(Files(tmp_path / "cold").encode(recipe, grown))}
    found = features_of(files.encode(recipe, grown))
    assert found["word"] == found["shop"] == "categorical" and "shop_words_00" in found
    third = with_shops(rows_of(9), 9).set_column(4, "y", pa.array(["maybe"] * 60))
    with pytest.raises(RecipeError, match="3 distinct values, which does not fit the task binary"):
        files.encode(recipe, {**present, "9.csv": third})


def test_versions_are_numbered_and_a_damaged_record_is_not_built_on(tmp_path: Path) -> None:
    recipe, files = recipe_of(tmp_path), Files(tmp_path)
    present = {f"{number}.csv": rows_of(number) for number in range(5)}
    files.encode(recipe, present)
    files.encode(recipe, {**present, "8.csv": rows_of(8)})
    records = [*files.store.list(store_layout.CACHE + "increments/")]
    assert [Path(each).name[:7] for each in records] == ["000001-", "000002-"]
    more = {**present, "8.csv": rows_of(8), "9.csv": rows_of(9)}
    files.encode(recipe, more)
    assert (files.encoded_rows, files.reused_rows) == (60, 360)
    last = max(files.store.list(store_layout.CACHE + "increments/"))
    data = files.store.fetch(last).read_bytes()
    files.store.put(last, data.replace(b"  160,", b"  159,"))
    assert files.store.fetch(last).read_bytes() != data
    files.encode(recipe, present)
    assert (files.encoded_rows, files.reused_rows) == (300, 0)


def test_clean_up_keeps_what_a_kept_version_shares_with_one_that_is_gone(tmp_path: Path) -> None:
    recipe, files = recipe_of(tmp_path), Files(tmp_path)
    present = {f"{number}.csv": rows_of(number) for number in range(5)}
    first = files.encode(recipe, present)
    second = files.encode(recipe, {**present, "8.csv": rows_of(8)})
    key = store_layout.manifest(second.name, digest(record_bytes(second)))
    files.store.put(store_layout.model("kept"), json.dumps({"data": key}).encode())
    later = datetime.now(UTC) + timedelta(days=9)
    found = find_garbage(files.store, files.store, RetentionPolicy(keep_days=1), later)
    assert not {*found.keys} & {store_layout.blob(sha256) for sha256 in second.blobs}
    gone = {*first.blobs} - {*second.blobs}
    assert gone and {store_layout.blob(sha256) for sha256 in gone} <= {*found.keys}
    records = sorted(files.store.list(store_layout.CACHE + "increments/"))
    assert records[0] in found.keys and records[1] not in found.keys


@given(st.lists(st.lists(st.floats(-1e6, 1e6), max_size=9), min_size=1, max_size=6))
def test_merged_moments_do_not_depend_on_the_order_of_the_parts(
    parts: list[list[float]],
) -> None:
    moments = []
    for values in parts:
        moments.append(RunningMoments())
        moments[-1].add(np.array(values, np.float64))
    numbers = np.array([[m.rows, m.count, m.mean, m.squares, m.low, m.high] for m in moments])
    found = RunningMoments.merged(numbers)
    assert RunningMoments.merged(numbers[::-1]) == found
    everything = np.array([value for values in parts for value in values])
    if len(everything):
        assert (found.mean, found.low, found.high) == pytest.approx(
            (everything.mean(), everything.min(), everything.max()), rel=1e-9, abs=1e-9
        )
        assert found.sd == pytest.approx(everything.std(), rel=1e-6, abs=1e-6)


def test_files_that_are_added_and_changed_anywhere_leave_the_parts_of_the_others(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    recipe = recipe_of(data)

    def write(name: str, seed: int) -> None:
        values = np.random.default_rng(seed).integers(0, 10**6, (60_000, 2))
        lines = [f"{first},{second},{first % 2}" for first, second in values.tolist()]
        (data / name).write_text("\n".join(["a,b,y", *lines]))

    for number in range(1, 5):
        write(f"{number}.csv", number)
    encoded: dict[str, int] = {}
    files = Files(tmp_path)
    raw, _ = ingest(recipe, Format.ARROW, files.store, tmp_path, encoded.__setitem__)
    preprocess(recipe, raw, Format.ARROW, files.store, tmp_path, encoded.__setitem__)
    write("0.csv", 10)
    write("2.csv", 20)
    (data / "3.csv").unlink()
    raw, _ = ingest(recipe, Format.ARROW, files.store, tmp_path, encoded.__setitem__)
    _, found = preprocess(recipe, raw, Format.ARROW, files.store, tmp_path, encoded.__setitem__)
    assert (encoded["encoding"], encoded[REUSING], found.rows) == (120_000, 120_000, 240_000)
