"""Follow the authoring page: write its files and run its commands, in its order."""

from __future__ import annotations

import ast
from pathlib import Path

from documented import blocks, run_block

PAGE = (Path(__file__).parent.parent / "docs" / "authoring.md").read_text()


def write_block(folder: Path, text: str) -> None:
    """Write a block: `# FILE` is the whole file, `# FILE: NAME` replaces the definition of NAME in it."""
    head, _, text = text.partition("\n")
    file, _, name = head.removeprefix("# ").partition(": ")
    path = folder / file
    if name:
        lines = path.read_text().splitlines(keepends=True)
        node = next(
            node
            for node in ast.parse(path.read_text()).body
            if name in (getattr(node, "name", ""), assigned_name(node))
        )
        lines[node.lineno - 1 : node.end_lineno] = [text]
        text = "".join(lines)
    path.write_text(text)


def assigned_name(node: ast.stmt) -> str:
    return ast.unparse(node.targets[0]) if isinstance(node, ast.Assign) else ""


def followed(folder: Path) -> Path:
    """Follow the page in `folder`; return the author's package."""
    package = folder / "dedupe-rows"
    for block in blocks():
        if block.page.name != "authoring.md":
            continue
        if block.info == "python":
            write_block(package, block.text)
        elif block.info == "sh here":
            outside = "shoestring new" in block.text or block.text.startswith("cd ")
            run_block(block, folder if outside else package, timeout_s=600)
    return package
