"""Rows that are split already, as a test writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

Row = dict[str, object]
BY_COLUMN = {"split": {"column": "fold"}}


def numbered(rows: int = 1000, folds: tuple[str, ...] = ("train",)) -> list[Row]:
    return [
        {"n": number, "y": number * 7 // 3 % 2, "town": "abc"[number % 3], "fold": folds[number % len(folds)]}
        for number in range(rows)
    ]


def named_source(path: Path, **changes: Any) -> Any:
    return {"source": {"rows": {"path": path, "splits": True, **changes}}}
