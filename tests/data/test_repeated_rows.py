"""The units of a data set whose rows repeat each other, over all its files and from version to version."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from data_files import recipe_of
from test_increments import Files, assert_equal, rows_of

from shoestring.core.datasets import Manifest, SplitRule, StoredField
from shoestring.data.split_settings import SPLITS


def group_fields(manifest: Manifest) -> tuple[StoredField, ...]:
    assert manifest.encoding is not None
    return manifest.encoding.of_use("group")


def test_rows_that_repeat_those_of_other_files_go_by_their_position_in_all_files(tmp_path: Path) -> None:
    """Of equal rows, those of a file added at the end are the last ones; one at the start moves others."""
    recipe = recipe_of(tmp_path, numeric=["number"], categorical=["few"])
    files, cold = Files(tmp_path / "warm"), Files(tmp_path / "cold")
    sheet = rows_of(3).set_column(0, "id", pa.array([*range(6)] * 10)).slice(0, 30)
    sheet = pa.concat_tables([sheet] * 10)
    present = {f"{name}.csv": sheet for name in "bcd"}
    before = files.encode(recipe, present)
    assert before.split_rule == SplitRule(unit="rows", ignored=("y",))
    shares = np.array([len(files.decoded(before, split)) for split in SPLITS]) / before.rows
    assert shares == pytest.approx([0.8, 0.1, 0.1], abs=0.06)
    after = files.encode(recipe, present | {"e.csv": sheet})
    assert (files.encoded_rows, files.reused_rows) == (300, 900)
    assert_equal(files, after, cold, cold.encode(recipe, present | {"e.csv": sheet}))
    other = present | {"a.csv": sheet.slice(0, 150), "e.csv": sheet}
    found = files.encode(recipe, other)
    assert files.encoded_rows > 900
    assert_equal(files, found, cold, cold.encode(recipe, other))


def test_a_version_with_many_distinct_rows_keeps_equal_ones_together(tmp_path: Path) -> None:
    recipe, files = recipe_of(tmp_path, leaks=["few"]), Files(tmp_path)
    present = {"a.csv": rows_of(1, 900)}
    assert not group_fields(files.encode(recipe, present))
    present["b.csv"] = pa.concat_tables([rows_of(2, 400)] * 2)
    found = files.encode(recipe, present)
    assert found.split_rule == SplitRule(unit="distinct rows", ignored=("few", "y"))
    assert files.reused_rows == 0 and group_fields(found)
    units = [{row["_group"] for row in files.decoded(found, split)} for split in SPLITS]
    assert sum(map(len, units)) == len(set().union(*units)) == 1298  # Two have no target.
