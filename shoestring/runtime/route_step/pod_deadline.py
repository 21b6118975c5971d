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


def pod_deadline_s(world: World, decision: Decision) -> int | None:
    """Return the seconds that the most money a stage could ever get buys at the lowest plausible price.

    An approval may add money up to what one run, or a month, may have. None: neither has a limit, or the pod
    costs nothing.
    """
    question, choice = decision.question, decision.choice
    limits = [cap for cap in (world.budgets.run_usd, world.budgets.month_usd) if cap is not None]
    price = lowest_usd_per_hour(world, decision, choice) if choice else Decimal(0)
    if not limits or not price:
        return None
    most_usd = max(question.budget_usd, min(limits)) - question.spent_usd
    return min(MAX_DEADLINE_S, max(1, ceil(most_usd * 3600 / price)))


def lowest_usd_per_hour(world: World, decision: Decision, choice: Choice) -> Decimal:
    """Return the lowest price that the chosen pool may have on its market while the stage runs."""
    if choice.market not in world.policy.floating_markets:
        return choice.usd_per_hour
    pool = decision.question.pool(choice.pool)
    smallest = Decimal(str(pool.cores)) * MIN_USD_PER_CORE_HOUR + pool.gpu_count * MIN_USD_PER_GPU_HOUR
    return min(choice.usd_per_hour, max(smallest, choice.usd_per_hour / SPOT_RANGE))
