"""`shoestring upload`."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from shoestring.cli.options import BudgetOption, DeadlineOption, JsonOption, SeedOption, budget_from_option
from shoestring.config.yaml_files import read_text
from shoestring.core.errors import UsageError
from shoestring.data.recipe import find_recipe


def read_token(variable: str | None) -> str:
    """Return the token in this environment variable. Raises UsageError if the variable is empty."""
    token = os.environ.get(variable, "").strip() if variable else ""
    if variable and not token:
        raise UsageError(f"--token-env: ${variable} is empty")
    return token


def run_arguments(
    recipe: str | None, budget: str | None, deadline: float | None, seed: int | None, has_run: bool
) -> dict[str, Any]:
    """Return the arguments of a run on the server; the recipe's values replace missing options.

    Raises:
        UsageError, UnknownName, RecipeError.
    """
    facts = {name: value for name, value in (("deadline_s", deadline), ("seed", seed)) if value is not None}
    if not has_run:
        if recipe or budget or facts:
            raise UsageError("--recipe, --budget, --deadline and --seed apply to runs: add --run or --cron")
        return {}
    if not recipe:
        raise UsageError("name the recipe to run: --recipe NAME, or the path of your own .yaml")
    found = find_recipe(recipe)
    return {
        "recipe": found.model_dump_json(),
        "budget_usd": str(budget_from_option(budget) or found.budget_usd),
        **facts,
    }


def kfp_cron(text: str) -> str:
    """Return a cron expression as KFP reads it, with a field for seconds. Raises UsageError."""
    fields = text.split()
    if len(fields) != 5:
        raise UsageError(
            f"--cron {text!r} has {len(fields)} fields: write minute, hour, day, month and weekday, "
            'like "0 3 * * *"'
        )
    return " ".join(["0", *fields])


def pipeline_name(path: Path) -> str:
    """Return the name in a compiled pipeline. Raises UsageError if the file is not one."""
    text = read_text(path, f"there is no compiled pipeline at {path}", UsageError)
    try:
        return str(next(yaml.safe_load_all(text))["pipelineInfo"]["name"])
    except (yaml.YAMLError, StopIteration, TypeError, KeyError):
        raise UsageError(
            f"{path} is not a compiled pipeline: write one with `kfp dsl compile --py PIPELINE.py --output "
            f"{path}`"
        ) from None


def upload_file(client: Any, server: Any, file: Path | None, name: str) -> Any:
    """Upload the compiled pipeline, or else the built-in one. `name`: empty for the built-in name."""
    from shoestring.pipelines.kubeflow import PIPELINES, write
    from shoestring.pipelines.upload import upload as send

    with tempfile.TemporaryDirectory(prefix="shoestring-") as folder:
        compiled = file or write(PIPELINES["train"], Path(folder) / "train.yaml")
        return send(client, server, compiled, name or PIPELINES["train"].name)


HostOption = Annotated[
    str, typer.Option(help="address of the Kubeflow Pipelines API, like http://localhost:8080")
]
KfpNamespaceOption = Annotated[str, typer.Option(help="your namespace, on a multi-user Kubeflow")]
TokenOption = Annotated[str | None, typer.Option(help="environment variable that holds a bearer token")]
FileOption = Annotated[
    Path | None, typer.Option(help="a compiled pipeline of your own, instead of the built-in one")
]
NameOption = Annotated[
    str, typer.Option(help="name of the pipeline on the server; default: the name in the file")
]
RecipeOption = Annotated[
    str | None, typer.Option(help="name of the recipe to run, or path of your own .yaml file")
]
CronOption = Annotated[
    str | None,
    typer.Option(help='run it on this schedule, like "0 3 * * *"; the budget applies to each run'),
]


def upload(
    host: HostOption,
    namespace: KfpNamespaceOption = "",
    token_env: TokenOption = None,
    file: FileOption = None,
    name: NameOption = "",
    run: Annotated[bool, typer.Option("--run", help="run the pipeline once")] = False,
    recipe: RecipeOption = None,
    budget: BudgetOption = None,
    deadline: DeadlineOption = None,
    seed: SeedOption = None,
    cron: CronOption = None,
    as_json: JsonOption = False,
) -> None:
    """Upload the pipeline to a Kubeflow server, and run it.

    A changed pipeline becomes a new version. It runs once, or on a schedule.
    """
    try:
        from shoestring.pipelines.upload import KfpServer, connect, schedule, start
    except ImportError as error:
        raise UsageError(
            f"uploading needs kfp ({error.name} is missing): pip install 'shoestring[kfp]'"
        ) from None
    when = kfp_cron(cron) if cron is not None else ""
    arguments = run_arguments(recipe, budget, deadline, seed, run or bool(when))
    default_name = pipeline_name(file) if file else ""
    server = KfpServer(host.rstrip("/"), namespace, read_token(token_env), token_env or "")
    client = connect(server)
    uploaded = upload_file(client, server, file, name.strip() or default_name)
    facts = {name: getattr(uploaded, name) for name in ("pipeline", "pipeline_id", "version", "version_id")}
    state = "uploaded" if uploaded.is_new else "exists already"
    lines = [f"{uploaded.pipeline}: version {uploaded.version} {state}"]
    if when:
        facts["recurring_run_id"] = schedule(client, server, uploaded, arguments, when)
        lines.append(f"schedule: {server.host}/#/recurringrun/details/{facts['recurring_run_id']}")
    if run:
        facts["run_id"] = start(client, server, uploaded, arguments)
        lines.append(f"run: {server.host}/#/runs/details/{facts['run_id']}")
    typer.echo(json.dumps(facts) if as_json else "\n".join(lines))
