"""A model's folder predicts raw rows as the stage that evaluated it predicted encoded ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from commands import shoestring
from predict_without_torch import PREDICT
from trained_models import FAMILIES, Trained, places, table, trained

import shoestring as package
from shoestring.core.errors import DataError, UsageError
from shoestring.models.model import model_at
from shoestring.models.predict_file import predict_file

CLASSES = ("high", "low", "middle")


def probabilities(found: pa.Table) -> Any:
    return np.stack([found[f"probability_{name}"].to_numpy() for name in CLASSES], axis=1)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("target", ["grade", "price"])
def test_raw_rows_are_predicted_as_encoded_ones(family: str, target: str, tmp_path: Path) -> None:
    made = trained(tmp_path, family, target)
    inputs = model_at(tmp_path / "model").record.inputs
    columns = {"city", "size", "when", "opened", "fee", "y", "remark", "shop"}
    assert {each.name for each in inputs.main} >= columns
    assert ({*inputs.dates}, inputs.texts) == ({"when", "opened"}, ("remark", "shop"))
    assert {"shop", "shop_words_00"} <= {each.name for each in made.model.encoding.features}
    days = {"when - opened (days)", "opened - when (days)"}
    assert days & {each.name for each in made.model.encoding.features}
    assert {each.written for each in inputs.main} == {"", "$", "day first"}
    assert 150 < made.sealed.num_rows < 210
    found = package.load(tmp_path / "model").predict(made.sealed.drop_columns(["grade", "price"]))
    if target == "price":
        assert found.column_names == ["prediction"]
        assert found["prediction"].to_numpy() == pytest.approx(made.predicted, rel=1e-5)
        return
    assert found.column_names == ["prediction", *(f"probability_{name}" for name in CLASSES)]
    assert probabilities(found) == pytest.approx(made.predicted, abs=1e-5)
    assert found["prediction"].to_pylist() == [CLASSES[at] for at in made.predicted.argmax(axis=1)]


def test_further_values_of_a_category_share_the_codes_of_their_hash(tmp_path: Path) -> None:
    made = trained(tmp_path, "table_net", max_categories=3)
    found = package.load(tmp_path / "model").predict(made.sealed)
    assert probabilities(found) == pytest.approx(made.predicted, abs=1e-5)
    assert made.model.encoding.dictionary_sha256


def test_classes_of_equal_weight_are_chosen_as_the_evaluation_chooses(tmp_path: Path) -> None:
    made = trained(tmp_path, "boosted", metric="balanced_accuracy")
    found = package.load(tmp_path / "model").predict(made.sealed)
    relative = made.predicted / np.array(made.model.encoding.train_prior)
    assert found["prediction"].to_pylist() == [CLASSES[at] for at in relative.argmax(axis=1)]
    assert (relative.argmax(axis=1) != made.predicted.argmax(axis=1)).any()


def test_the_classes_have_the_type_of_the_target(tmp_path: Path) -> None:
    made = trained(tmp_path, "linear", "rooms")
    found = package.load(tmp_path / "model").predict(made.sealed)
    assert found.schema.field("prediction").type == pa.int64()
    assert "probability_6" in found.column_names


def test_a_model_needs_no_torch_to_predict(blend: Trained, tmp_path: Path) -> None:
    pa.csv.write_csv(blend.sealed, tmp_path / "new.csv")
    arguments = [str(blend.folder / "model"), str(tmp_path / "new.csv"), str(tmp_path / "out.parquet")]
    ran = subprocess.run([sys.executable, "-c", PREDICT, *arguments], capture_output=True, text=True)
    assert ran.stdout.split()[:1] == [str(blend.sealed.num_rows)], ran.stderr
    found = pq.read_table(tmp_path / "out.parquet")
    assert probabilities(found) == pytest.approx(blend.predicted, abs=1e-5)


KINDS = ("csv", "parquet", "arrow", "jsonl")


def write_kinds(rows: pa.Table, folder: Path) -> None:
    pa.csv.write_csv(rows, folder / "new.csv")
    pq.write_table(rows, folder / "new.parquet")
    with pa.ipc.new_file(folder / "new.arrow", rows.schema) as writer:
        writer.write_table(rows)
    lines = (json.dumps(row, default=str) + "\n" for row in rows.to_pylist())
    (folder / "new.jsonl").write_text("".join(lines))


def read_kind(file: Path) -> pa.Table:
    match file.suffix:
        case ".csv":
            return pa.csv.read_csv(file)
        case ".parquet":
            return pq.read_table(file)
        case ".arrow":
            with pa.ipc.open_file(file) as reader:
                return reader.read_all()
        case _:
            return pa.Table.from_pylist([json.loads(line) for line in file.open()])


def check_kept_and_predicted(file: Path, blend: Trained) -> None:
    found = read_kind(file)
    assert [int(each) for each in found["id"].to_pylist()] == blend.sealed["id"].to_pylist()
    assert found["city"].to_pylist() == blend.sealed["city"].to_pylist()
    assert probabilities(found) == pytest.approx(blend.predicted, abs=1e-5)


def test_every_kind_of_file_is_read_and_written(blend: Trained, tmp_path: Path) -> None:
    rows, model = blend.sealed, model_at(blend.folder / "model")
    write_kinds(rows, tmp_path)
    for data in KINDS:
        for out in KINDS:
            file = tmp_path / f"of-{data}.{out}"
            found = predict_file(model, tmp_path / f"new.{data}", file, ("id", "city"))
            assert found.rows == rows.num_rows
            check_kept_and_predicted(file, blend)


@pytest.mark.parametrize(("data", "out"), zip(KINDS, KINDS[1:] + KINDS[:1], strict=True))
def test_the_command_reads_and_writes_every_kind_of_file(
    blend: Trained, tmp_path: Path, data: str, out: str
) -> None:
    write_kinds(blend.sealed, tmp_path)
    file = tmp_path / f"of-{data}.{out}"
    words = (tmp_path / f"new.{data}", "--out", file, "--keep", "id", "--keep", "city", "--json")
    ran = shoestring("predict", blend.folder / "model", *words)
    assert ran.code == 0, ran.err
    assert (ran.json["rows"], ran.json["out"]) == (blend.sealed.num_rows, str(file))
    check_kept_and_predicted(file, blend)


def test_frames_of_all_libraries_are_predicted_alike(blend: Trained) -> None:
    model = package.load(blend.folder / "model")
    rows = blend.sealed
    pandas = rows.to_pandas().set_index("id")
    found = model.predict(pandas, keep=["city"])
    assert found.index.equals(pandas.index) and [*found.columns[:2]] == ["city", "prediction"]
    polars = model.predict(pl.DataFrame(rows.to_pandas()))
    assert isinstance(polars, pl.DataFrame)
    arrow = model.predict(rows.to_batches()[0])
    for each in (pa.Table.from_pandas(found), polars.to_arrow(), arrow):
        assert probabilities(each) == pytest.approx(blend.predicted, abs=1e-5)
    assert model.predict(rows.slice(0, 0)).num_rows == 0
    with pytest.raises(UsageError, match="pandas, polars or pyarrow is expected, and this is list"):
        model.predict([1])


def test_joined_columns_come_from_the_rows_then_from_a_table_then_from_the_folder(
    linear: Trained, tmp_path: Path
) -> None:
    model, rows = package.load(linear.folder / "model"), table(300, seed=5)
    kept = model.predict(rows)["prediction"].to_numpy()
    other = places().set_column(2, "height", pa.array([10.0 * number for number in range(38)]))
    moved = model.predict(rows, tables={"places": other})["prediction"].to_numpy()
    assert not np.allclose(kept, moved)
    right = {place["place"]: place for place in other.to_pylist()}
    own = rows
    for name in ("region", "height"):
        values = [right.get(place, {}).get(name) for place in rows["place"].to_pylist()]
        own = own.append_column(name, pa.array(values))
    assert model.predict(own)["prediction"].to_numpy() == pytest.approx(moved)
    pa.csv.write_csv(rows, tmp_path / "new.csv")
    pq.write_table(other, tmp_path / "other.parquet")
    ran = shoestring(
        *("predict", linear.folder / "model", tmp_path / "new.csv", "--out", tmp_path / "out.csv"),
        *("--table", f"places={tmp_path / 'other.parquet'}"),
    )
    assert ran.code == 0, ran.err
    assert pa.csv.read_csv(tmp_path / "out.csv")["prediction"].to_numpy() == pytest.approx(moved)
    with pytest.raises(UsageError, match="joins no table 'sites': it joins places"):
        model.predict(rows, tables={"sites": other})
    with pytest.raises(DataError, match=r"table places lacks a column .* reads: height \(a number\)"):
        model.predict(rows, tables={"places": other.drop_columns(["height"])})


def test_a_large_table_is_not_kept_and_asked_for(tmp_path: Path) -> None:
    made = trained(tmp_path, "linear", "price", max_tables=1000)
    assert not [*(tmp_path / "model").rglob("*.parquet")]
    model = package.load(tmp_path / "model")
    with pytest.raises(DataError, match="lacks region, height of table places, which is not kept"):
        model.predict(made.sealed)
    found = model.predict(made.sealed, tables={"places": places()})
    assert found["prediction"].to_numpy() == pytest.approx(made.predicted, rel=1e-5)


def test_what_the_model_does_not_know_is_missing_and_said(linear: Trained) -> None:
    model, rows = package.load(linear.folder / "model"), linear.sealed.slice(0, 100)

    def cities(values: list[str | None]) -> Any:
        found = rows.set_column(rows.column_names.index("city"), "city", pa.array(values, pa.string()))
        return model.predict(found)["prediction"].to_numpy()

    known = ["Oslo"] * 94
    with pytest.warns(
        UserWarning, match="column city: 6.0% of 100 values are unknown to the model, such as 'Perth'"
    ):
        unknown = cities([*known, *["Perth"] * 6])
    assert unknown == pytest.approx(cities([*known, *[None] * 6]))
    assert not np.allclose(unknown, cities(["Oslo"] * 100))


def test_columns_that_do_not_fit_get_a_sentence(linear: Trained, tmp_path: Path) -> None:
    model, rows = package.load(linear.folder / "model"), linear.sealed
    with pytest.raises(
        DataError,
        match=r"the frame lacks 2 columns .*: city \(text\), rooms \(a whole number\); it has id",
    ):
        model.predict(rows.drop_columns(["city", "rooms"]))
    at = rows.column_names.index("rooms")
    with pytest.raises(
        DataError,
        match=r"column rooms is of type timestamp\[us\], and .* a whole number \(int64\)",
    ):
        model.predict(rows.set_column(at, "rooms", rows["when"]))
    texts = ["many", *map(str, rows["rooms"].to_pylist()[1:])]
    with pytest.warns(UserWarning, match=r"rooms: 1 of \d+ values are not a whole number, .* 'many'"):
        found = model.predict(rows.set_column(at, "rooms", pa.array(texts)))
    assert found["prediction"].to_numpy()[1:] == pytest.approx(linear.predicted[1:], rel=1e-5)
    with pytest.raises(DataError, match="at most 2% are read as missing"):
        model.predict(rows.set_column(at, "rooms", pa.array(["many"] * 5 + texts[5:])))
    halves = rows.set_column(at, "rooms", pa.array([each + 0.5 for each in rows["rooms"].to_pylist()]))
    assert model.predict(halves).num_rows == rows.num_rows


def test_a_row_that_cannot_be_read_leaves_nothing_behind(linear: Trained, tmp_path: Path) -> None:
    pa.csv.write_csv(linear.sealed, tmp_path / "new.csv")
    with (tmp_path / "new.csv").open("a") as file:
        file.write("1,2,3\n")
    for out, sentence in (
        ("out.csv", "a row cannot be read, so nothing is predicted: new.csv, row"),
        ("out.xlsx", "out.xlsx says no format: let its name end in .parquet, .arrow, .csv or .jsonl"),
    ):
        ran = shoestring("predict", linear.folder / "model", tmp_path / "new.csv", "--out", tmp_path / out)
        assert ran.code in (1, 2) and sentence in ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["new.csv"]
