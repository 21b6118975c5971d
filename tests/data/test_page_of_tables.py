"""The data page states how tables are joined, which files and rows they have, and which labels look wrong."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from data_files import preprocessed, recipe_of

from shoestring.core.errors import RecipeError
from shoestring.data.inspect.page import inspect_data, page_of_run
from shoestring.data.inspect.tables.table_sample import QUICK, THOROUGH
from shoestring.data.recipe import Recipe
from shoestring.reporting.data_text import left_out_lines

ROWS = 600


def lines(path: Path, header: str, rows: list[str]) -> Path:
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def with_shops(folder: Path, orders: list[str], shops: list[str], **changes: object) -> Recipe:
    """Write orders and shops, and return the recipe that joins them by their key."""
    random = Random(2)
    rows = [f"{key},{random.gauss(0, 1):.3f},{random.choice(['yes', 'no'])}" for key in orders]
    lines(folder / "orders.csv", "shop,x,y", rows)
    lines(folder / "shops.csv", "shop,size", [f"{key},{random.random():.3f}" for key in shops])
    found = {
        "name": "joined",
        "source": {"orders": {"path": folder / "orders.csv"}, "shops": {"path": folder / "shops.csv"}},
        "main": "orders",
        "joins": [{"table": "shops", "by": ["shop"], "columns": ["size"]}],
        "target": {"column": "y"},
        "leaks": ["shop"],
    }
    return Recipe.model_validate(found | changes)


def numbers(rows: int = ROWS) -> list[str]:
    return [str(1 + index % 40) for index in range(rows)]


def test_the_page_counts_the_rows_that_found_a_row(tmp_path: Path) -> None:
    recipe = with_shops(tmp_path, [*numbers(), *["77"] * 10], numbers(40))
    page = inspect_data(recipe)
    assert page.remarks == ("600 of 610 rows found a row of shops by shop",)
    assert page.findings == () and not page.refusal
    assert "600 of 610 rows found a row of shops by shop" in page_of_run(recipe).notes


def test_a_join_that_finds_nothing_is_refused_with_two_keys_and_the_kind_that_mends_it(
    tmp_path: Path,
) -> None:
    recipe = with_shops(tmp_path, numbers(), [*(f"{number:04}" for number in range(1, 41)), "HQ", "WEB"])
    expected = (
        "0 of 600 rows found a row of shops by shop: the keys differ, such as '1' and '0001': "
        "write `kinds: {shop: number}` in the recipe, which reads text as numbers, and "
        "`read: {missing: [HQ, WEB]}` in the source of shops, or set `allow_unmatched: true` in the join"
    )
    assert inspect_data(recipe).refusal.startswith(expected)
    with pytest.raises(RecipeError, match=re.escape(expected)):
        page_of_run(recipe)
    with pytest.raises(RecipeError, match=re.escape(expected)):
        preprocessed(recipe, tmp_path / "run")
    mended = recipe.model_dump(exclude_unset=True)
    mended["source"]["shops"]["read"] = {"missing": ["HQ", "WEB"]}
    page = inspect_data(Recipe.model_validate(mended | {"kinds": {"shop": "number"}}))
    assert (page.joins[0].matched, page.refusal) == (ROWS, "")


def test_a_join_that_finds_nothing_may_be_allowed(tmp_path: Path) -> None:
    join = {"table": "shops", "by": ["shop"], "columns": ["size"], "allow_unmatched": True}
    recipe = with_shops(tmp_path, ["Mill 1", "Mill 2"] * 300, ["MILL 1.", "MILL 2."], joins=[join])
    page = inspect_data(recipe)
    assert not page.refusal
    assert page.findings == (
        "0 of 600 rows found a row of shops by shop; the keys 'Mill 1', 'Mill 2' found none "
        "(shops has 'MILL 1.')",
    )
    _, data, _ = preprocessed(recipe, tmp_path / "run")
    assert data.rows == ROWS


def test_a_join_that_finds_few_rows_is_a_warning_and_one_without_keys_is_refused(tmp_path: Path) -> None:
    page = inspect_data(with_shops(tmp_path, numbers(), numbers(10)))
    [finding] = page.findings
    assert finding.startswith(
        "150 of 600 rows found a row of shops by shop; the keys '11', '12', '13' found none (shops has '1')"
    )
    refusal = inspect_data(with_shops(tmp_path, [""] * ROWS, ["", "", "5"])).refusal
    assert "one of the tables has no value in shop" in refusal


def test_doubled_files_are_named_and_all_files_have_their_rows(tmp_path: Path) -> None:
    (folder := tmp_path / "days").mkdir()
    for number in range(12):
        rows = [f"{number * 50 + index},{index % 7},{index % 2}" for index in range(50 + number)]
        lines(folder / f"{number:02}.csv", "n,x,y", rows)
    (folder / "03 (1).csv").write_bytes((folder / "03.csv").read_bytes())
    other = (folder / "05.csv").read_text()
    (folder / "05b.csv").write_text(other[:-2] + str(1 - int(other[-2])) + "\n")
    page = inspect_data(recipe_of(folder))
    assert page.findings == (
        "table rows: 03.csv has the same bytes as 03 (1).csv: its rows count twice; remove one",
    )
    assert not page.refusal
    assert {each.name: each.rows for each in page.listed}["11.csv"] == 61
    assert sum(each.rows or 0 for each in page.listed) == page.rows and len(page.listed) == 14


def test_classes_of_two_rows_and_labels_that_are_written_in_several_ways_are_named(tmp_path: Path) -> None:
    random = Random(4)
    rows = [f"{random.random():.3f},{'Oslo' if index % 2 else 'Bergen'},Yes" for index in range(300)]
    rows += [f"{random.random():.3f},oslo ,no" for _ in range(300)]
    rows += ["0.5,Oslo,YES."] * 3 + ["0.5,Oslo,maybe"] * 2
    page = inspect_data(recipe_of(lines(tmp_path / "rows.csv", "x,town,y", rows)))
    assert page.findings == (
        "target y: 'maybe' (2) has two rows or fewer: too few to learn and to test; merge them with others, "
        "or remove their rows",
        "target y: classes that differ only by blanks, case or a final point, 'Yes' (300), 'YES.' (3): "
        "they are learned apart; write them alike",
        "column town: values that differ only by blanks, case or a final point, 'oslo ' (300), 'Oslo' (155): "
        "they count as different; write them alike",
    )


def test_a_class_that_loses_more_rows_than_the_others_is_named(tmp_path: Path) -> None:
    random = Random(5)
    rows = [f"{random.random():.3f},fine,{'yes' if index % 3 else 'no'}" for index in range(900)]
    rows += ["0.5,very, very late,yes"] * 60 + ["0.5,a, b,no"] * 2
    random.shuffle(rows)
    page = inspect_data(recipe_of(lines(tmp_path / "rows.csv", "x,note,y", rows)))
    assert page.lost == {"rows: 4 values instead of 3": 62}
    assert page.findings == (
        "rows set aside: 60 of 62 are of class yes: 9.1% of its rows, and 0.7% of the others; correct them, "
        "since their loss changes the target",
    )
    _, data, _ = preprocessed(recipe_of(tmp_path / "rows.csv"), tmp_path / "run")
    assert data.lost_classes == {"yes": 60, "no": 2}
    raw = data.model_copy(update={"encoding": None, "quarantined": page.lost, "lost_classes": {}})
    assert left_out_lines([raw, data])[-1].startswith("warning: rows set aside: 60 of 62 are of class yes: ")
    even = [row for row in rows if "very" not in row] + ["0.5,c, d,yes"] * 4
    assert inspect_data(recipe_of(lines(tmp_path / "even.csv", "x,note,y", even))).findings == ()


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_the_end_of_a_large_file_is_read(tmp_path: Path, kind: str) -> None:
    """The last fifth of the file writes its numbers in words, and has line ends in quotes."""
    random = Random(6)
    path = tmp_path / f"rows.{kind}"
    with path.open("w") as file:
        file.write("n,note,x,y\n" if kind == "csv" else "")
        for index in range(60_000):
            x = str(random.randrange(1000)) if index < 48_000 else "nine"
            note = f"line {index}\nand, a second" if kind == "csv" else f"line {index}"
            row = f'{index},"{note}",{x},{index % 2}\n'
            text = f'{{"n": {index}, "note": "{note}", "x": "{x}", "y": {index % 2}}}\n'
            file.write(row if kind == "csv" else text)
    size = replace(QUICK, whole_bytes=0, part_bytes=300_000)
    page = inspect_data(recipe_of(path), size=size)
    assert page.sample.startswith("the first, middle and last 0.1 MB of ")
    by_name = {each.name: each for each in page.columns}
    assert by_name["x"].type == "text"
    place = rf"the part from byte [\d,]+ on of rows.{kind}"
    late = rf"column x: a whole number in rows.{kind}, and text in {place}, such as 'nine'"
    assert re.fullmatch(late, page.findings[0])
    assert by_name["n"].values == page.rows_read and by_name["n"].type == "whole number"
    assert page.misfits == 0
    assert inspect_data(recipe_of(path), size=THOROUGH).rows == 60_000


def test_a_value_at_the_end_of_a_large_file_is_named_with_its_place(tmp_path: Path) -> None:
    rows = [f"{index % 50},{index % 2}" for index in range(40_000)]
    rows[-10] = "many,1"
    path = lines(tmp_path / "rows.csv", "x,y", rows)
    page = inspect_data(recipe_of(path), size=replace(QUICK, whole_bytes=0, part_bytes=30_000))
    place = r"the first is 'many' in the part from byte ([\d,]+) on of rows.csv, row ([\d,]+)"
    found = re.search(place, "\n".join(page.remarks))
    assert found, page.remarks
    part = path.read_bytes()[int(found[1].replace(",", "")) :].split(b"\n")
    # Row 1 is the header, and the first line of the part is the end of a row.
    assert part[int(found[2].replace(",", "")) - 1] == b"many,1"
