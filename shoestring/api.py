"""The Python API: plan, run and read runs, in a script or a notebook.

`import shoestring` offers these names and imports this module at the first use of one. Errors are those of
`shoestring.core.errors`; nothing here ends the process or reads the command line.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import TextIO

from shoestring.backends.local import default_world_path
from shoestring.config.engines import Engine
from shoestring.config.world import World
from shoestring.core.errors import UsageError
from shoestring.core.interfaces import Store
from shoestring.core.money import budget as parse_budget
from shoestring.core.receipt import Receipt
from shoestring.data.recipe import Recipe
from shoestring.evaluation.results import EvaluationResults
from shoestring.models.frames import Model as Model
from shoestring.models.model import model_at
from shoestring.reporting.html.page import page
from shoestring.reporting.publish import export, open_model
from shoestring.reporting.run_reader import read_run_story
from shoestring.reporting.run_story import RunStory
from shoestring.reporting.runs.run_comparison import RunComparison, compare_runs
from shoestring.reporting.runs.run_list import ListedStatus, RunOverview, list_runs
from shoestring.reporting.summary import RunSummary, summarise_run
from shoestring.routing.decision import Decision
from shoestring.routing.pages.explain import as_text
from shoestring.runtime.admission.first_request import RunRequest
from shoestring.runtime.launch.local_run import LaunchOptions, is_done, run_here
from shoestring.runtime.launch.local_world import check_runnable, ensure_default_world
from shoestring.runtime.launch.run_request import (
    new_request,
    planned_decision,
    planned_engine,
    recipe_in_campaign,
    resumed_request,
    with_priority,
)
from shoestring.runtime.open_world import open_world

LOGGER = logging.getLogger("shoestring")
"""Receives sentences about rejected prices, waits and abandoned runs, as warnings."""

Money = str | Decimal | int
"""Dollars. A float is refused, since it cannot hold a tenth of a cent exactly."""


# Without slots, since cached_property stores its value in __dict__.
@dataclass(frozen=True, repr=False)
class RunView:
    """The records of a run, as they were when it was opened."""

    story: RunStory
    store: Store

    def __repr__(self) -> str:
        found = self.summary
        return f"RunView({found.run_id}: {found.status}, ${found.spent_usd} of ${found.budget_usd} spent)"

    @property
    def run_id(self) -> str:
        return self.story.run_id

    @cached_property
    def summary(self) -> RunSummary:
        return summarise_run(self.story)

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """The decision of each attempt, in the order in which they were made."""
        return tuple(attempt.decision for attempt in self.story.attempts)

    @property
    def receipts(self) -> tuple[Receipt, ...]:
        """The receipt of each attempt that ended, in the same order."""
        return tuple(attempt.receipt for attempt in self.story.attempts if attempt.receipt)

    @property
    def evaluation(self) -> EvaluationResults | None:
        """All scores on the sealed test split; None before there is an evaluation."""
        return self.story.evaluation

    def report(self) -> str:
        """Return the report, one HTML page without scripts or external files."""
        return page(self.story)

    def export(self, folder: str | Path) -> None:
        """Copy the run's files into a folder: report, decisions, receipts, model, its part of the ledger."""
        export(self.store, self.run_id, Path(folder))


def run(
    recipe: str | Recipe,
    *,
    budget: Money | None = None,
    deadline_s: float | None = None,
    seed: int | None = None,
    campaign: str | None = None,
    priority: str | None = None,
    wait: bool = False,
    world: str | Path | None = None,
    store: str | Path | None = None,
    out: str | Path | None = None,
    progress: TextIO | None = None,
) -> RunView:
    """Run a recipe on this machine, as `shoestring run` does, and return its records.

    A run that failed or was stopped is returned too: `summary.status` and `summary.reason` say so.

    Args:
        recipe: name of a recipe, path of a .yaml file, or a `Recipe`.
        budget: dollars for the whole run; None: the recipe's, as for the next two.
        deadline_s: seconds for the whole run.
        seed: of everything random.
        campaign: a budget that is charged as well.
        priority: low, normal or high.
        wait: wait when the policy delays the start.
        world: world file; None: the default one, which is written if there is none.
        store: folder of the object store; None: the one in the world file.
        out: folder for the run's files; None: runs/RUN_ID.
        progress: receives a line for each change of a stage's state, like `sys.stderr`.

    Raises:
        Refused: nothing was started, since it would not fit; the message holds what would.
        UsageError: the recipe, the world or an argument is wrong.
    """
    opened, folder = open_at(world, store), absolute(store)
    request = new_request(opened, recipe_in_campaign(campaign, recipe), dollars(budget), deadline_s, seed)
    return launched(opened, with_priority(request, priority), world, folder, out, progress, wait)


