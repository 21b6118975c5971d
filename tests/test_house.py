"""The rules of the house: sizes, walls between packages, and an overview that matches the repository.

Every rule is one test that lists all offenders.
"""

import ast
import re
import subprocess
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from import_graph import (
    ImportArrow,
    arrows_of,
    circles_in,
    folder_sizes,
    height_of,
    layers_of,
    module_graph,
    modules_of,
    part_circles,
    upward_arrows,
)

ROOT = Path(__file__).parent.parent
TRACKED = subprocess.run(
    ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
).stdout.splitlines()
CODE = [ROOT / name for name in TRACKED if name.endswith(".py") and (ROOT / name).exists()]
PACKAGE = [path for path in CODE if path.is_relative_to(ROOT / "shoestring")]
PURE = [path for path in PACKAGE if path.is_relative_to(ROOT / "shoestring/routing")]
PURE += sorted((ROOT / "shoestring/training").glob("*.py"))
PURE += sorted((ROOT / "shoestring/training/control").glob("*.py"))
COMPONENTS = [path for path in (ROOT / "components").glob("*.py") if path.name != "__init__.py"]
CLOCKS = {"time", "random", "socket", "subprocess", "secrets"}
MAX_LINES, MAX_FUNCTION_LINES, MAX_COLUMNS, MAX_MODULES = 300, 40, 110, 12
HIDDEN = {".gitignore", ".dockerignore"}


@cache
def arrows() -> list[ImportArrow]:
    """Return the imports of all modules. Only the workers that look at them read them."""
    return arrows_of(ROOT)


def place(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


def check_none(offenders: Iterable[object]) -> None:
    found = [str(each) for each in offenders]
    assert not found, "\n".join([f"{len(found)} offenders:", *found])


def imported(tree: ast.AST) -> set[str]:
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    return names | {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}


def too_long(path: Path) -> Iterator[str]:
    """Yield the module if it is over its limit, and each of its functions that is over theirs."""
    text = path.read_text()
    if text.count("\n") > MAX_LINES:
        yield f"{place(path, text.count(chr(10)))}: a module of more than {MAX_LINES} lines"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or 0) - node.lineno
            if lines > MAX_FUNCTION_LINES:
                yield f"{place(path, node.lineno)}: {node.name} has {lines} lines"


def test_no_module_is_over_300_lines_and_no_function_over_40() -> None:
    check_none([offender for path in CODE for offender in too_long(path)])


def test_no_line_of_code_is_over_110_characters() -> None:
    offenders = [
        place(path, number)
        for path in CODE
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > MAX_COLUMNS
    ]
    check_none(offenders)


def test_no_folder_of_the_package_has_more_than_12_modules() -> None:
    sizes = {str(folder): len(modules) for folder, modules in folder_sizes(ROOT).items()}
    check_none(f"{folder}: {count} modules" for folder, count in sizes.items() if count > MAX_MODULES)


def test_no_class_name_is_in_two_modules() -> None:
    places: dict[str, list[str]] = {}
    for path in PACKAGE:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(place(path, node.lineno))
    files = {name: {each.split(":")[0] for each in found} for name, found in places.items()}
    check_none(f"{name}: {', '.join(places[name])}" for name in sorted(files) if len(files[name]) > 1)


def test_modules_import_one_another_without_a_circle() -> None:
    check_none(circles_in(module_graph(arrows())))


def test_the_parts_of_a_package_import_one_another_without_a_circle() -> None:
    check_none(part_circles(ROOT, arrows()))


def test_no_import_runs_back_up_the_layers() -> None:
    layers = layers_of(ROOT)
    check_none([str(arrow) for arrow in upward_arrows(arrows(), layers)])
    packages = {name for name in modules_of(ROOT) if name.count(".") == 1}
    assert {name for name in packages if height_of(name, layers) is None} <= {
        "shoestring.__main__",
        "shoestring.components",
        "shoestring.pipelines",
        "shoestring.pod",
    }


def test_nothing_is_patched() -> None:
    words = re.compile(r"mock\.patch|Magic" + r"Mock|monkeypatch\.set" + r"attr")
    check_none([str(path) for path in CODE if words.search(path.read_text())])


def test_routing_and_training_control_read_no_clock() -> None:
    assert len(PURE) > 30
    offenders = []
    for path in PURE:
        text = path.read_text()
        clocks = imported(ast.parse(text)) & CLOCKS
        offenders += [f"{place(path, 1)}: imports {name}" for name in sorted(clocks)]
        offenders += [f"{place(path, 1)}: calls datetime.now"] if "datetime.now" in text else []
    check_none(offenders)


def test_a_component_is_a_signature_and_a_call() -> None:
    assert COMPONENTS
    offenders = []
    for path in COMPONENTS:
        functions = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
        if [function.name for function in functions] != [path.stem]:
            offenders.append(f"{place(path, 1)}: holds another function than {path.stem}")
            continue
        statements = [
            node for node in functions[0].body if not isinstance(node, ast.Import | ast.ImportFrom | ast.Expr)
        ]
        offenders += [f"{place(path, 1)}: {len(statements)} statements"] if len(statements) > 2 else []
    check_none(offenders)


def test_the_overview_lists_every_name_at_the_top_of_the_repository() -> None:
    listed = first_cells("## The repository")
    assert {name.rstrip("/") for name in listed} == {name.split("/")[0] for name in TRACKED} - HIDDEN


def test_the_overview_lists_the_packages_in_the_order_of_the_layers() -> None:
    layers = [name.removeprefix("shoestring.") for layer in reversed(layers_of(ROOT)) for name in layer]
    assert [name.rstrip("/") for name in first_cells("## The packages")] == layers


def first_cells(heading: str) -> list[str]:
    """Return the code spans in the first cells of the table below a heading of docs/overview.md."""
    section = (ROOT / "docs" / "overview.md").read_text().split(f"{heading}\n")[1].split("\n## ")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]
