"""`shoestring exec`."""

from __future__ import annotations

import os
import signal
import sys
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from shoestring.backends.local import default_world_path
from shoestring.cli.named_runs import named_command_run
from shoestring.cli.options import (
    MAX_DEADLINE_S,
    JsonOption,
    StoreOption,
    WaitOption,
    WorldOption,
    budget_from_option,
    given_options,
)
from shoestring.cli.world_source import WorldSource, absolute
from shoestring.commands.program import check_program
from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.errors import NotInStore, UsageError
from shoestring.core.interfaces import Store
from shoestring.core.receipt import Receipt
from shoestring.core.record import record_bytes, validation_message
from shoestring.data.job import DEFAULT_GRACE_S, MIN_GRACE_S, Command, Job, command_name
from shoestring.data.run_records import read_record
from shoestring.reporting import number_text
from shoestring.reporting.summary import RunSummary
from shoestring.reporting.terminal.profile_text import profile_text
from shoestring.runtime.admission.first_request import RunRequest
from shoestring.runtime.launch.command_run import (
    command_request,
    exec_here,
    resumed_command,
)
from shoestring.runtime.launch.command_watcher import CommandWatcher, command_watcher
from shoestring.runtime.launch.local_run import LaunchOptions, is_done
from shoestring.runtime.launch.local_world import check_runnable
from shoestring.stages.command import ENDED_BY_DEADLINE
from shoestring.training.profiling.profile import Profile

BY_REQUEST = (128 + signal.SIGINT, 128 + signal.SIGTERM)
"""Exit codes of a command that was asked to end, by Ctrl-C or by another process: it has no fault to fix."""
CommandArgument = Annotated[
    list[str] | None, typer.Argument(metavar="COMMAND...", help="the command and its arguments, after --")
]
BudgetOption = Annotated[
    str | None, typer.Option("--budget", help="dollars that the command may spend, like 0.50")
]
DeadlineOption = Annotated[
    float | None, typer.Option("--deadline", min=1, max=MAX_DEADLINE_S, help="seconds that it may take")
]
CoresOption = Annotated[
    int | None, typer.Option("--cores", min=1, help="cores that it may use; default: all of this machine")
]
GpuOption = Annotated[bool | None, typer.Option("--gpu/--no-gpu", help="use the pool with a GPU")]
GraceOption = Annotated[
    float | None,
    typer.Option(
        "--grace",
        min=MIN_GRACE_S,
        help=f"seconds from SIGTERM to SIGKILL; kept back from the budget; default: {DEFAULT_GRACE_S:g}",
    ),
]
CampaignOption = Annotated[str, typer.Option("--campaign", help="campaign that is charged as well")]
NameOption = Annotated[str, typer.Option("--name", help="name of the run; default: that of the script")]
ProfileOption = Annotated[
    bool,
    typer.Option(
        "--profile",
        help="profile the first steps of its loop in `budgeted`, for at most 2% of the budget",
    ),
]
ResumeOption = Annotated[
    str | None,
    typer.Option(
        "--resume",
        help="start a run that did not finish again, with the files that it kept and its last command, cores "
        "and grace, where no others are given; latest: the newest run of a command",
    ),
]


