"""The budgets of single stages, and what earlier starts of the run left of them."""

from __future__ import annotations

from contextlib import suppress
from decimal import Decimal

from shoestring.config.world import World
from shoestring.core.errors import UnknownName
from shoestring.data.job import Job
from shoestring.data.run_records import RunStart
from shoestring.spending.ledger.account import AccountState
from shoestring.spending.ledger.ledger import Ledger


def account_states(ledger: Ledger, starts: tuple[RunStart, ...]) -> list[AccountState]:
    """Return the accounts of these starts. A start whose admission died before it opened its account has
    none.
    """
    states = []
    for start in starts:
        with suppress(UnknownName):
            states.append(ledger.state(start.account))
    return states


def stage_budgets(world: World, job: Job) -> dict[str, Decimal]:
    """Return the budgets of single stages: the job's or the world's, whichever is smaller."""
    theirs = world.budgets.stages
    return theirs | {
        stage: min(cap_usd, theirs.get(stage, cap_usd)) for stage, cap_usd in job.stage_budgets_usd.items()
    }


def stage_budgets_left(
    world: World, ledger: Ledger, job: Job, starts: tuple[RunStart, ...]
) -> dict[str, Decimal]:
    """Return the budgets of single stages, less what these starts of the run spent on them or still hold."""
    left = stage_budgets(world, job)
    for stages in (state.stages for state in account_states(ledger, starts)):
        taken = {stage: stages[stage].spent_usd + stages[stage].held_usd for stage in left if stage in stages}
        left |= {stage: max(Decimal(0), left[stage] - taken_usd) for stage, taken_usd in taken.items()}
    return left
