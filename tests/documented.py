"""The fenced blocks of README.md, CONTRIBUTING.md and docs/, and how their shell blocks are tagged.

A shell block is fenced as `sh TAG`:

    here        runs on the local machine, in `make test-all`
    kind        runs on the kind cluster, in `make kind`
    kubeflow    runs in tests/kubeflow, where $SHOESTRING_KFP names the address of a Kubeflow Pipelines server
    developer   `make` targets of this repository
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "manifests" / "README.md",
    ROOT / "images" / "README.md",
]
TAGS = ("here", "kind", "kubeflow", "developer")
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```", re.S | re.M)


@dataclass(frozen=True)
class Block:
    """One fenced block. `info` is the text after the opening fence."""

    page: Path
    line: int
    info: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks() -> list[Block]:
    """Return every fenced block, page by page, in order."""
    return [
        Block(page, text.count("\n", 0, found.start()) + 1, found[1].strip(), found[2])
        for page in PAGES
        for text in [page.read_text()]
        for found in FENCE.finditer(text)
    ]


def tagged(tag: str, page: str = "") -> list[Block]:
    """Return the shell blocks with a tag, of one page or of all."""
    return [each for each in blocks() if each.info == f"sh {tag}" and (not page or each.page.name == page)]


def run_block(block: Block, folder: Path, timeout_s: int = 900, **env: str) -> str:
    """Run a block in a folder, as a user types it; return its output. It must succeed."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-ec", block.text],
        cwd=folder,
        env=os.environ | {"PATH": path} | env,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, f"{block.place}\n{block.text}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout
