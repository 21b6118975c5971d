"""The data page is made from one read of a bounded sample."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from data_files import recipe_of

from shoestring.data.inspect.page import inspect_data


def test_a_folder_of_small_files_is_read_whole_where_a_late_one_changes_a_type(tmp_path: Path) -> None:
    (folder := tmp_path / "days").mkdir()
    for number in range(9):
        lines = [f"{index}{'.5' * (number == 8)},{index % 2}" for index in range(50)]
        (folder / f"{number}.csv").write_text("\n".join(["x,y", *lines]) + "\n")
    page = inspect_data(recipe_of(folder))
    assert (page.is_whole, page.rows, page.refusal) == (True, 450, "")
    assert page.columns[0].type == "number"


def test_a_data_page_reads_a_table_once(tmp_path: Path) -> None:
    """An audit hook stays for the rest of a process, so this is a process of its own."""
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(["x,y", *(f"{index},{index % 2}" for index in range(90))]) + "\n")
    recipe = recipe_of(path)
    code = (
        "import sys\n"
        "from shoestring.data.inspect.page import inspect_data\n"
        "from shoestring.data.recipe import Recipe\n"
        "recipe, opened = Recipe.model_validate_json(sys.argv[1]), []\n"
        "sys.addaudithook(lambda event, about: event == 'open' and opened.append(str(about[0])))\n"
        "inspect_data(recipe)\n"
        "print(sum(name.endswith('rows.csv') for name in opened))\n"
    )
    command = [sys.executable, "-c", code, recipe.model_dump_json()]
    ran = subprocess.run(command, check=True, capture_output=True, text=True)
    # The header, and the rows.
    assert ran.stdout == "2\n"


def test_the_notes_of_a_run_do_not_import_pandas() -> None:
    """Pandas takes 0.3 s to import, which every run would wait for."""
    code = (
        "import sys\n"
        "from shoestring.data.recipe_files import find_recipe\n"
        "from shoestring.data.inspect.page import page_of_run\n"
        "print(*page_of_run(find_recipe('flights')).notes)\n"
        "sys.exit('pandas' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ran.stdout.startswith("target arr_delay: binary, whether it is above 15 (`target.above`) columns")
    assert "missing values: 'NA' in dep_time (265), " in ran.stdout
