"""The pipelines and components as the files that Kubeflow Pipelines reads."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from typing import Any

from kfp import compiler

import components
from pipelines.train import train_pipeline

PIPELINES = {"train": train_pipeline}


def compile_to(folder: Path) -> list[Path]:
    """Write every pipeline as FOLDER/NAME.yaml and every component as FOLDER/components/NAME.yaml; returns what was written."""
    (folder / "components").mkdir(parents=True, exist_ok=True)
    written = [write(pipeline, folder / f"{name}.yaml") for name, pipeline in PIPELINES.items()]
    for name in sorted(module.name for module in pkgutil.iter_modules(components.__path__)):
        component = getattr(importlib.import_module(f"components.{name}"), name)
        written.append(write(component, folder / "components" / f"{name}.yaml"))
    return written


def write(pipeline: Any, path: Path) -> Path:
    """A pipeline or a component as KFP's YAML; the name of `path` ends in .yaml."""
    compiler.Compiler().compile(pipeline, str(path))
    return path
