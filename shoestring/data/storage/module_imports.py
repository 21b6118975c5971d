"""The imports of source files, from their syntax trees.

Parsing all modules of a stage takes a tenth of a second. The imports of Shoestring's own files are kept next
to the bytecode, by each file's size and time of change. An image is built with them.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
"""The fields of a statement that hold further statements."""

IMPORTERS = {"import_module", "__import__"}
"""Functions that import a module by its name."""


SERVER = "__getattr__"
"""The function of a module that serves the names that the module does not hold."""


@dataclass(frozen=True, slots=True)
class ModuleImport:
    """One import: `from MODULE import NAMES`, or `import MODULE`. `level` is the number of leading dots."""

    module: str
    names: tuple[str, ...] = ()
    level: int = 0


@dataclass(frozen=True, slots=True)
class FileImports:
    """All imports of a file.

    `served` are those inside the module's own `__getattr__`, which run only where another module takes a name
    from this one that it does not hold (PEP 562). `is_open`: the file also imports by names that are computed
    at run time.
    """

    imports: tuple[ModuleImport, ...]
    served: tuple[ModuleImport, ...]
    is_open: bool


PACKAGE = Path(__file__).parents[2]
"""The folder of Shoestring. Imports are kept for its own files: a router needs no others."""

KEPT = Path(cache_from_source(__file__)).with_name("imports.json")
"""Where they are kept; a folder that cannot be written to keeps none."""


class ImportReader:
    """Reads the imports of files, and parses only files that have changed since they were kept."""

    def __init__(self, kept: Path = KEPT, package: Path = PACKAGE) -> None:
        self._kept, self._package, self._is_new = kept, package, False
        self._known: dict[str, Any] = {}
        with contextlib.suppress(OSError, ValueError):
            self._known = json.loads(kept.read_bytes())

    def read(self, file: Path) -> FileImports:
        """Return the imports of a file."""
        if not file.is_relative_to(self._package):
            return parse_imports(file.read_bytes())
        stat = file.stat()
        # Whole seconds: a layer of an image keeps no fractions.
        version = [int(stat.st_mtime), stat.st_size]
        known = self._known.get(str(file))
        if known is None or known["version"] != version:
            found = parse_imports(file.read_bytes())
            known = self._known[str(file)] = {"version": version, **asdict(found)}
            self._is_new = True
        return FileImports(_imports(known["imports"]), _imports(known["served"]), known["is_open"])

    def keep(self) -> None:
        """Keep what was parsed, if anything was."""
        if not self._is_new:
            return
        whole = self._kept.with_name(f"{self._kept.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            self._kept.parent.mkdir(exist_ok=True)
            whole.write_text(json.dumps(self._known), encoding="utf-8")
            whole.replace(self._kept)


def _imports(kept: list[dict[str, Any]]) -> tuple[ModuleImport, ...]:
    return tuple(ModuleImport(each["module"], tuple(each["names"]), each["level"]) for each in kept)


def parse_imports(source: bytes) -> FileImports:
    """Return the imports of a source. Raises SyntaxError."""
    tree = ast.parse(source)
    calls_importers = any(name.encode() in source for name in IMPORTERS)
    imports, served, is_open = list[ModuleImport](), list[ModuleImport](), False
    for statement in tree.body:
        is_server = isinstance(statement, ast.FunctionDef) and statement.name == SERVER
        found = served if is_server else imports
        found += _statement_imports(statement)
        for call in ast.walk(statement) if calls_importers else ():
            if isinstance(call, ast.Call) and _name(call.func) in IMPORTERS:
                called = _called_import(call)
                found += [called] if called else []
                is_open = is_open or called is None
    return FileImports(tuple(imports), tuple(served), is_open)


def _statement_imports(node: ast.AST) -> Iterator[ModuleImport]:
    """Yield the import statements below a node. Only statements are visited: they hold all of them."""
    if isinstance(node, ast.Import):
        yield from (ModuleImport(alias.name) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield ModuleImport(node.module or "", tuple(alias.name for alias in node.names), node.level)
    blocks: tuple[str, ...] = BLOCKS
    if isinstance(node, ast.If) and _name(node.test) == "TYPE_CHECKING":
        blocks = ("orelse",)
    for block in blocks:
        children = getattr(node, block, ())
        for child in children if isinstance(children, list) else ():
            yield from _statement_imports(child)


def _name(expression: ast.expr) -> str:
    """Return the last part of a dotted name; empty for another expression."""
    found = expression.attr if isinstance(expression, ast.Attribute) else getattr(expression, "id", "")
    return str(found)


def _called_import(call: ast.Call) -> ModuleImport | None:
    """Return the import that a call does; None if its name is computed."""
    first = call.args[0] if call.args else None
    if not isinstance(first, ast.Constant) or not isinstance(first.value, str):
        return None
    name = first.value.lstrip(".")
    return ModuleImport(name, level=len(first.value) - len(name))
