"""JSON lines and Arrow files are tables like any other."""

from __future__ import annotations

import gzip
import json
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pytest
from data_files import ingested, quarantined_rows, recipe_of, table_of

from shoestring.core.errors import DataError
from shoestring.data.inspect.preview import preview_target
from shoestring.data.inspect.sample import read_samples
from shoestring.data.inspect.tables.table_sample import SampleSize
from shoestring.data.sources.files import estimate_size


def of(folder: Path, *lines: object, name: str = "rows.jsonl") -> Path:
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines).encode()
    (folder / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return folder / name


ROWS = [{"zip": f"{number:05}", "a": number, "y": number % 2} for number in range(100)]


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.ndjson", "rows.json.gz", "rows.jsonl.gz"])
def test_lines_keep_the_types_of_json(tmp_path: Path, name: str) -> None:
    rows = [
        {"zip": "01234", "n": 9007199254740993, "f": 1e20, "at": "2013-01-01T10:00:00", "ok": True, "y": 1},
        {"zip": "é\n", "n": None, "f": 0.1, "at": None, "ok": False, "y": 2},
        {"zip": "5", "n": -1, "f": -2, "at": "2013-01-02", "y": 3},
    ]
    recipe = recipe_of(of(tmp_path, *rows, name=name))
    assert estimate_size(recipe).rows_estimate == 3
    _, manifest, store = ingested(recipe, tmp_path)
    assert manifest.columns == {
        "rows.zip": "string",
        "rows.n": "int64",
        "rows.f": "double",
        "rows.at": "timestamp[us]",
        "rows.ok": "bool",
        "rows.y": "int64",
    }
    assert manifest.quarantined == {}
    assert table_of(store, manifest, "rows").to_pylist() == [
        rows[0] | {"at": datetime.fromisoformat("2013-01-01T10:00")},
        rows[1],
        rows[2] | {"at": datetime.fromisoformat("2013-01-02"), "ok": None},
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("not json", "not JSON"),
        ('{"a": 1', "not JSON"),
        ('{"a": 1, "a": 2}', "not JSON"),
        ("[1]", "a list, not an object"),
        ("7", "a number, not an object"),
        ('{"a": [1]}', "a is a list"),
        ('{"a": {"b": 1}}', "a is an object"),
    ],
)
def test_lines_that_do_not_fit_are_quarantined_with_their_number(
    tmp_path: Path, line: str, reason: str
) -> None:
    path = of(tmp_path, *ROWS[:30], "", line, *ROWS[30:])
    _, manifest, store = ingested(recipe_of(path), tmp_path)
    [row] = quarantined_rows(store, manifest)
    assert (row["file"], row["row"], row["reason"]) == ("rows.jsonl", 32, reason)
    assert manifest.rows == 100
    assert table_of(store, manifest, "rows")["zip"].to_pylist() == [row["zip"] for row in ROWS]


def test_a_late_key_is_quarantined_and_late_fractions_are_numbers(tmp_path: Path) -> None:
    many = [{"a": number, "y": "x" * 1000} for number in range(1200)]
    path = of(tmp_path, *many, {"a": 2.5, "y": "x", "late": 1}, {"a": 2.5, "y": "x"})
    _, manifest, store = ingested(recipe_of(path), tmp_path)
    assert manifest.quarantined == {"rows: late is not a column of the first rows": 1}
    assert table_of(store, manifest, "rows")["a"].to_pylist() == [*map(float, range(1200)), 2.5]


