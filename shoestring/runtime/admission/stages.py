"""The built-in stages, by name, and where an author's own stage is."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

from shoestring.core.errors import UnknownName
from shoestring.core.types import Need
from shoestring.data.storage.import_closure import import_closure
from shoestring.stages.work import Origin

TRAINING_STAGES = ("ingest", "preprocess", "train", "evaluate")
"""The stages of a training, in the order in which `pipelines/train.py` routes them."""


def stage_names() -> list[str]:
    """Return the names of the built-in stages, sorted."""
    folder = Path(importlib.import_module("shoestring.stages").__path__[0])
    return sorted(path.stem for path in folder.glob("*.py") if path.stem not in ("__init__", "work"))


def module_name(name: str) -> str:
    """Return the name of the module of a built-in stage. Raises UnknownName."""
    if name not in stage_names():
        raise UnknownName("stage", name, stage_names())
    return f"shoestring.stages.{name}"


def stage_module(name: str) -> ModuleType:
    """Return the module of a built-in stage. Raises UnknownName."""
    return importlib.import_module(module_name(name))


def training_needs() -> tuple[Need, ...]:
    """Return the NEEDs of the stages of a training, in order."""
    return tuple(stage_module(name).NEED for name in TRAINING_STAGES)


def is_builtin(stage: str) -> bool:
    return stage in stage_names()


def own_stage(module: ModuleType, **settings: Any) -> Origin:
    """Return the origin of an author's own stage, for `routed()`.

    `module` defines run(work), and may define SHARED; `run` finds `settings` in the work that it is given.
    """
    closure = import_closure(module.__name__)
    return Origin(
        module=module.__name__,
        code=closure.digest,
        libraries=closure.libraries,
        settings=settings,
        shared=getattr(module, "SHARED", True),
    )
