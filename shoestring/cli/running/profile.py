"""`shoestring profile`."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from shoestring.cli.options import JsonOption, StoreOption, WaitOption, WorldOption, budget_from_option
from shoestring.cli.running.exec_ import GpuOption, end_as, local_world_path, own_stdout
from shoestring.cli.world_source import WorldSource, absolute
from shoestring.core import store_layout
from shoestring.core.errors import BudgetTooSmall, NotInStore, StageFailed
from shoestring.core.interfaces import Store
from shoestring.core.money import usd
from shoestring.core.receipt import Receipt
from shoestring.core.record import record_bytes
from shoestring.data.job import MAX_NAME_CHARS, MIN_GRACE_S, Command, Job
from shoestring.data.recipe_files import find_recipe
from shoestring.data.run_records import read_record
from shoestring.reporting.summary import RunSummary
from shoestring.reporting.terminal.profile_text import profile_text
from shoestring.runtime.launch.command_run import command_request, exec_here
from shoestring.runtime.launch.command_watcher import command_watcher
from shoestring.runtime.launch.local_run import LaunchOptions
from shoestring.runtime.launch.profile_run import prepared_data, profile_steps, with_network
from shoestring.spending.budget_file import PROFILE_VARIABLE
from shoestring.training.profiling.loop_profile import LIMIT_SHARE
from shoestring.training.profiling.profile import Profile

SUFFIX = "-profile"
RecipeArgument = Annotated[str, typer.Argument(help="name of a recipe, or path of your own .yaml file")]
BudgetOption = Annotated[
    str | None,
    typer.Option("--budget", help="dollars that the profile may spend; default: 2% of the recipe's budget"),
]
FamilyOption = Annotated[
    str | None, typer.Option("--family", help="which network of the recipe; default: its first")
]


def profile(
    context: typer.Context,
    recipe: RecipeArgument,
    budget: BudgetOption = None,
    family: FamilyOption = None,
    gpu: GpuOption = None,
    world: WorldOption = None,
    store: StoreOption = None,
    wait: WaitOption = False,
    as_json: JsonOption = False,
) -> None:
    """Profile the training steps of a recipe on this machine: where their time goes, and what would pay.

    It makes some steps on the recipe's prepared data, inside a budget of its own, and keeps no model. The
    operators of a step are ranked by time, dollars and memory; a larger batch, bf16, another layout and other
    numbers of threads are tried.
    """
    source, found = WorldSource(world, store), with_network(find_recipe(recipe), family)
    if PROFILE_VARIABLE in os.environ:
        with tempfile.TemporaryDirectory() as scratch:
            profile_steps(source.open(), found, "cuda" if gpu else "cpu", Path(scratch))
        return
    # It is forked before anything has a thread.
    watcher = context.with_resource(command_watcher(partial(source.open, writes=True)))
    opened = source.open_to_run()
    prepared_data(opened, found)
    words = (recipe, "--family", found.train.family, *source.arguments, *["--gpu"] * bool(gpu))
    budget_usd = budget_from_option(budget) or usd(Decimal(str(LIMIT_SHARE)) * found.budget_usd)
    job = Job(name=profile_name(found.name), budget_usd=budget_usd)
    request = command_request(opened, job, profile_command(words, bool(gpu)))
    tell = partial(typer.echo, err=True)
    options = LaunchOptions(local_world_path(world), absolute(store), Path(), None, wait, tell)
    stdout = own_stdout()
    try:
        receipt = exec_here(opened, request, options, watcher)
    except BudgetTooSmall as error:
        raise with_budget_hint(error, found.budget_usd, budget is None) from None
    made = profile_of(opened.store, receipt, budget_usd)
    os.write(stdout, record_bytes(made) if as_json else f"{profile_text(made)}\n".encode())


def profile_of(store: Store, receipt: Receipt, budget_usd: Decimal) -> Profile:
    """Return what the run of a profile has left. Exits with its exit code where it has failed.

    Raises StageFailed: its budget ended before that.
    """
    try:
        return read_record(store, store_layout.profile(receipt.run_id), Profile)
    except NotInStore:
        if receipt.status != "done" and receipt.cause != "money":
            end_as(receipt, read_record(store, store_layout.summary(receipt.run_id), RunSummary), "")
        raise StageFailed(
            f"${budget_usd} were spent before the profile was whole: name more with --budget"
        ) from None


def profile_command(words: Sequence[str], gpu: bool) -> Command:
    """Return the command that makes the steps. `words`: those after `shoestring profile`."""
    argv = (sys.executable, "-m", "shoestring", "profile", *words)
    return Command(argv=argv, folder=str(Path.cwd()), gpu=gpu, grace_s=MIN_GRACE_S, profile=True)


def profile_name(recipe: str) -> str:
    """Return the name of the run that profiles a recipe."""
    return f"{recipe[: MAX_NAME_CHARS - len(SUFFIX)]}{SUFFIX}"


def with_budget_hint(error: BudgetTooSmall, recipe_usd: Decimal, is_default: bool) -> BudgetTooSmall:
    """Return the refusal of a profile; of its default budget, with where that comes from."""
    if not is_default:
        return error
    why = f"2% of the recipe's ${recipe_usd}; name more with --budget\n{error.reasons}"
    return BudgetTooSmall(error.budget_usd, error.smallest_usd, why)
