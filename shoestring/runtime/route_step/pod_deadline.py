"""The deadline of a stage's pod on Argo: Kubernetes keeps it where supervisor and reaper fail."""

from __future__ import annotations

from decimal import Decimal
from math import ceil

from shoestring.config.world import World
from shoestring.pricing.validation import MIN_USD_PER_CORE_HOUR, MIN_USD_PER_GPU_HOUR
from shoestring.routing.decision import Choice, Decision

# Spot prices of one machine differ between regions and days by a factor of 5 at most.
SPOT_RANGE = 5
MAX_DEADLINE_S = 2**31 - 1
"""The largest `activeDeadlineSeconds` that Kubernetes accepts."""


def pod_deadline_s(world: World, decision: Decision, campaign: str) -> int | None:
    """Return the seconds that the most money a stage could ever get buys at the lowest plausible price.

    `campaign`: the run's; empty: none. None: nothing limits that money, or the pod costs nothing.
    """
    limit_usd, choice = most_usd(world, decision, campaign), decision.choice
    price = lowest_usd_per_hour(world, decision, choice) if choice else Decimal(0)
    if limit_usd is None or not price:
        return None
    return min(MAX_DEADLINE_S, max(1, ceil(limit_usd * 3600 / price)))


def most_usd(world: World, decision: Decision, campaign: str) -> Decimal | None:
    """Return the most that a stage could get; None: without limit.

    An approval may add money up to what one run, a month or the campaign may have. What is left of the
    stage's own cap stays the same.
    """
    question, budgets = decision.question, world.budgets
    shared = budgets.campaigns.get(campaign)
    caps = [budgets.run_usd, budgets.month_usd, shared.cap_usd if shared else None]
    limits = [cap for cap in caps if cap is not None]
    run_usd = [max(question.budget_usd, min(limits)) - question.spent_usd] if limits else []
    stage_usd = question.stage_budgets.get(question.stage)
    return min([*run_usd, *([] if stage_usd is None else [stage_usd])], default=None)


def lowest_usd_per_hour(world: World, decision: Decision, choice: Choice) -> Decimal:
    """Return the lowest price that the chosen pool may have on its market while the stage runs."""
    if choice.market not in world.policy.floating_markets:
        return choice.usd_per_hour
    pool = decision.question.pool(choice.pool)
    smallest = Decimal(str(pool.cores)) * MIN_USD_PER_CORE_HOUR + pool.gpu_count * MIN_USD_PER_GPU_HOUR
    return min(choice.usd_per_hour, max(smallest, choice.usd_per_hour / SPOT_RANGE))
