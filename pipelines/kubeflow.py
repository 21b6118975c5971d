"""The pipelines and components as the files that Kubeflow Pipelines reads."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from pathlib import Path
from typing import Any

from kfp import compiler

from shoestring import components
from shoestring.pipelines.train import train_pipeline
from shoestring.core.errors import UsageError

PIPELINES = {"train": train_pipeline}


def compile_to(folder: Path) -> list[Path]:
    """Write every pipeline as FOLDER/NAME.yaml and every component as FOLDER/components/NAME.yaml; returns what was written."""
    (folder / "components").mkdir(parents=True, exist_ok=True)
    written = [write(pipeline, folder / f"{name}.yaml") for name, pipeline in PIPELINES.items()]
    for name in sorted(module.name for module in pkgutil.iter_modules(components.__path__)):
        component = getattr(importlib.import_module(f"shoestring.components.{name}"), name)
        written.append(write(component, folder / "components" / f"{name}.yaml"))
    return written


def imported(said: str) -> Any:
    """A pipeline of somebody's own, MODULE:NAME, where this folder is on Python's path. Raises UsageError."""
    module, _, name = said.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(
            f"no pipeline {said!r} ({error}): MODULE:NAME, as Python would import it from {Path.cwd()}"
        ) from None
    if (
        getattr(getattr(getattr(found, "component_spec", None), "implementation", None), "graph", None)
        is None
    ):
        raise UsageError(f"{said} is no pipeline: it has to be a function under KFP's @dsl.pipeline")
    return found


def write(pipeline: Any, path: Path) -> Path:
    """A pipeline or a component as KFP's YAML; the name of `path` ends in .yaml."""
    compiler.Compiler().compile(pipeline, str(path))
    return path
