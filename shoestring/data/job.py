"""The task of a run, a recipe or a command, and its terms."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise
from pathlib import PurePath
from shlex import join

from pydantic import Field

from shoestring.config.budgets import CAMPAIGN_NAME
from shoestring.config.engines import DeadlineKind
from shoestring.config.policy import Priority
from shoestring.core.errors import UsageError
from shoestring.core.money import Usd
from shoestring.core.record import Record
from shoestring.data.recipe import Recipe

DEFAULT_GRACE_S, MIN_GRACE_S = 30.0, 0.1
MAX_NAME_CHARS = 63
TAKES_CODE = re.compile(r"(python\S*|\w*sh) -[A-Za-z]*c|(perl|ruby|node) -[A-Za-z]*e")
"""A program, and its option that code follows."""
FILE_SUFFIX = re.compile(r"\.[A-Za-z]")
NOT_IN_A_NAME = re.compile(r"[^a-z0-9_]+")


class Job(Record):
    """The terms on which a run was requested: its budget and deadline, who pays, and who asked for it."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$", description="of the recipe, or of the command")
    budget_usd: Usd
    deadline_s: float | None = None
    deadline_kind: DeadlineKind = "soft"
    campaign: str = Field("", pattern=f"^({CAMPAIGN_NAME})?$")
    priority: Priority = "normal"
    owner: str = Field("", description="the user who asked for it on a machine; empty: an engine started it")
    seed: int = Field(0, ge=0, lt=1 << 32)
    stage_budgets_usd: dict[str, Usd] = Field({}, exclude_if=lambda budgets: not budgets)


class Command(Record):
    """A user's command, which runs inside a budget."""

    argv: tuple[str, ...] = Field(min_length=1, description="the program and its arguments")
    folder: str = Field("", description="where it is started; empty: where its stage is")
    cores: int | None = Field(None, ge=1, description="null: all cores of the machine")
    gpu: bool = Field(False, description="true: on a pool with a GPU")
    grace_s: float = Field(
        DEFAULT_GRACE_S, gt=0, description="seconds from SIGTERM to SIGKILL, which the budget keeps back"
    )
    profile: bool = Field(
        False, exclude_if=lambda profile: not profile, description="true: its training loop is profiled"
    )
    outputs: dict[str, str] = Field(
        {},
        exclude_if=lambda outputs: not outputs,
        description="name of an output of its pipeline -> path of the file that the command writes it to",
    )

    @property
    def text(self) -> str:
        """The command as a shell reads it."""
        return join(self.argv)


Task = Recipe | Command


class OfTask:
    """A recipe or a command, for readers that need one of them."""

    __slots__ = ()
    task: Task

    @property
    def recipe(self) -> Recipe:
        """The recipe. Raises UsageError: the run is that of a command."""
        if isinstance(self.task, Command):
            raise UsageError(f"a run of the command `{self.task.text}` has no recipe")
        return self.task

    @property
    def command(self) -> Command | None:
        """The command; None: it is a recipe."""
        return self.task if isinstance(self.task, Command) else None


def job_of_recipe(
    recipe: Recipe,
    budget_usd: Decimal | None = None,
    deadline_s: float | None = None,
    seed: int | None = None,
    owner: str = "",
) -> Job:
    """Return the terms in a recipe, with those that were given instead. None: as in the recipe."""
    return Job(
        name=recipe.name,
        budget_usd=recipe.budget_usd if budget_usd is None else budget_usd,
        deadline_s=deadline_s or recipe.deadline_s,
        deadline_kind=recipe.deadline_kind,
        campaign=recipe.campaign,
        priority=recipe.priority,
        owner=owner,
        seed=recipe.seed if seed is None else seed,
        stage_budgets_usd=recipe.stage_budgets_usd,
    )


def command_name(argv: Sequence[str]) -> str:
    """Return a name for the run of a command: that of its script or module, or else of its program.

    Its script is the first file among its arguments. Code in them has no name.
    """
    script, program = argv[0], PurePath(argv[0]).name
    for before, word in pairwise(argv):
        if TAKES_CODE.fullmatch(f"{program} {before}"):
            break
        is_module = program.startswith("python") and before == "-m"
        if is_module or (FILE_SUFFIX.match(PurePath(word).suffix) and not word.startswith("-")):
            script = word
            break
    return NOT_IN_A_NAME.sub("-", PurePath(script).stem.lower())[:MAX_NAME_CHARS].strip("-_") or "command"
