"""What became of each pipeline, and of all of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal

from shoestring.config.budgets import Budgets
from shoestring.core.money import Usd, from_microusd
from shoestring.core.record import Record

Ending = Literal["done", "stopped", "failed", "refused", "cap-reached", "abandoned"]
NOTHING = Decimal(0)


@dataclass(slots=True)
class PipelineOutcome:
    """One pipeline, as it goes on. `fits`: with its true durations known, some choice of pools keeps to its budget and its deadline.

    `billed_usd`: what the provider asks, by the pods' own times and its moving prices; `spent_usd` is what the books say.
    `waited`: for money that other runs held. `held_s`: from when its budget was set aside until what it had not spent came back.
    """

    kind: str
    month: str
    campaign: str
    budget_usd: Decimal
    fits: bool
    min_usd: Decimal
    ended: Ending = "abandoned"
    reason: str = ""
    admitted: bool = False
    waited: bool = False
    admitted_s: float = 0.0
    held_s: float = 0.0
    spent_usd: Decimal = NOTHING
    billed_usd: Decimal = NOTHING
    attempts: int = 0
    preempted: int = 0
    reserved_usd: Decimal = NOTHING
    accounts: list[str] = field(default_factory=list)


class PipelineKindReport(Record):
    """Pipelines of one kind."""

    pipelines: int
    admitted: int
    done: int
    would_fit: int
    would_fit_admitted: int
    median_budget_usd: Usd
    spent_usd: Usd


class SimulationReport(Record):
    """What came of a simulation. Shares are of 1; None where there is nothing to divide by.

    `would_fit`: with its true durations known, a pipeline keeps to its budget and its deadline, and what it needs at least is there in
    its month and its campaign beside what the runs that were admitted before it spent in the end. `parent_accounts`: the accounts of both.
    `unspent_share`: of what was set aside for runs, what was never spent; `released_share`: of what was reserved for stages.
    `waited`: runs that waited for money that others held, and were admitted then; the longest of these waits, in hours.
    `mean_release_h`: hours after which a dollar that was set aside for a run and not spent came back, in the mean over those dollars.
    `p95_coverage`: finished stages of fixed work that cost no more than the P95 that was reserved for them.
    `accounts_over_cap`: accounts in which more was spent than their cap. `runs_billed_over_budget`: runs whose bill was above their budget.
    """

    scenario: str
    seed: int
    pipelines: int
    outcomes: dict[str, int]
    admitted: int
    would_fit: int
    would_fit_admitted: int
    admitted_share: float | None
    accounts_over_cap: int
    max_share_of_cap: float | None
    cap_usd: Usd
    spent_usd: Usd
    billed_usd: Usd
    runs_billed_over_budget: int
    max_billed_over_share: float
    unspent_share: float | None
    released_share: float | None
    waited: int
    longest_wait_h: float
    mean_release_h: float | None
    p95_coverage: float | None
    p95_stages: int
    attempts: int
    preempted: int
    crashes: int
    races: int
    reaped: int
    parent_accounts: dict[str, str]
    spent_by_target: dict[str, Usd]
    pipeline_kinds: dict[str, PipelineKindReport]
    ledger_entries: int
    ledger_check: str
    days: float


def share(part: float | Decimal, whole: float | Decimal) -> float | None:
    return round(float(part) / float(whole), 6) if whole else None


@dataclass(slots=True)
class Counters:
    """What is counted while it happens."""

    within_p95: int = 0
    finished: int = 0
    crashes: int = 0
    reaped: int = 0
    stage_spent: int = 0
    stage_reserved: int = 0
    money: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))

    def money_usd(self) -> dict[str, Decimal]:
        return {name: from_microusd(self.money[name]) for name in sorted(self.money)}


def fitting(outcomes: Sequence[PipelineOutcome], budgets: Budgets) -> list[PipelineOutcome]:
    """Those that would have fitted. `outcomes` are in the order in which they began."""
    spent: defaultdict[str, Decimal] = defaultdict(Decimal)
    found = []
    for outcome in outcomes:
        caps = {outcome.month: budgets.month_usd}
        if outcome.campaign:
            caps[outcome.campaign] = budgets.campaigns[outcome.campaign].cap_usd
        if outcome.fits and all(
            cap_usd is None or spent[name] + outcome.min_usd <= cap_usd for name, cap_usd in caps.items()
        ):
            found.append(outcome)
        for name in caps:
            spent[name] += outcome.spent_usd
    return found


def outcome_counts(outcomes: Sequence[PipelineOutcome]) -> dict[str, int]:
    return dict(sorted(Counter(outcome.ended for outcome in outcomes).items()))


def by_kind(
    outcomes: Sequence[PipelineOutcome], fitting: Sequence[PipelineOutcome]
) -> dict[str, PipelineKindReport]:
    found = {}
    for name in sorted({outcome.kind for outcome in outcomes}):
        mine, fits = ([outcome for outcome in some if outcome.kind == name] for some in (outcomes, fitting))
        budgets = sorted(outcome.budget_usd for outcome in mine)
        found[name] = PipelineKindReport(
            pipelines=len(mine),
            admitted=sum(outcome.admitted for outcome in mine),
            done=sum(outcome.ended == "done" for outcome in mine),
            would_fit=len(fits),
            would_fit_admitted=sum(outcome.admitted for outcome in fits),
            median_budget_usd=budgets[len(budgets) // 2],
            spent_usd=sum((outcome.spent_usd for outcome in mine), NOTHING),
        )
    return found
