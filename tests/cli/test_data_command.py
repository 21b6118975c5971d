"""`shoestring init` writes a recipe, `shoestring data` shows what it reads, and a run accepts it."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from commands import Ran, flights_lines, shoestring

from shoestring.backends.folder_store import FolderStore
from shoestring.core.types import Format
from shoestring.data.inspect.page import inspect_data
from shoestring.data.recipe_files import find_recipe, read_recipe
from shoestring.data.transforms.ingest import ingest
from shoestring.reporting.data_text import print_page


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Write real flights, without the columns that their target is computed from."""
    path = tmp_path / "late.csv"
    path.write_bytes(b"".join(flights_lines(4000)))
    return path


def made(table: Path, *options: object) -> Ran:
    return shoestring("init", table, "--out", table.with_suffix(".yaml"), *options)


def test_a_recipe_is_written_once_and_shown(table: Path) -> None:
    ran = made(table, "--target", "arr_delay")
    assert ran.code == 0, ran.err
    recipe = table.with_suffix(".yaml")
    text = recipe.read_text()
    assert read_recipe(recipe).target.column == "arr_delay"
    again = made(table)
    assert again.code == 1
    assert again.err.endswith(f"{recipe} already exists: choose another file with --out, or move it\n")
    assert recipe.read_text() == text
    shown = shoestring("data", recipe)
    assert shown.code == 0, shown.err
    assert shown.out.startswith("late: 4,000 rows, all read; ")
    assert "  distance        whole number   numeric" in shown.out
    assert shoestring("data", "show", recipe).out == shown.out
    page = shoestring("data", recipe, "--json").json
    assert page == inspect_data(read_recipe(recipe)).model_dump(mode="json")


def test_the_page_names_what_differs_from_the_stored_version(
    table: Path, tmp_path: Path, laptop: Path
) -> None:
    recipe = table.with_suffix(".yaml")
    recipe.write_text("name: late\nsource: {rows: {path: late.csv}}\ntarget: {column: arr_delay}\n")
    store = FolderStore(tmp_path / "store")
    ingest(read_recipe(recipe), Format.ARROW, store, tmp_path, lambda phase, rows: None)
    options = (recipe, "--world", laptop, "--store", tmp_path / "store")
    shown = shoestring("data", *options)
    assert shown.code == 0 and "since the last version" not in shown.out, shown.err
    table.write_bytes(table.read_bytes().replace(b"distance", b"miles", 1))
    shown = shoestring("data", *options)
    added = "warning: column miles: added since the last version of the data; it is used as numeric"
    assert added in shown.out, shown.err
    assert "warning: column distance: removed since the last version of the data" in shown.out


def test_the_page_of_a_table_without_a_second_class_ends_with_1(table: Path) -> None:
    recipe = table.with_suffix(".yaml")
    recipe.write_text("name: late\nsource: {rows: {path: late.csv}}\ntarget: {column: year}\n")
    ran = shoestring("data", recipe)
    assert ran.code == 1
    assert "a run is refused: the target year has 1 distinct value: there is nothing to predict" in ran.out
    assert shoestring("data", recipe, "--json").json["refusal"]


def test_a_plan_prints_the_warnings(table: Path, laptop: Path) -> None:
    recipe = table.with_suffix(".yaml")
    recipe.write_text(
        "name: late\nsource: {rows: {path: late.csv}}\ntarget: {column: arr_delay, above: 15}\n"
    )
    ran = shoestring("plan", recipe, "--world", laptop, "--store", table.parent / "store")
    assert "warning: column year: constant, '2013' in all 4,000 rows read; it predicts nothing" in ran.out
    assert "warning: column air_time: leak in time, missing in" in ran.out
    assert not any((table.parent / "store").rglob("ledger"))


def test_a_terminal_gets_the_same_cells(table: Path) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    page = inspect_data(find_recipe("flights"))
    print_page(page, screen)
    words = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue()).split()
    assert {each.name for each in page.columns} <= set(words)


@pytest.mark.slow
def test_a_run_accepts_the_recipe(table: Path, laptop: Path) -> None:
    assert made(table, "--target", "arr_delay").code == 0
    text = table.with_suffix(".yaml").read_text() + "train: {max_epochs: 2}\n"
    table.with_suffix(".yaml").write_text(text)
    ran = shoestring(
        "run", table.with_suffix(".yaml"), "--world", laptop, "--store", table.parent / "store",
        "--out", table.parent / "out", "--budget", "0.01", "--json",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert ran.json["status"] == "done"
    assert "target arr_delay: regression" in ran.err


def test_the_files_are_listed_and_a_plan_refuses_a_join_that_finds_nothing(
    table: Path, tmp_path: Path, laptop: Path
) -> None:
    lines = table.read_bytes().splitlines(keepends=True)
    (days := tmp_path / "days").mkdir()
    for day in range(12):
        (days / f"{day:02}.csv").write_bytes(b"".join([lines[0], *lines[1 + day * 300 : 301 + day * 300]]))
    (tmp_path / "planes.csv").write_text("tailnum,seats\n" + "".join(f"X{n},{n}\n" for n in range(50)))
    recipe = tmp_path / "late.yaml"
    recipe.write_text(
        "name: late\nsource: {flights: {path: days}, planes: {path: planes.csv}}\nmain: flights\n"
        "joins: [{table: planes, by: [tailnum], columns: [seats]}]\ntarget: {column: arr_delay}\n"
    )
    shown = shoestring("data", recipe)
    assert shown.code == 1
    assert re.search(
        r"flights  09\.csv +[\d.]+ kB +300\n  and 3 more: 13 in all; --json lists them", shown.out
    )
    assert len(shoestring("data", recipe, "--json").json["listed"]) == 13
    planned = shoestring("plan", recipe, "--world", laptop, "--store", tmp_path / "store")
    assert planned.code == 2
    assert "0 of 3,600 rows found a row of planes by tailnum: the keys differ, such as 'N" in planned.err
    allowed = recipe.read_text().replace("columns: [seats]", "columns: [seats], allow_unmatched: true")
    recipe.write_text(allowed)
    planned = shoestring("plan", recipe, "--world", laptop, "--store", tmp_path / "store")
    assert planned.code == 0, planned.err
    assert "warning: 0 of 3,600 rows found a row of planes by tailnum; the keys 'N" in planned.out
