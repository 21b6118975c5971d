"""Read a decision for display: each offer with its verdict, and the money that was left."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from shoestring.core.types import Market
from shoestring.routing.candidates import NONE, RefusalCode, format_text
from shoestring.routing.decision import Decision, reserved_later_s
from shoestring.routing.offers.offer_table import stage_offer_table
from shoestring.routing.question import Question


@dataclass(frozen=True, slots=True)
class OfferView:
    """An offer for the stage that was routed.

    `writes` names the format and storage class of its output; empty if it writes no data set. `usable` is
    False if the stage cannot run there at any price. `verdict` is the reason for the rejection; empty for
    the selected offer.
    """

    row: int
    pool: str
    market: Market
    writes: str
    usd_per_hour_micro: int
    usable: bool
    verdict: str

    @property
    def selected(self) -> bool:
        """Return True for the offer that the decision selected."""
        return not self.verdict

    @property
    def verdict_text(self) -> str:
        """Return "selected", or "rejected: " and the reason."""
        return f"rejected: {self.verdict}" if self.verdict else "selected"


def offer_views(decision: Decision) -> list[OfferView]:
    """Return the offers for the stage that have a sentence: the selected one, then usable ones by cost,
    then the others.
    """
    names, columns = decision.candidates, stage_offer_table(decision.candidates, 0)
    verdicts = {refusal.candidate: refusal.sentence for refusal in decision.refusals}
    selected = [] if decision.choice is None else [decision.choice.candidate]
    order = sorted(
        [*selected, *verdicts],
        key=lambda row: (row in verdicts, columns.exclusion[row] != NONE, columns.est_microusd[row], row),
    )
    return [
        OfferView(
            row=row,
            pool=names.pools[columns.pool[row]],
            market=names.markets[columns.market[row]],
            writes=format_text(*names.stored_format(columns.writes[row])),
            usd_per_hour_micro=int(columns.usd_per_hour_micro[row]),
            usable=bool(columns.exclusion[row] == NONE),
            verdict=verdicts.get(row, ""),
        )
        for row in order
    ]


def unlisted_counts(decision: Decision) -> dict[RefusalCode, int]:
    """Return the number of offers for the stage that have no sentence, by refusal code."""
    unlisted = np.ones(len(decision.refusal_index), dtype=np.bool_)
    unlisted[[refusal.candidate for refusal in decision.refusals]] = False
    rejected = decision.refusal_index[unlisted & (decision.refusal_index >= 0)]
    counts = np.bincount(rejected, minlength=len(decision.refusal_codes)).tolist()
    return {code: count for code, count in zip(decision.refusal_codes, counts, strict=True) if count}


def budget_deductions(question: Question) -> list[tuple[Decimal, str]]:
    """Return the amounts already spent or held, in dollars, each with its name; zero amounts are omitted."""
    return [
        (amount, name)
        for amount, name in ((question.spent_usd, "spent"), (question.held_usd, "held"))
        if amount
    ]


def late_s(decision: Decision) -> float:
    """Return by how many seconds a choice misses a soft deadline at P95, with the stages after it; 0: it does
    not.
    """
    soft_s, choice = decision.question.soft_left_s, decision.choice
    if soft_s is None or choice is None:
        return 0.0
    return max(0.0, choice.p95_s + reserved_later_s(decision) - soft_s)


def engine_text(question: Question) -> str:
    """Return what the engine takes between the stages; empty where the question does not say."""
    times = question.engine
    if times is None:
        return ""
    kept = f"{question.engine_s:,.1f} s kept, " if question.deadline_left_s is not None else ""
    return f"{times.engine}: {kept}{times.step_s:,.1f} s from a stage to the next ({times.source})"


def selected_row(decision: Decision) -> int | None:
    """Return the number of the selected candidate; None if nothing was selected."""
    return None if decision.choice is None else decision.choice.candidate


def expected_cost(decision: Decision, samples: int) -> tuple[int, int] | None:
    """Return the expected micro-dollars and milliseconds of the work that was done; None if nothing was
    selected.

    For an elastic stage, the estimate is interpolated linearly at `samples`, between its minimum and its
    maximum number of samples. For any other stage it covers the whole stage.
    """
    if decision.choice is None:
        return None
    row, columns = decision.choice.candidate, stage_offer_table(decision.candidates, 0)
    if not decision.question.needs[0].elastic or columns.cached[row]:
        return int(columns.est_microusd[row]), int(columns.est_ms[row])
    between = int(columns.min_samples[row]), int(columns.samples[row])
    ends = (columns.min_est_microusd, columns.est_microusd), (columns.min_est_ms, columns.est_ms)
    microusd, ms = (interpolate(samples, between, (int(low[row]), int(high[row]))) for low, high in ends)
    return microusd, ms


def interpolate(samples: int, between: tuple[int, int], values: tuple[int, int]) -> int:
    """Return the value at `samples` on the line through two points, rounded up; at least 0."""
    (first, last), (low, high) = between, values
    if last == first:
        return -(-high * samples // last) if last else high
    return max(0, low - (low - high) * (samples - first) // (last - first))


def planned_name(question: Question, stage: str) -> str:
    """Return the name of a later stage, of a loop with the number of its items that are planned."""
    items = next((need.items for need in question.needs if need.stage == stage), 1)
    return f"{stage} ({items:,} items)" if items > 1 else stage
