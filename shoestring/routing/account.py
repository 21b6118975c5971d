"""What there is to say of a decision, whatever page it is said on: each offer with its verdict, and the money there was."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from shoestring.model import Format, Market
from shoestring.routing.decision import Decision, Question


@dataclass(frozen=True, slots=True)
class Offered:
    """An offer for the stage that was routed. `verdict`: why it was not taken; empty for the one that was. `priced`: it could be used."""

    row: int
    pool: str
    market: Market
    writes: Format | None
    usd_per_hour_micro: int
    priced: bool
    verdict: str

    @property
    def taken(self) -> bool:
        return not self.verdict


def offers_of(decision: Decision) -> list[Offered]:
    """All offers for the stage: first the one taken, then those that could be used, cheapest first, then the others."""
    columns = decision.candidates
    verdicts = {refusal.candidate: refusal.sentence for refusal in decision.refusals}
    mine = [row for row, stage in enumerate(columns.stage) if stage == 0]
    order = sorted(mine, key=lambda row: (row in verdicts, columns.objection[row] != "", columns.est_microusd[row], row))
    return [
        Offered(
            row=row,
            pool=columns.pools[columns.pool[row]],
            market=columns.markets[columns.market[row]],
            writes=columns.formats[columns.writes[row]] if columns.writes[row] >= 0 else None,
            usd_per_hour_micro=columns.usd_per_hour_micro[row],
            priced=not columns.objection[row],
            verdict=verdicts.get(row, ""),
        )
        for row in order
    ]


def left_usd(question: Question) -> Decimal:
    """Of the run's budget, before anything is kept for later stages."""
    return question.budget_usd - question.spent_usd - question.held_usd


def taken_from_it(question: Question) -> list[tuple[Decimal, str]]:
    """What of the budget is gone, and how."""
    return [(amount, name) for amount, name in ((question.spent_usd, "spent"), (question.held_usd, "held")) if amount]


def taken_row(decision: Decision) -> int | None:
    """The candidate that was taken; None when nothing was."""
    refused = {refusal.candidate for refusal in decision.refusals}
    return next((row for row, stage in enumerate(decision.candidates.stage) if stage == 0 and row not in refused), None)


def expected(decision: Decision, samples: int) -> tuple[int, int] | None:
    """Micro-dollars and milliseconds that were expected of the work that was done: of an elastic stage so many samples, on the line through
    its least and all of them; of any other all that it does. None when nothing was taken."""
    row, columns = taken_row(decision), decision.candidates
    if row is None:
        return None
    if not decision.question.needs[0].elastic or columns.cached[row]:
        return columns.est_microusd[row], columns.est_ms[row]
    least, most = columns.least_samples[row], columns.samples[row]
    ends = (columns.least_est_microusd, columns.est_microusd), (columns.least_est_ms, columns.est_ms)
    microusd, ms = (on_line(samples, (least, most), (low[row], high[row])) for low, high in ends)
    return microusd, ms


def on_line(samples: int, between: tuple[int, int], values: tuple[int, int]) -> int:
    """Rounded up, never below nothing."""
    (least, most), (low, high) = between, values
    if most == least:
        return -(-high * samples // most) if most else high
    return max(0, low - (low - high) * (samples - least) // (most - least))
