"""A data set derived from another, with one table transformed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from data_files import ingested, quiet, recipe_of, table_of
from examples import examples
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from shoestring.core.errors import DataError, RecipeError
from shoestring.core.types import Format
from shoestring.data.storage.blobs import load_manifest
from shoestring.data.storage.rewrite import rewrite


def rows_in(folder: Path, values: list[int]) -> Path:
    path = folder / "rows.csv"
    path.write_text("x,y\n" + "".join(f"{value},{value % 2}\n" for value in values))
    return path


@given(st.lists(st.integers(0, 9), min_size=1, max_size=40), st.sampled_from(list(Format)))
@examples(25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_transformed_table_keeps_the_order_and_the_manifest_counts_its_rows(
    tmp_path: Path, values: list[int], format: Format
) -> None:
    key, raw, store = ingested(recipe_of(rows_in(tmp_path, [*values, 10])), tmp_path)
    new_key, new = rewrite(
        store,
        key,
        "rows",
        lambda rows: rows.filter(pc.greater(rows["x"], 4)),
        format,
        tmp_path,
        quiet,
        {"over": 4},
    )
    kept = [value for value in [*values, 10] if value > 4]
    assert table_of(store, new, "rows")["x"].to_pylist() == kept
    assert (new.rows, new.format, new.parents, new.columns) == (len(kept), format, (key,), raw.columns)
    assert load_manifest(store, new_key) == new


def test_other_tables_are_copied_unchanged(tmp_path: Path) -> None:
    (tmp_path / "planes.csv").write_text("x,size\n1,100\n2,200\n")
    recipe = recipe_of(
        rows_in(tmp_path, [1, 2, 2]),
        source={"rows": {"path": tmp_path / "rows.csv"}, "planes": {"path": tmp_path / "planes.csv"}},
        main="rows",
        joins=[{"table": "planes", "by": ["x"], "columns": ["size"]}],
    )
    key, raw, store = ingested(recipe, tmp_path)
    _, new = rewrite(store, key, "rows", lambda rows: rows.slice(0, 1), Format.PARQUET, tmp_path, quiet, {})
    assert (raw.rows, new.rows) == (3, 1)
    assert table_of(store, new, "planes") == table_of(store, raw, "planes")


def test_a_transform_that_changes_columns_or_removes_all_rows_is_refused(tmp_path: Path) -> None:
    key, _, store = ingested(recipe_of(rows_in(tmp_path, [1, 2])), tmp_path)

    def rewrite_table(table: str, drop: list[str], keep_rows: int) -> None:
        def change(rows: pa.Table) -> pa.Table:
            return rows.drop_columns(drop).slice(0, keep_rows)

        rewrite(store, key, table, change, Format.ARROW, tmp_path, quiet, {})

    with pytest.raises(DataError, match="changed the columns of rows to x: int64"):
        rewrite_table("rows", ["y"], 2)
    with pytest.raises(DataError, match="left no rows in rows"):
        rewrite_table("rows", [], 0)
    with pytest.raises(RecipeError, match="has no table planes; it has rows"):
        rewrite_table("planes", [], 2)
