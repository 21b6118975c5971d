"""The authoring page, followed: what it says to write is written, and what it says to type is typed, in its order."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).parent.parent / "docs" / "authoring.md").read_text()
BLOCK = re.compile(r"^```([\w ]*)\n(.*?)^```", re.S | re.M)


def put(folder: Path, said: str) -> None:
    """A block `# FILE` is the file; `# FILE: NAME` takes the place of what is called so in it."""
    head, _, text = said.partition("\n")
    file, _, name = head.removeprefix("# ").partition(": ")
    path = folder / file
    if name:
        lines = path.read_text().splitlines(keepends=True)
        node = next(
            node
            for node in ast.parse(path.read_text()).body
            if name in (getattr(node, "name", ""), target(node))
        )
        lines[node.lineno - 1 : node.end_lineno] = [text]
        text = "".join(lines)
    path.write_text(text)


def target(node: ast.stmt) -> str:
    return ast.unparse(node.targets[0]) if isinstance(node, ast.Assign) else ""


def followed(folder: Path) -> Path:
    """The author's package, in `folder`."""
    package = folder / "dedupe-rows"
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for kind, said in BLOCK.findall(PAGE):
        if kind == "python":
            put(package, said)
        elif kind == "sh here":
            where = folder if "shoestring new" in said or said.startswith("cd ") else package
            done = subprocess.run(
                ["bash", "-ec", said],
                cwd=where,
                env=os.environ | {"PATH": path},
                capture_output=True,
                text=True,
                timeout=600,
            )
            assert done.returncode == 0, f"{said}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
    return package
