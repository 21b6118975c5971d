"""The small files that a training writes while it runs: its progress, and the time that it has spent."""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Mapping
from pathlib import Path

SPENT_FILE = "spent.json"


def write_json(path: Path, content: Mapping[str, object]) -> bool:
    """Replace a file atomically. Returns False where the file system refuses it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(json.dumps(content))
        temporary.replace(path)
    except OSError:
        return False
    return True


def read_spent_s(folder: Path | None) -> float:
    """Return the seconds that earlier attempts have spent; 0 where no readable file states it."""
    try:
        spent_s = float(json.loads((folder / SPENT_FILE).read_bytes())["spent_s"]) if folder else 0.0
    except (OSError, ValueError, KeyError, TypeError):
        return 0.0
    return spent_s if math.isfinite(spent_s) and spent_s > 0 else 0.0


class LoopProgressFile:
    """The file in which a training reports its samples and its loss. `path`: None where none is read."""

    def __init__(self, path: Path | None) -> None:
        self._path, self.loss = path, float("nan")

    def write(self, samples: int, total: int | None) -> None:
        """Replace the file. Where that fails, warn once, and write nothing any more."""
        if self._path is None:
            return
        content: dict[str, object] = {"samples": samples}
        if total is not None:
            content["total"] = total
        if math.isfinite(self.loss):
            content["loss"] = self.loss
        if not write_json(self._path, content):
            warnings.warn(f"{self._path} cannot be written: no progress is reported", stacklevel=2)
            self._path = None
