"""`shoestring compile`."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from shoestring.config.world import REGISTRY
from shoestring.core.errors import UnknownName, UsageError

# For each engine, the module with `compile_all(folder)`, which writes all files of that engine, and
# `write(pipeline, path)`, which writes one of them.
TARGETS = {"kfp": "shoestring.pipelines.kubeflow", "argo": "shoestring.pipelines.argo"}


def compile_pipelines(
    target: Annotated[str, typer.Option(help=f"the engine: {', '.join(TARGETS)}")] = "kfp",
    out: Annotated[Path, typer.Option(help="folder to write to")] = Path("compiled"),
    pipeline: Annotated[
        str | None,
        typer.Option(
            help="compile only this pipeline, like dedupe_rows.pipeline:pipeline, "
            "as Python imports it from this folder"
        ),
    ] = None,
    registry: Annotated[
        str, typer.Option(help="registry of the route steps' image; for stages, set `images` in world.yaml")
    ] = REGISTRY,
) -> None:
    """Compile the pipelines and their steps for an engine.

    With --pipeline, compile one pipeline of your own.
    """
    if target not in TARGETS:
        raise UnknownName("target", target, list(TARGETS))
    if out.is_file():
        raise UsageError(
            f"--out {out} is a file, but has to be a folder: each pipeline and each step becomes a file in it"
        )
    try:
        module = importlib.import_module(TARGETS[target])
    except ModuleNotFoundError as error:
        raise UsageError(
            f"compiling needs kfp ({error.name} is missing): pip install 'shoestring[kfp]'"
        ) from None
    for path in module.compile_all(out) if pipeline is None else compile_one(target, module, pipeline, out):
        path.write_text(path.read_text().replace(f"{REGISTRY}/", f"{registry.rstrip('/')}/"))
        typer.echo(str(path))


def compile_one(target: str, module: ModuleType, pipeline: str, out: Path) -> list[Path]:
    """Write OUT/NAME.yaml of one pipeline, where NAME is its own name, and print what Argo may read otherwise
    than its author. Raises UsageError.
    """
    from shoestring.pipelines.kubeflow import import_pipeline

    found = import_pipeline(pipeline)
    out.mkdir(parents=True, exist_ok=True)
    path = module.write(found, out / f"{found.name}.yaml")
    for sentence in module.template_warnings(found) if target == "argo" else []:
        typer.echo(f"warning: {sentence}", err=True)
    return [path]
