"""The pipelines and components as files for Kubeflow Pipelines."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from pathlib import Path
from typing import Any

from kfp import compiler

from shoestring import components
from shoestring.core.errors import UsageError
from shoestring.pipelines.compiled_tasks import check_pipeline
from shoestring.pipelines.predict import predict_pipeline
from shoestring.pipelines.train import train_pipeline

PIPELINES = {"train": train_pipeline, "predict": predict_pipeline}


def compile_all(folder: Path) -> list[Path]:
    """Write each pipeline as FOLDER/NAME.yaml and each component as FOLDER/components/NAME.yaml; return the
    paths.
    """
    (folder / "components").mkdir(parents=True, exist_ok=True)
    written = [write(pipeline, folder / f"{name}.yaml") for name, pipeline in PIPELINES.items()]
    for name in sorted(module.name for module in pkgutil.iter_modules(components.__path__)):
        component = getattr(importlib.import_module(f"shoestring.components.{name}"), name)
        written.append(write(component, folder / "components" / f"{name}.yaml"))
    return written


def import_pipeline(reference: str) -> Any:
    """Return an author's own pipeline, MODULE:NAME, with the current folder on Python's path.

    Raises UsageError.
    """
    module, _, name = reference.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        pipeline = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(
            f"no pipeline {reference!r} ({error}): write MODULE:NAME, as Python imports it from {Path.cwd()}"
        ) from None
    implementation = getattr(getattr(pipeline, "component_spec", None), "implementation", None)
    if getattr(implementation, "graph", None) is None:
        raise UsageError(f"{reference} is not a pipeline: it must be a function with KFP's @dsl.pipeline")
    return pipeline


def write(pipeline: Any, path: Path) -> Path:
    """Write a pipeline or a component as KFP's YAML. The name of `path` must end in .yaml.

    Raises UsageError as `check_compiled`.
    """
    check_pipeline(pipeline)
    compiler.Compiler().compile(pipeline, str(path))
    return path
