"""Results of a simulation: the outcome of each pipeline, and the report."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from shoestring.config.budgets import Budgets
from shoestring.core.money import Usd
from shoestring.core.record import Record

Ending = Literal["done", "stopped", "guardrail", "failed", "refused", "cap-reached", "abandoned"]
ZERO_USD = Decimal(0)


@dataclass(slots=True)
class PipelineOutcome:
    """The outcome of one pipeline, updated while it runs.

    `fits`: with its actual durations known, some choice of pools meets its budget and deadline, at a
    minimum of `min_usd`. `billed_usd`: the provider's bill, by the pods' actual times and the changing
    prices. `spent_usd`: the amount in the ledger. `waited`: the run waited before its start;
    `delayed`: by the start policy, not only for money that other runs had reserved.
    `late`: a stage after its training was let miss a soft deadline.
    `held_s`: seconds from reserving its budget until the release of the unspent rest.
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
    delayed: bool = False
    late: bool = False
    migrations: int = 0
    by_candidate: bool = False
    admitted_s: float = 0.0
    held_s: float = 0.0
    spent_usd: Decimal = ZERO_USD
    billed_usd: Decimal = ZERO_USD
    committed_usd: Decimal = ZERO_USD
    attempts: int = 0
    preempted: int = 0


class PipelineKindReport(Record):
    """The results of all pipelines of one kind."""

    pipelines: int
    admitted: int
    done: int
    would_fit: int
    would_fit_admitted: int
    median_budget_usd: Usd
    spent_usd: Usd


class SimulationReport(Record):
    """The report of a simulation. Shares are fractions of 1; None if the denominator is 0.

    `outcomes`: number of pipelines by outcome.

    `would_fit`: pipelines that, with their actual durations known, meet their budget and deadline, and
    whose minimum cost fits the month and the campaign together with the final spending of the runs before
    them.

    `parent_accounts`: the state of each month and campaign.

    `unspent_share`: share of the run budgets that was never spent. `released_share`: share of the stage
    reservations that was released.

    `waited`: runs that waited, and were then admitted; `longest_wait_h` is the longest wait in hours.
    `delayed`: those of them that the start policy delayed, for a lower price, the end of a peak or a queue.

    `late`: runs in which a stage after the training was let miss a soft deadline at P95.

    `migrations`: attempts that stopped at a checkpoint for another pool. `trained_share`: samples that the
    finished elastic stages trained, of those after which their metrics stop improving.

    `candidate_runs`: runs that followed the policy on trial. `rollback`: why no later run follows it.

    `committed_usd`: dollars that commitments paid instead of the runs.

    `mean_release_h`: hours until the unspent budget of a run was released, averaged over the dollars
    released.

    `p95_coverage`: share of the finished stages with fixed work that cost at most their reserved P95.

    `accounts_over_cap`: accounts that spent and hold more than their cap. `max_share_of_cap`: largest share
    of its budget that a run spent. `runs_billed_over_budget`: runs whose bill exceeds their budget;
    `max_billed_over_share` is the largest excess.

    `spent_by_target`: dollars in the ledger, by pool and market. `reaped`: entries that the reaper
    completed between two accounts.
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
    delayed: int
    late: int
    migrations: int
    trained_share: float | None
    candidate_runs: int
    rollback: str
    committed_usd: Usd
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
    """Return part / whole, rounded to 6 places; None if `whole` is 0."""
    return round(float(part) / float(whole), 6) if whole else None


@dataclass(slots=True)
class Counters:
    """Counters of events during the simulation."""

    within_p95: int = 0
    useful_samples: int = 0
    trained_samples: int = 0
    finished: int = 0
    crashes: int = 0
    reaped: int = 0


def pipelines_that_fit(outcomes: Sequence[PipelineOutcome], budgets: Budgets) -> list[PipelineOutcome]:
    """Return the outcomes of pipelines that would have fitted.

    `outcomes` are in the order in which they started.
    """
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
    """Return the number of pipelines by outcome."""
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
            spent_usd=sum((outcome.spent_usd for outcome in mine), ZERO_USD),
        )
    return found
