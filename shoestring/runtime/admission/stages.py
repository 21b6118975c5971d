"""The built-in stages, by name."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

from shoestring.core.errors import UnknownName


def stage_names() -> list[str]:
    """Return the names of the built-in stages, sorted."""
    folder = Path(importlib.import_module("shoestring.stages").__path__[0])
    return sorted(path.stem for path in folder.glob("*.py") if path.stem not in ("__init__", "work"))


def stage_module(name: str) -> ModuleType:
    """Return the module of a built-in stage. Raises UnknownName."""
    if name not in stage_names():
        raise UnknownName("stage", name, stage_names())
    return importlib.import_module(f"shoestring.stages.{name}")


def is_builtin(stage: str) -> bool:
    return stage in stage_names()