def exec_command(
    context: typer.Context,
    command: CommandArgument = None,
    budget: BudgetOption = None,
    deadline: DeadlineOption = None,
    cores: CoresOption = None,
    gpu: GpuOption = None,
    grace: GraceOption = None,
    campaign: CampaignOption = "",
    name: NameOption = "",
    world: WorldOption = None,
    store: StoreOption = None,
    wait: WaitOption = False,
    profile: ProfileOption = False,
    resume: ResumeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a command of your own inside a budget: shoestring exec --budget 0.50 -- python train.py

    It is metered, asked to end in time (SIGTERM, then SIGKILL), and settled. It finds its budget in the file
    $SHOESTRING_BUDGET, keeps files for its next attempt in the folder $SHOESTRING_CHECKPOINTS, and may write
    its progress to $SHOESTRING_PROGRESS. The exit code is that of the command if it ended by itself. With
    --json, what the command prints goes to stderr.
    """
    source = WorldSource(world, store)
    # It is forked before anything has a thread, such as an open store.
    watcher = context.with_resource(command_watcher(partial(source.open, writes=True)))
    opened = source.open_to_run()
    fields = {"argv": tuple(command or ()) or None, "cores": cores, "gpu": gpu, "grace_s": grace}
    fields |= {"profile": profile or None}
    given = {field: value for field, value in fields.items() if value is not None}
    if resume and (name or campaign):
        raise UsageError(f"{resume} keeps its name and its campaign: leave --name and --campaign out")
    request = (
        restarted_command(opened, resume, given, budget, deadline)
        if resume
        else new_command(opened, given, budget, deadline, campaign, name)
    )
    tell = partial(typer.echo, err=True)
    options = LaunchOptions(local_world_path(world), absolute(store), Path(), None, wait, tell)
    exec_and_exit(opened, request, options, watcher, given_options(world, store, None), as_json)


def exec_and_exit(
    world: World,
    request: RunRequest,
    options: LaunchOptions,
    watcher: CommandWatcher,
    given: str,
    as_json: bool,
) -> None:
    """Run the command, print its end, and exit with its exit code. `given`: the world's options."""
    assert request.command is not None
    check_program(Path(request.command.folder), request.command.argv[0])
    stdout = own_stdout() if as_json else None
    receipt = exec_here(world, request, options, watcher)
    if stdout is not None:
        os.write(stdout, record_bytes(receipt))
    if request.command.profile:
        typer.echo(text_of_profile(world.store, request.run_id), err=True)
    end_as(receipt, read_record(world.store, store_layout.summary(request.run_id), RunSummary), given)


def text_of_profile(store: Store, run_id: str) -> str:
    """Return the profile that the command of a run has written, as text."""
    try:
        return profile_text(read_record(store, store_layout.profile(run_id), Profile))
    except NotInStore:
        return (
            "shoestring: nothing was profiled: the command has no loop in `budgeted` or `budget.steps` "
            "(docs/own-training.md), or it ended in its first steps"
        )


def local_world_path(world: Path | None) -> Path:
    """Return the path of the world. Raises UsageError: it is for planning only, or of a cluster."""
    path = check_runnable(world or default_world_path())
    if path.is_dir():
        raise UsageError(f"{path} is the world of a cluster: `shoestring exec` runs on this machine")
    return path


def new_command(
    world: World,
    given: dict[str, Any],
    budget: str | None,
    deadline_s: float | None,
    campaign: str,
    name: str,
) -> RunRequest:
    """Return the request for a new run. `given`: fields of its command. Raises UsageError."""
    if "argv" not in given:
        raise UsageError("name a command, like `shoestring exec --budget 0.50 -- python train.py`")
    if (budget_usd := budget_from_option(budget)) is None:
        raise UsageError("--budget is missing: how many dollars may the command spend?")
    try:
        command = Command(folder=str(Path.cwd()), **given)
        name = name or command_name(command.argv)
        job = Job(name=name, budget_usd=budget_usd, deadline_s=deadline_s, campaign=campaign)
    except ValidationError as error:
        raise UsageError(validation_message(error)) from None
    return command_request(world, job, command)


def restarted_command(
    world: World, name: str, given: dict[str, Any], budget: str | None, deadline_s: float | None
) -> RunRequest:
    """Return the request to start a run again; exit where it is done and nothing else is given. Raises
    UsageError.
    """
    run_id, new_usd = named_command_run(world.store, name), budget_from_option(budget)
    request = resumed_command(world, run_id, given, new_usd, deadline_s)
    if budget is None and not given and is_done(world, run_id):
        more = "with more money in --budget, another command after -- or other options, it starts again"
        typer.echo(f"{run_id} is done: {more}", err=True)
        raise typer.Exit
    return request


def own_stdout() -> int:
    """Return a copy of stdout; from now on, what this process and its children print goes to stderr."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    return kept


def end_as(receipt: Receipt, summary: RunSummary, given: str) -> None:
    """Print to stderr how the command ended, since stdout belongs to it, and exit with its exit code."""
    lines = [
        f"shoestring: {receipt.run_id}: {receipt.status}, ${summary.spent_usd} of ${summary.budget_usd} "
        f"spent in {number_text.duration(summary.wall_s)}"
    ]
    if receipt.status != "done":
        left_usd = max(Decimal(0), summary.budget_usd - summary.spent_usd)
        lines += [f"shoestring: {receipt.reason}", advice(receipt, left_usd, given)]
    elif receipt.outcome and receipt.outcome.stop_reason:
        lines.append(f"shoestring: {receipt.outcome.stop_reason}")
    typer.echo("\n".join(lines), err=True)
    if receipt.status != "done":
        raise typer.Exit(1 if receipt.exit_code is None else receipt.exit_code)


def advice(receipt: Receipt, left_usd: Decimal, given: str) -> str:
    """Return how to start a run again, by what ended it. `left_usd`: of its budget; `given`: the world's
    options."""
    again = f"shoestring exec --resume {receipt.run_id}"
    if receipt.cause == "money":
        if receipt.reason.startswith(ENDED_BY_DEADLINE):
            return f"resume it with a later deadline: {again} --deadline SECONDS{given}"
        return f"resume it with more money: {again} --budget USD{given}"
    money = f"${left_usd} of its budget is left: add --budget USD only if that is too little"
    if receipt.cause in ("code", "memory") and receipt.exit_code not in BY_REQUEST:
        return f"fix it, then resume it: {again}{given}\nwith other arguments: add -- COMMAND...; {money}"
    return f"resume it: {again}{given}\n{money}"
