"""`shoestring compile` and `schema`."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer
from pydantic import BaseModel

from shoestring.config.world import REGISTRY
from shoestring.core.errors import UnknownName, UsageError

# By name, the noun that is such a file.
SCHEMAS = {
    "world": "shoestring.backends.local:WorldFile",
    "recipe": "shoestring.data.recipe:Recipe",
    "decision": "shoestring.routing.decision:Decision",
    "receipt": "shoestring.core.receipt:Receipt",
    "ledger": "shoestring.spending.ledger.entry:Sealed",
    "summary": "shoestring.reporting.summary:Summary",
    "cluster-world": "shoestring.backends.kubernetes.world_files:ClusterWorldFile",
    "pools": "shoestring.backends.kubernetes.world_files:PoolsFile",
    "prices": "shoestring.backends.kubernetes.world_files:PricesFile",
    "policy": "shoestring.config.policy:Rules",
    "budgets": "shoestring.config.policy:Budgets",
}

# By engine, the module whose `compile_to(folder)` writes all files that it reads, and `write(pipeline, path)` one of them.
TARGETS = {"kfp": "pipelines.kubeflow", "argo": "pipelines.argo"}


def compile_pipelines(
    target: Annotated[str, typer.Option(help=f"who is to run them: {', '.join(TARGETS)}")] = "kfp",
    out: Annotated[Path, typer.Option(help="the folder to write into")] = Path("compiled"),
    pipeline: Annotated[
        str | None,
        typer.Option(
            help="one of your own alone, like dedupe_rows.pipeline:pipeline, as Python imports it from this folder"
        ),
    ] = None,
    registry: Annotated[
        str, typer.Option(help="where routers pull their image from; stages: `images` in world.yaml")
    ] = REGISTRY,
) -> None:
    """Write the pipelines, and each of their steps, as the files of an engine; or a pipeline of your own."""
    if target not in TARGETS:
        raise UnknownName("target", target, list(TARGETS))
    if out.is_file():
        raise UsageError(
            f"--out {out} is a file, and has to be a folder: every pipeline and every step is a file of its own in it"
        )
    try:
        module = importlib.import_module(TARGETS[target])
    except ModuleNotFoundError as error:
        raise UsageError(
            f"compiling needs kfp ({error.name} is missing): pip install 'shoestring[kfp]'"
        ) from None
    for path in module.compile_to(out) if pipeline is None else own_compiled(module, pipeline, out):
        path.write_text(path.read_text().replace(f"{REGISTRY}/", f"{registry.rstrip('/')}/"))
        typer.echo(str(path))


def own_compiled(module: ModuleType, pipeline: str, out: Path) -> list[Path]:
    """OUT/NAME.yaml of somebody's own pipeline, of that name. Raises UsageError."""
    from pipelines.kubeflow import imported

    found = imported(pipeline)
    out.mkdir(parents=True, exist_ok=True)
    return [module.write(found, out / f"{found.name}.yaml")]


def schema(name: Annotated[str, typer.Argument(help=", ".join(SCHEMAS))]) -> None:
    """Print the JSON schema of a file that Shoestring reads or writes."""
    typer.echo(json.dumps(noun_called(name).model_json_schema(), indent=1, sort_keys=True))


def noun_called(name: str) -> type[BaseModel]:
    """The noun of a schema. Raises UnknownName."""
    if name not in SCHEMAS:
        raise UnknownName("schema", name, list(SCHEMAS))
    module, _, noun = SCHEMAS[name].partition(":")
    found: type[BaseModel] = getattr(importlib.import_module(module), noun)
    return found


def add_to(app: typer.Typer) -> None:
    app.command("compile")(compile_pipelines)
    app.command()(schema)