def resume(
    run_id: str,
    *,
    budget: Money | None = None,
    deadline_s: float | None = None,
    world: str | Path | None = None,
    store: str | Path | None = None,
    out: str | Path | None = None,
    progress: TextIO | None = None,
) -> RunView:
    """Resume a run that did not finish, from its last checkpoint. A run that is done is returned as it is.

    Arguments and errors are those of `run`; what is None stays as it was.
    """
    opened, folder = open_at(world, store), absolute(store)
    if is_done(opened, run_id):
        return RunView(read_run_story(opened.store, run_id), opened.store)
    request = resumed_request(opened, run_id, dollars(budget), deadline_s, None)
    return launched(opened, request, world, folder, out, progress, wait=False)


def plan(
    recipe: str | Recipe,
    *,
    budget: Money | None = None,
    deadline_s: float | None = None,
    engine: Engine | None = None,
    world: str | Path | None = None,
    store: str | Path | None = None,
) -> Decision:
    """Return the decision with which a run would begin, and its plan for the later stages. Starts nothing.

    `choice` is None when nothing fits; then `smallest_budget_usd` is the smallest budget that is enough.
    Arguments are those of `run`, and the engine whose time between the stages is kept free: local, argo or
    kubeflow; None: argo in the folder of a cluster's world, else local.

    Raises:
        Refused: the budget is above what one run may have.
        UsageError: the recipe, the world or an argument is wrong.
    """
    found = recipe_in_campaign(None, recipe)
    runs_on = planned_engine(engine, in_cluster=Path(world or default_world_path()).is_dir())
    return planned_decision(open_at(world, store), found, dollars(budget), deadline_s, runs_on)


def explain(decision: Decision) -> str:
    """Return the choice, its reasons and the rejected offers, as `shoestring explain` prints them."""
    return as_text(decision)


def open_run(run_id: str, *, world: str | Path | None = None, store: str | Path | None = None) -> RunView:
    """Return the records of a run as they are now. Raises UnknownName, which names the newest runs."""
    opened = open_at(world, store).store
    return RunView(read_run_story(opened, run_id), opened)


def runs(
    *,
    name: str | None = None,
    status: ListedStatus | None = None,
    since: datetime | None = None,
    world: str | Path | None = None,
    store: str | Path | None = None,
) -> tuple[RunOverview, ...]:
    """Return the runs of a store, newest first.

    `name` (of a recipe or command), `status`, `since` (when it was requested): only these.
    """
    opened = open_at(world, store)
    found, notes = list_runs(opened.store, opened.cluster, name, status, since)
    for note in notes:
        LOGGER.warning(note)
    return found


def compare(first: RunView, second: RunView) -> RunComparison:
    """Return the choices, dollars and quality of two runs side by side."""
    return compare_runs(first.story, second.story)


def load(model: str | Path, *, world: str | Path | None = None, store: str | Path | None = None) -> Model:
    """Return the model of a folder, of a run's files, or of a run by its id.

    Raises:
        UsageError: there is no such folder or run, or a library that the model needs is not installed.
        DataError: a file of the folder is missing, was changed, or is a pickle.
        NotInStore: the data set of the run's model is not stored any longer.
    """

    def find_run(run_id: str) -> tuple[Store, str]:
        return open_at(world, store).store, run_id

    return Model(open_model(str(model), find_run, model_at))


def dollars(amount: Money | None) -> Decimal | None:
    """Return a budget in dollars, rounded down to the micro-dollar. Raises UsageError."""
    if isinstance(amount, float):
        raise UsageError(f"budget: write {amount} in quotes: a float cannot hold a tenth of a cent exactly")
    try:
        return None if amount is None else parse_budget(str(amount))
    except ValueError as error:
        raise UsageError(f"budget: {error}") from None


def absolute(folder: str | Path | None) -> Path | None:
    return Path(folder).expanduser().absolute() if folder else None


def open_at(world: str | Path | None, store: str | Path | None) -> World:
    """Open a world with a store. Raises WorldError."""
    if world is None and (made := ensure_default_world()):
        LOGGER.warning(made)
    opened = open_world(str(world) if world else "", absolute(store))
    for rejected in opened.prices.book().rejected:
        LOGGER.warning("a price was rejected: %s: %s", rejected.row, rejected.reason)
    return opened


def launched(
    opened: World,
    request: RunRequest,
    world: str | Path | None,
    store: Path | None,
    out: str | Path | None,
    progress: TextIO | None,
    wait: bool,
) -> RunView:
    """Drive a run to its end, write its files and return its records. Raises Refused, UsageError."""
    path = check_runnable(Path(world) if world else default_world_path())
    folder = Path(out) if out else Path("runs") / request.run_id
    run_here(opened, request, LaunchOptions(path, store, folder, progress, wait, LOGGER.warning))
    export(opened.store, request.run_id, folder)
    return RunView(read_run_story(opened.store, request.run_id), opened.store)
