"""`shoestring upload`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from shoestring.backends.argo import TEMPLATE
from shoestring.cli.authoring.cron import kfp_cron
from shoestring.cli.options import (
    DEFAULT_NAMESPACE,
    BudgetOption,
    DeadlineOption,
    JsonOption,
    SeedOption,
    StoreOption,
    WorldOption,
    budget_from_option,
)
from shoestring.cli.run_end import print_run_end
from shoestring.cli.sent_recipes import check_sent
from shoestring.cli.world_source import WorldSource
from shoestring.config.world import World
from shoestring.config.yaml_files import read_text
from shoestring.core import store_layout
from shoestring.core.errors import ShoestringError, UnknownName, UsageError
from shoestring.core.interfaces import Store
from shoestring.core.record import argument_json
from shoestring.data.recipe_files import find_recipe
from shoestring.data.run_records import read_step_error
from shoestring.data.scratch.temporary_folders import temporary_folder
from shoestring.reporting.run_reader import read_run_story
from shoestring.reporting.summary import RunSummary, summarise_run
from shoestring.runtime.records.run_setup import check_run_id, run_id_of_label


def read_token(variable: str | None) -> str:
    """Return the token in this environment variable. Raises UsageError if the variable is empty."""
    token = os.environ.get(variable, "").strip() if variable else ""
    if variable and not token:
        raise UsageError(f"--token-env: ${variable} is empty")
    return token


def check_run_options(run: bool, cron: str | None, run_id: str | None, wait: bool) -> None:
    """Raises UsageError for options that do not apply to what is started, and for an invalid run id."""
    if (run_id is not None or wait) and not run:
        raise UsageError("--run-id and --wait apply to one run: add --run")
    if run_id is not None and cron is not None:
        raise UsageError(
            "--run-id applies to one run, and each run of --cron has an id of its own: leave one of them out"
        )
    if run_id is not None:
        check_run_id(run_id)


def run_arguments(
    recipe: str | None,
    budget: str | None,
    deadline: float | None,
    seed: int | None,
    run_id: str | None,
    has_run: bool,
    takes_recipe: bool,
    pipeline: str,
) -> dict[str, Any]:
    """Return the arguments of a run of a pipeline on the server, once its recipe is checked as far as it can
    be from here. The recipe's values replace missing options; a pipeline of commands takes no recipe.

    Raises:
        UsageError, UnknownName, RecipeError, DataError.
    """
    given = (("deadline_s", deadline), ("seed", seed), ("run_id", run_id))
    facts = {name: value for name, value in given if value is not None}
    if not has_run:
        if recipe or budget or facts:
            raise UsageError("--recipe, --budget, --deadline and --seed apply to runs: add --run or --cron")
        return {}
    if not takes_recipe:
        if recipe:
            raise UsageError("this pipeline runs commands and takes no recipe: leave out --recipe")
        budget_usd = budget_from_option(budget)
        return facts | ({} if budget_usd is None else {"budget_usd": str(budget_usd)})
    if not recipe:
        raise UsageError("name the recipe to run: --recipe NAME, or the path of your own .yaml")
    found = find_recipe(recipe)
    budget_usd = budget_from_option(budget) or found.budget_usd
    check_sent(found, trains=pipeline == TEMPLATE)
    return {"recipe": argument_json(found), "budget_usd": str(budget_usd), **facts}


def read_pipeline(path: Path) -> tuple[str, bool]:
    """Return the name in a compiled pipeline, and whether its runs take a recipe. Raises UsageError if the
    file is not one, or routes a stage as `check_compiled` refuses.
    """
    try:
        from shoestring.pipelines.compiled_tasks import check_compiled
    except ImportError as error:
        raise without_kfp(error) from None
    text = read_text(path, f"there is no compiled pipeline at {path}", UsageError)
    try:
        spec, *platform = yaml.safe_load_all(text)
        name = str(spec["pipelineInfo"]["name"])
        check_compiled(spec, platform[0] if platform else {})
        given = spec["root"].get("inputDefinitions", {}).get("parameters", {})
        return name, "recipe" in given
    except (yaml.YAMLError, ValueError, TypeError, KeyError):
        raise UsageError(
            f"{path} is not a compiled pipeline: write one with `kfp dsl compile --py PIPELINE.py --output "
            f"{path}`"
        ) from None


def upload_file(client: Any, server: Any, file: Path | None, name: str) -> Any:
    """Upload the compiled pipeline, or else the built-in one, under a name."""
    from shoestring.pipelines.kubeflow import PIPELINES, write
    from shoestring.pipelines.upload import upload as send

    with temporary_folder() as folder:
        return send(client, server, file or write(PIPELINES["train"], folder / "train.yaml"), name)


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
KfpRunIdOption = Annotated[
    str | None,
    typer.Option(
        "--run-id",
        help="id of the run: that of an earlier run resumes it, from its checkpoint; default: Kubeflow's own",
    ),
]
KfpWaitOption = Annotated[
    bool, typer.Option("--wait", help="wait for the end of the run; the exit code is 0 or 1, as for `run`")
]
SummaryOnOption = Annotated[
    str | None,
    typer.Option(
        "--on", help="with --wait: kubeconfig context of the cluster, from whose store the summary is read"
    ),
]
UPLOADED_KEYS = ("pipeline", "pipeline_id", "version", "version_id")
KUBEFLOW_NAMESPACE = "kubeflow"
"""Where the pipelines of a single-user Kubeflow run."""


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
    run_id: KfpRunIdOption = None,
    wait: KfpWaitOption = False,
    world: WorldOption = None,
    store: StoreOption = None,
    on: SummaryOnOption = None,
    cron: CronOption = None,
    as_json: JsonOption = False,
) -> None:
    """Upload the pipeline to a Kubeflow server, and run it once or on a schedule.

    A changed pipeline becomes a new version. With --json, its line and those of the links are on stderr.
    """
    when = kfp_cron(cron) if cron is not None else ""
    check_run_options(run, cron, run_id, wait)
    named, takes_recipe = read_pipeline(file) if file else (TEMPLATE, True)
    arguments = run_arguments(recipe, budget, deadline, seed, run_id, run or bool(when), takes_recipe, named)
    where = namespace or KUBEFLOW_NAMESPACE
    opened = open_for_summary(WorldSource(world, store, on, where if on else DEFAULT_NAMESPACE), wait)
    client, server = connect_to(host, namespace, token_env)
    uploaded = upload_file(client, server, file, name.strip() or named)
    started, links = start_runs(client, server, uploaded, arguments, run, when)
    facts = {key: getattr(uploaded, key) for key in UPLOADED_KEYS} | started
    state = "uploaded" if uploaded.is_new else "exists already"
    lines = "\n".join([f"{uploaded.pipeline}: version {uploaded.version} {state}", *links])
    typer.echo(lines, err=as_json)
    if wait:
        end = end_state(client, server, facts["run_id"], f"--on {on or 'CONTEXT'} --namespace {where}")
        print_end(end, facts, run_id or facts["run_id"], opened, as_json)
    elif as_json:
        typer.echo(json.dumps(facts))


def without_kfp(error: ImportError) -> UsageError:
    return UsageError(f"uploading needs kfp ({error.name} is missing): pip install 'shoestring[kfp]'")


def connect_to(host: str, namespace: str, token_env: str | None) -> tuple[Any, Any]:
    """Return a client of the server, and the server. Raises UsageError without kfp, ClusterError."""
    try:
        from shoestring.pipelines.kfp_client import KfpServer, connect
    except ImportError as error:
        raise without_kfp(error) from None
    server = KfpServer(host.rstrip("/"), namespace, read_token(token_env), token_env or "")
    return connect(server), server


def start_runs(
    client: Any, server: Any, uploaded: Any, arguments: dict[str, Any], run: bool, cron: str
) -> tuple[dict[str, str], list[str]]:
    """Start what was asked for; return the ids, and a line with the link of each."""
    from shoestring.pipelines.upload import schedule, start

    facts, lines = {}, []
    if cron:
        facts["recurring_run_id"] = schedule(client, server, uploaded, arguments, cron)
        lines.append(f"schedule: {server.host}/#/recurringrun/details/{facts['recurring_run_id']}")
    if run:
        facts["run_id"] = start(client, server, uploaded, arguments)
        lines.append(f"run: {server.host}/#/runs/details/{facts['run_id']}")
    return facts, lines


def open_for_summary(source: WorldSource, wait: bool) -> World | None:
    """Open the world that a run writes to; None: no option names one. Raises UsageError, ClusterError."""
    if not source.is_given:
        return None
    if not wait:
        raise UsageError("--world, --store and --on name where the summary of a run is: add --wait")
    # Opened before the run starts: what is missing is reported before money is spent.
    return source.open()


def end_state(client: Any, server: Any, job_id: str, where: str) -> Any:
    """Wait for the end of a run, and return its state there. If a server that is away, or a key press, ends
    the wait but not the run, print the command that follows it, with the options `where`.

    Raises:
        ClusterError, KeyboardInterrupt.
    """
    from shoestring.pipelines.upload import wait

    try:
        return wait(client, server, job_id)
    except (ShoestringError, KeyboardInterrupt):
        typer.echo(
            f"shoestring: {job_id} goes on; follow it with `shoestring watch {job_id} {where}`", err=True
        )
        raise


def print_end(state: str, facts: dict[str, Any], run_id: str, opened: World | None, as_json: bool) -> None:
    """Print how the run ended, and exit with 1 unless it succeeded.

    `run_id`: the id that its steps were given. `opened`: the world that it writes to, from which its summary
    is printed, or why it was never begun.
    """
    summary = None if opened is None else stored_summary(opened.store, facts["run_id"])
    if state != "SUCCEEDED":
        # A summary holds the reason itself.
        error = read_step_error(opened.store, run_id) if opened and not summary else None
        why = f": {error.reason}" if error else "; its steps are at the link"
        typer.echo(f"shoestring: Kubeflow reports the run as {state}{why}", err=True)
    if as_json:
        found = summary and summary.model_dump(mode="json")
        typer.echo(json.dumps(facts | {"state": state, "summary": found}))
    elif summary is not None:
        report = f"in its store, {store_layout.report(summary.run_id)}"
        print_run_end(summary, report, (), as_json=False, has_succeeded=state == "SUCCEEDED")
    else:
        typer.echo(f"{facts['run_id']}: {state.lower()}")
    is_done = summary is None or summary.status == "done" or summary.may_be_done
    if state != "SUCCEEDED" or not is_done:
        raise typer.Exit(1)


def stored_summary(store: Store, job_id: str) -> RunSummary | None:
    """Return the summary of a run by Kubeflow's id; None if it has no records: no router of it began."""
    try:
        return summarise_run(read_run_story(store, run_id_of_label(store, job_id)))
    except UnknownName:
        return None
