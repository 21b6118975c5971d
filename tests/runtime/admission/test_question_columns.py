"""The columns of the tables in a question: those of the files, and then those of the ingested data."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from runtime_world import CHAIN, run_request, small_world

from shoestring.core.types import Format
from shoestring.data.recipe import Recipe
from shoestring.data.transforms.ingest import ingest
from shoestring.routing.question import Question
from shoestring.runtime.admission.first_request import stage_request_at_start
from shoestring.runtime.admission.question.build import build_question
from shoestring.runtime.admission.stage_request import StageInputs

ROWS = 50


def recipe_of(path: Path, columns: int) -> Recipe:
    lines = [",".join([*(f"c{at}" for at in range(columns - 1)), "y"])]
    lines += [",".join([*(str(row + at) for at in range(columns - 1)), str(row % 2)]) for row in range(ROWS)]
    path.write_text("\n".join(lines) + "\n")
    fields = {"name": "mine", "source": {"rows": {"path": path}}, "target": {"column": "y"}}
    return Recipe.model_validate(fields)


@pytest.mark.parametrize("first", ["ingest", "preprocess"])
def test_a_question_knows_that_a_wide_table_takes_longer(laptop: Path, tmp_path: Path, first: str) -> None:
    world = small_world(laptop, tmp_path)

    def question(columns: int) -> Question:
        recipe = recipe_of(tmp_path / f"{columns}.csv", columns)
        asked = stage_request_at_start(world, run_request(recipe), Decimal(0), {})
        if first == "preprocess":
            raw, _ = ingest(recipe, Format.PACKED, world.store, tmp_path, lambda *_: None)
            asked = replace(asked, needs=CHAIN[1:], inputs=StageInputs(upstream=raw))
        return build_question(world, asked)

    narrow, wide = question(4), question(1000)
    assert narrow.needs[0].stage == wide.needs[0].stage == first and narrow.rows == wide.rows == ROWS
    for few, many in zip(narrow.needs[:-2], wide.needs[:-2], strict=True):
        assert many.setup_s > few.setup_s + 0.15
        assert many.cpu_us_per_row > 100 * few.cpu_us_per_row
        assert many.writes_bytes_per_row == 250 * few.writes_bytes_per_row == 8000