def test_files_with_other_keys_are_one_table(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    of(tmp_path / "rows", {"a": 1, "y": 2}, name="1.jsonl")
    of(tmp_path / "rows", {"b": "x", "y": 3}, {"y": 4}, name="2.jsonl")
    recipe = recipe_of(tmp_path / "rows", target={"column": "b", "task": "binary"})
    assert estimate_size(recipe).rows_estimate == 3
    _, manifest, store = ingested(recipe, tmp_path)
    assert table_of(store, manifest, "rows").to_pylist() == [
        {"a": 1, "y": 2, "b": None},
        {"a": None, "y": 3, "b": "x"},
        {"a": None, "y": 4, "b": None},
    ]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["[", '{"a": 1}', "]"], "2 of 3 rows"),
        (["[1, 2]"], "no line with a JSON object in its first megabyte"),
        ([{"tags": ["a"], "y": 1}], "column 'tags' holds a list, which is not supported"),
    ],
)
def test_json_that_is_no_table_is_refused(tmp_path: Path, lines: list[object], message: str) -> None:
    path = of(tmp_path, *lines)
    with pytest.raises(DataError, match=message):
        ingested(recipe_of(path, target={"column": "a"} if "2 of" in message else {"column": "y"}), tmp_path)


@pytest.mark.parametrize("line", ['{"a": "many", "y": 1}', '{"a": true}'])
def test_a_value_of_another_kind_is_missing_and_its_line_is_kept(tmp_path: Path, line: str) -> None:
    path = of(tmp_path, *ROWS[:30], "", line, *ROWS[30:])
    _, manifest, store = ingested(recipe_of(path), tmp_path)
    [value] = quarantined_rows(store, manifest)
    assert (value["row"], value["column"], value["reason"]) == (32, "a", "a is not a whole number")
    assert (manifest.rows, manifest.quarantined) == (101, {})
    assert table_of(store, manifest, "rows")["a"][30].as_py() is None


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "utf-8-sig"])
def test_json_in_another_encoding_is_read(tmp_path: Path, encoding: str) -> None:
    text = '{"a": "Größe", "y": 1}\n' * 30
    (tmp_path / "rows.jsonl").write_bytes(text.encode(encoding))
    _, manifest, store = ingested(recipe_of(tmp_path / "rows.jsonl"), tmp_path)
    assert table_of(store, manifest, "rows")["a"].to_pylist() == ["Größe"] * 30


def test_json_with_bytes_that_are_no_text_or_half_written_is_named(tmp_path: Path) -> None:
    good, bad = '{"a": "Größe", "y": 1}\n'.encode(), b'{"a": "Gr\xff", "y": 1}\n'
    (tmp_path / "rows.jsonl").write_bytes(good * 20 + bad + good * 20)
    _, manifest, store = ingested(recipe_of(tmp_path / "rows.jsonl"), tmp_path)
    [row] = quarantined_rows(store, manifest)
    assert (row["row"], row["reason"], manifest.rows) == (21, "bytes that are no text", 40)
    whole = of(tmp_path, *ROWS, name="rows.jsonl.gz").read_bytes()
    (tmp_path / "rows.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"rows\.jsonl\.gz is damaged or truncated"):
        ingested(recipe_of(tmp_path / "rows.jsonl.gz"), tmp_path)


@pytest.mark.parametrize("name", ["rows.arrow", "rows.feather"])
def test_an_arrow_file_is_a_table(tmp_path: Path, name: str) -> None:
    rows = pa.table(
        {
            "a": pa.array([1, None, 3], pa.int32()),
            "w": pa.array(["x", "y", None]).dictionary_encode(),
            "y": [0.5, 1.5, 2.5],
        }
    )
    path = tmp_path / name
    if name.endswith(".feather"):
        pyarrow.feather.write_feather(rows, path, compression="lz4")
    else:
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
            writer.write_table(rows)
    assert estimate_size(recipe_of(path)).rows_estimate == 3
    samples = read_samples(recipe_of(path), size=SampleSize(whole_bytes=0))
    assert preview_target(recipe_of(path), samples).startswith("target y: regression")
    _, manifest, store = ingested(recipe_of(path), tmp_path)
    assert manifest.columns == {"rows.a": "int32", "rows.w": "string", "rows.y": "double"}
    assert table_of(store, manifest, "rows").to_pylist() == rows.to_pylist()
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=f"{name} cannot be read"):
        ingested(recipe_of(path), tmp_path / "cut")
