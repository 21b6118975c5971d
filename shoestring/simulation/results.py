"""What became of each pipeline, and of all of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal

from shoestring.config.budgets import Budgets
from shoestring.core.money import Usd, from_microusd
from shoestring.core.types import Record

Ended = Literal["done", "stopped", "failed", "refused", "full", "abandoned"]
NOTHING = Decimal(0)


@dataclass(slots=True)
class Fate:
    """One pipeline, as it goes on. `fits`: with its true durations known, some choice of pools keeps to its budget and its deadline.

    `billed_usd`: what the provider asks, by the pods' own times and its moving prices; `spent_usd` is what the books say.
    `waited`: for money that other runs held. `held_s`: from when its budget was set aside until what it had not spent came back.
    """

    chain: str
    month: str
    campaign: str
    budget_usd: Decimal
    fits: bool
    least_usd: Decimal
    ended: Ended = "abandoned"
    why: str = ""
    admitted: bool = False
    waited: bool = False
    opened_s: float = 0.0
    held_s: float = 0.0
    spent_usd: Decimal = NOTHING
    billed_usd: Decimal = NOTHING
    attempts: int = 0
    preempted: int = 0
    reserved_usd: Decimal = NOTHING
    accounts: list[str] = field(default_factory=list)


class ChainReport(Record):
    """Pipelines of one kind."""

    pipelines: int
    admitted: int
    done: int
    would_fit: int
    would_fit_admitted: int
    median_budget_usd: Usd
    spent_usd: Usd


class Report(Record):
    """What came of a simulation. Shares are of 1; None where there is nothing to divide by.

    `would_fit`: with its true durations known, a pipeline keeps to its budget and its deadline, and what it needs at least is there in
    its month and its campaign beside what the runs that were admitted before it spent in the end. `above`: the accounts of both.
    `stranded_share`: of what was set aside for runs, what was never spent; `stranded_stages_share`: of what was reserved for stages.
    `waited`: runs that waited for money that others held, and were admitted then; the longest of these waits, in hours.
    `back_after_h`: hours after which a dollar that was set aside for a run and not spent came back, in the mean over those dollars.
    `p95_coverage`: finished stages of fixed work that cost no more than the P95 that was reserved for them.
    `over_cap`: accounts in which more was spent than their cap. `billed_over`: runs whose bill was above their budget.
    """

    scenario: str
    seed: int
    pipelines: int
    ended: dict[str, int]
    admitted: int
    would_fit: int
    would_fit_admitted: int
    admitted_share: float | None
    over_cap: int
    most_of_cap: float | None
    cap_usd: Usd
    spent_usd: Usd
    billed_usd: Usd
    billed_over: int
    most_billed_over_share: float
    stranded_share: float | None
    stranded_stages_share: float | None
    waited: int
    longest_wait_h: float
    back_after_h: float | None
    p95_coverage: float | None
    p95_stages: int
    attempts: int
    preempted: int
    crashes: int
    races: int
    swept: int
    above: dict[str, str]
    money: dict[str, Usd]
    chains: dict[str, ChainReport]
    ledger_entries: int
    verified: str
    days: float


def share(part: float | Decimal, whole: float | Decimal) -> float | None:
    return round(float(part) / float(whole), 6) if whole else None


@dataclass(slots=True)
class Tally:
    """What is counted while it happens."""

    covered: int = 0
    finished: int = 0
    crashes: int = 0
    swept: int = 0
    stage_spent: int = 0
    stage_reserved: int = 0
    money: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))

    def money_usd(self) -> dict[str, Decimal]:
        return {name: from_microusd(self.money[name]) for name in sorted(self.money)}


def fitting(fates: Sequence[Fate], budgets: Budgets) -> list[Fate]:
    """Those that would have fitted. `fates` are in the order in which they began."""
    spent: defaultdict[str, Decimal] = defaultdict(Decimal)
    found = []
    for fate in fates:
        caps = {fate.month: budgets.month_usd}
        if fate.campaign:
            caps[fate.campaign] = budgets.campaigns[fate.campaign].cap_usd
        if fate.fits and all(
            cap_usd is None or spent[name] + fate.least_usd <= cap_usd for name, cap_usd in caps.items()
        ):
            found.append(fate)
        for name in caps:
            spent[name] += fate.spent_usd
    return found


def ended(fates: Sequence[Fate]) -> dict[str, int]:
    return dict(sorted(Counter(fate.ended for fate in fates).items()))


def by_chain(fates: Sequence[Fate], fitting: Sequence[Fate]) -> dict[str, ChainReport]:
    found = {}
    for name in sorted({fate.chain for fate in fates}):
        mine, fits = ([fate for fate in some if fate.chain == name] for some in (fates, fitting))
        budgets = sorted(fate.budget_usd for fate in mine)
        found[name] = ChainReport(
            pipelines=len(mine),
            admitted=sum(fate.admitted for fate in mine),
            done=sum(fate.ended == "done" for fate in mine),
            would_fit=len(fits),
            would_fit_admitted=sum(fate.admitted for fate in fits),
            median_budget_usd=budgets[len(budgets) // 2],
            spent_usd=sum((fate.spent_usd for fate in mine), NOTHING),
        )
    return found
