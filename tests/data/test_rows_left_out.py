"""The report says which rows a run left out, and why."""

from __future__ import annotations

from pathlib import Path

from data_files import ingested, recipe_of

from shoestring.reporting.data_text import left_out_lines


def test_the_report_names_the_rows_and_values_that_the_run_left_out_by_reason(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,b,y\n" + "1,2.5,0\n2,3.5,1\n" * 40 + "abc,2.5,1\n1,2,3,4\n3,4.5,1\n")
    _, raw, _ = ingested(recipe_of(path), tmp_path)
    assert left_out_lines([raw]) == [
        "1 row left out by ingest: rows: 4 values instead of 3 (1)",
        "1 value read as missing: rows: a is not a whole number (1)",
    ]
