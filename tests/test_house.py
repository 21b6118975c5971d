"""The house's own rules: ceilings, doors, and a README whose tree is the tree."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TRACKED = subprocess.run(
    ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
).stdout.splitlines()
CODE = [ROOT / name for name in TRACKED if name.endswith(".py") and (ROOT / name).exists()]
PURE = [ROOT / "shoestring/routing", ROOT / "shoestring/training"]
CLOCKS = {"time", "random", "socket", "subprocess", "secrets"}


def imported(tree: ast.AST) -> set[str]:
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    return names | {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}


@pytest.mark.parametrize("path", CODE, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_module_is_over_300_lines_and_no_function_over_40(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= 300
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or 0) - node.lineno <= 40, f"{node.name} at line {node.lineno}"


def test_nothing_is_patched() -> None:
    words = re.compile(r"mock\.patch|Magic" + r"Mock|monkeypatch\.set" + r"attr")
    assert [str(path) for path in CODE if words.search(path.read_text())] == []


@pytest.mark.parametrize(
    "path", [path for folder in PURE for path in folder.glob("*.py")], ids=lambda path: path.name
)
def test_deciding_and_controlling_ask_nobody_for_the_time(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert imported(tree) & CLOCKS == set()
    assert "datetime.now" not in path.read_text()


@pytest.mark.parametrize(
    "path",
    [path for path in (ROOT / "components").glob("*.py") if path.name != "__init__.py"],
    ids=lambda path: path.name,
)
def test_a_component_is_a_signature_and_a_call(path: Path) -> None:
    functions = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
    assert [function.name for function in functions] == [path.stem]
    statements = [
        node for node in functions[0].body if not isinstance(node, ast.Import | ast.ImportFrom | ast.Expr)
    ]
    assert len(statements) <= 2


def test_the_tree_in_the_readme_is_the_tree() -> None:
    readme = (ROOT / "README.md").read_text()
    block = re.search(r"## The tree\s+```\n(.*?)```", readme, re.S)
    assert block, "README.md has no tree"
    told = {
        line.split()[0].rstrip("/")
        for line in block.group(1).splitlines()
        if line and not line.startswith(" ")
    }
    there = {name.split("/")[0] for name in TRACKED} - {".gitignore", ".dockerignore"}
    assert told == there


def test_the_rooms_in_the_readme_are_the_rooms() -> None:
    readme = (ROOT / "README.md").read_text()
    block = re.search(r"## The tree\s+```\n(.*?)```", readme, re.S)
    assert block, "README.md has no tree"
    told = {match.group(1) for match in re.finditer(r"^  (\w+)/? ", block.group(1), re.M)}
    rooms = {
        name.split("/")[1].removesuffix(".py")
        for name in TRACKED
        if name.startswith("shoestring/") and name.endswith(".py")
    }
    assert told == rooms - {"__init__", "__main__"}
