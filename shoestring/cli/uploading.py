"""`shoestring upload`."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from shoestring.cli.running import BudgetOption, DeadlineOption, JsonOption, SeedOption
from shoestring.cli.wishes import budget_of
from shoestring.config.yaml_files import read_text
from shoestring.core.errors import UsageError
from shoestring.data.recipe import find_recipe


def token_in(variable: str | None) -> str:
    """Raises UsageError when the variable is named and holds nothing."""
    token = os.environ.get(variable, "").strip() if variable else ""
    if variable and not token:
        raise UsageError(f"--token-env: there is nothing in ${variable}")
    return token


def arguments_of(
    recipe: str | None, budget: str | None, deadline: float | None, seed: int | None, wanted: bool
) -> dict[str, Any]:
    """What a run on the server is given; what is left out is the recipe's. Raises UsageError, UnknownName, RecipeError."""
    told = {name: value for name, value in (("deadline_s", deadline), ("seed", seed)) if value is not None}
    if not wanted:
        if recipe or budget or told:
            raise UsageError("--recipe, --budget, --deadline and --seed are for a run: add --run, or --cron")
        return {}
    if not recipe:
        raise UsageError("say what to run it on: --recipe NAME, or the path of your own .yaml")
    found = find_recipe(recipe)
    return {"recipe": found.model_dump_json(), "budget_usd": str(budget_of(budget, found.budget_usd)), **told}


def kfp_cron(text: str) -> str:
    """A cron expression as KFP reads it, from seconds on. Raises UsageError."""
    fields = text.split()
    if len(fields) != 5:
        raise UsageError(
            f'--cron {text!r} has {len(fields)} fields: write minute, hour, day, month and weekday, like "0 3 * * *"'
        )
    return " ".join(["0", *fields])


def name_in(path: Path) -> str:
    """What a compiled pipeline calls itself. Raises UsageError for a file that is none."""
    text = read_text(path, f"there is no compiled pipeline at {path}", UsageError)
    try:
        return str(next(yaml.safe_load_all(text))["pipelineInfo"]["name"])
    except (yaml.YAMLError, StopIteration, TypeError, KeyError):
        raise UsageError(
            f"{path} is not a compiled pipeline: write one with `kfp dsl compile --py PIPELINE.py --output {path}`"
        ) from None


def say(line: str, as_json: bool) -> None:
    if not as_json:
        typer.echo(line)


def upload(
    host: Annotated[
        str, typer.Option(help="address of the Kubeflow Pipelines API, like http://localhost:8080")
    ],
    namespace: Annotated[str, typer.Option(help="yours, where users have namespaces")] = "",
    token_env: Annotated[
        str | None, typer.Option(help="environment variable that holds a bearer token")
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help="a compiled pipeline of your own, instead of ours")
    ] = None,
    name: Annotated[
        str, typer.Option(help="what the pipeline is called there; default: as in the file")
    ] = "",
    run: Annotated[bool, typer.Option("--run", help="run it once")] = False,
    recipe: Annotated[
        str | None, typer.Option(help="what to run it on: a recipe's name, or the path of your own .yaml")
    ] = None,
    budget: BudgetOption = None,
    deadline: DeadlineOption = None,
    seed: SeedOption = None,
    cron: Annotated[
        str | None,
        typer.Option(help='run it again and again, like "0 3 * * *"; the budget is that of each run'),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Put the pipeline on a Kubeflow server, as a new version where it is there already; and run it, once or by the clock."""
    try:
        from pipelines.kubeflow import PIPELINES, write
        from pipelines.upload import Server, connect, schedule, start
        from pipelines.upload import upload as send
    except ImportError as error:
        raise UsageError(
            f"uploading needs kfp ({error.name} is missing): pip install 'shoestring[kfp]'"
        ) from None
    when = kfp_cron(cron) if cron is not None else ""
    arguments = arguments_of(recipe, budget, deadline, seed, run or bool(when))
    called = name_in(file) if file else PIPELINES["train"].name
    server = Server(host.rstrip("/"), namespace, token_in(token_env), token_env or "")
    client = connect(server)
    with tempfile.TemporaryDirectory(prefix="shoestring-") as folder:
        compiled = file or write(PIPELINES["train"], Path(folder) / "train.yaml")
        done = send(client, server, compiled, name.strip() or called)
    told = {
        "pipeline": done.pipeline,
        "pipeline_id": done.pipeline_id,
        "version": done.version,
        "version_id": done.version_id,
    }
    say(
        f"{done.pipeline}: version {done.version} {'uploaded' if done.is_new else 'is there already'}",
        as_json,
    )
    if when:
        told["recurring_run_id"] = schedule(client, server, done, arguments, when)
        say(f"schedule: {server.host}/#/recurringrun/details/{told['recurring_run_id']}", as_json)
    if run:
        told["run_id"] = start(client, server, done, arguments)
        say(f"run: {server.host}/#/runs/details/{told['run_id']}", as_json)
    if as_json:
        typer.echo(json.dumps(told))


def add_to(app: typer.Typer) -> None:
    app.command()(upload)
