"""Claim: imports in shoestring/ point one way. No arrow runs back up the layer list, and there is no circle.

python bench/import_graph.py [ROOT]

The script parses every module of ROOT/shoestring (default: this repository). An import statement is an arrow,
also under TYPE_CHECKING and inside a function. The script prints:
- the arrows to a higher layer of the import-linter contract in pyproject.toml;
- the circles between modules, and the circles between the parts of one package;
- for each folder, the number of modules and the lines of the longest one.
tests/test_house.py asserts the same.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "shoestring"
ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class ImportArrow:
    """One import statement: `source` imports `target` at `file`:`line`."""

    source: str
    target: str
    file: Path
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.source} imports {self.target}"


def modules_of(root: Path) -> dict[str, Path]:
    """Return the file of every module below root/shoestring by its dotted name (__init__.py: the package)."""
    found = {}
    for file in sorted((root / PACKAGE).rglob("*.py")):
        parts = list(file.relative_to(root).with_suffix("").parts)
        if all(part.isidentifier() for part in parts):
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def imported_names(node: ast.AST, package: str) -> Iterator[str]:
    """Yield the dotted names that an import statement names, in a module of this package."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        base = ".".join([*above, *([node.module] if node.module else [])])
        yield from (f"{base}.{alias.name}" for alias in node.names)


def arrows_of(root: Path) -> list[ImportArrow]:
    """Return every import of one module of the package by another, one arrow for each line and target."""
    modules, found = modules_of(root), dict[ImportArrow, None]()
    for name, file in modules.items():
        package = name if file.name == "__init__.py" else name.rpartition(".")[0]
        for node in ast.walk(ast.parse(file.read_text())):
            for target in imported_names(node, package):
                # `from package.module import name` names a module, or what a module defines.
                target = target if target in modules else target.rpartition(".")[0]
                if target in modules and target != name:
                    line = getattr(node, "lineno", 0)
                    found[ImportArrow(name, target, file.relative_to(root), line)] = None
    return list(found)


def layers_of(root: Path) -> list[set[str]]:
    """Return the layers of the import-linter contract, the highest first."""
    settings = tomllib.loads((root / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    return [{name.strip(" ()") for name in line.replace(":", "|").split("|")} for line in layers]


def height_of(module: str, layers: list[set[str]]) -> int | None:
    """Return the index of the layer that holds the module, or None where no layer does."""
    return next(
        (
            index
            for index, names in enumerate(layers)
            if any(module == name or module.startswith(f"{name}.") for name in names)
        ),
        None,
    )


def upward_arrows(arrows: list[ImportArrow], layers: list[set[str]]) -> list[ImportArrow]:
    """Return the imports of a higher layer by a lower one."""
    heights = {name: height_of(name, layers) for arrow in arrows for name in (arrow.source, arrow.target)}
    found = []
    for arrow in arrows:
        source, target = heights[arrow.source], heights[arrow.target]
        if source is not None and target is not None and target < source:
            found.append(arrow)
    return found


def circles_in(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the strongly connected components of more than one node (Tarjan 1972), each sorted by name."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    circles: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in sorted(graph.get(node, ())):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            component = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(component) > 1:
                circles.append(sorted(component))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return circles


def module_graph(arrows: list[ImportArrow]) -> dict[str, set[str]]:
    graph: dict[str, set[str]] = {}
    for arrow in arrows:
        graph.setdefault(arrow.source, set()).add(arrow.target)
    return graph


def part_graph(arrows: list[ImportArrow], package: str) -> dict[str, set[str]]:
    """Return the imports between the parts of a package: its own modules, and each sub-package as a whole."""

    def part_of(module: str) -> str | None:
        below = module.removeprefix(f"{package}.")
        return None if below == module else f"{package}.{below.split('.')[0]}"

    graph: dict[str, set[str]] = {}
    for arrow in arrows:
        source, target = part_of(arrow.source), part_of(arrow.target)
        if source and target and source != target:
            graph.setdefault(source, set()).add(target)
    return graph


def part_circles(root: Path, arrows: list[ImportArrow]) -> list[list[str]]:
    """Return the circles between the parts of a package in which a sub-package takes part."""
    packages = {name for name, file in modules_of(root).items() if file.name == "__init__.py"}
    circles = [circle for package in sorted(packages) for circle in circles_in(part_graph(arrows, package))]
    return [circle for circle in circles if packages & set(circle)]


def folder_sizes(root: Path) -> dict[Path, list[tuple[str, int]]]:
    """Return for each folder its modules and their lines, without __init__.py and __main__.py."""
    sizes: dict[Path, list[tuple[str, int]]] = {}
    for file in modules_of(root).values():
        if not file.name.startswith("__"):
            lines = file.read_text().count("\n")
            sizes.setdefault(file.parent.relative_to(root), []).append((file.stem, lines))
    return sizes


def main() -> None:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT
    arrows = arrows_of(root)
    up, circles = upward_arrows(arrows, layers_of(root)), circles_in(module_graph(arrows))
    inside = part_circles(root, arrows)
    print(f"{len(modules_of(root))} modules, {len(arrows)} imports of one by another")
    print(f"arrows that run back up: {len(up)}")
    for arrow in up:
        print(f"  {arrow}")
    print(f"circles between modules: {len(circles)}")
    for circle in circles:
        print(f"  {' '.join(circle)}")
    print(f"circles between the parts of a package: {len(inside)}")
    for circle in inside:
        print(f"  {' '.join(circle)}")
        for arrow in arrows:
            ends = [part for name in (arrow.source, arrow.target) for part in circle if is_in(name, part)]
            if len(set(ends)) > 1:
                print(f"    {arrow}")
    print(f"{'folder':<40} {'modules':>7} {'longest':>7}")
    for folder, sizes in folder_sizes(root).items():
        print(f"{folder!s:<40} {len(sizes):>7} {max(lines for _, lines in sizes):>7}")


def is_in(module: str, part: str) -> bool:
    """Return True if a module is this one, or is inside this package."""
    return module == part or module.startswith(f"{part}.")


if __name__ == "__main__":
    main()
