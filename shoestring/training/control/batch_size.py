"""The batch that costs the least, from the noise of the gradient and the time of a step.

A step over B rows takes alpha + beta B seconds: half of the throughput is reached at n = alpha / beta rows.
A training needs steps in proportion to 1 + phi / B (McCandlish et al. 2018, arXiv 1812.06162, equation 2.11).
So its cost is in proportion to

    (1 + phi / B) (n + B)        which is least at B* = sqrt(phi n).

The price of an hour is a factor of all batches. The cost is flat: twice B* is 12.5% dearer at most. So the
batch moves by powers of two, and only where that pays.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from shoestring.training.changes import PlanChange
from shoestring.training.contracts import BatchRange, TrainingSetup
from shoestring.training.curve import NoiseScale

NEAR = 1.03
"""The batch stays where it costs at most this many times the best one."""

LOOKS = 2
"""Measurements in a row that have to agree before the batch moves."""

FAR = 4.0
"""A batch this many times above or below the best one, by its interval, moves at each measurement. In the
first steps, where the noise scale is small and rises, only such a one becomes smaller."""


EARLY_PHI = 250.0
"""The noise scale that the gradient of a network has soon, or a larger one, in rows: what a short training is
to have a batch for (bench/batch.py)."""

FIRST_COST, FIRST_STEPS = 0.95, 100
"""The first batch doubles where that makes a training cheaper than this, and leaves it this many steps: of
fewer, each is needed."""


def best_rows(phi: float, half_rows: float) -> float:
    """Return B*."""
    return math.sqrt(phi * half_rows)


def relative_cost(rows: float, phi: float, half_rows: float) -> float:
    """Return the cost of a training with this batch, as a multiple of that with B*."""
    least = (math.sqrt(half_rows) + math.sqrt(phi)) ** 2
    return (1 + phi / rows) * (half_rows + rows) / least


def first_rows(setup: TrainingSetup, samples: int) -> int:
    """Return the batch of the first step: the recipe's, and if it names none the family's, or a larger one
    where a step takes long, as on a GPU. `samples`: those that the training is planned to have."""
    rows, limits = setup.first_batch_rows, setup.batch_range
    if limits is None or not limits.is_free:
        return rows
    while _may_grow(rows, EARLY_PHI, limits) and 2 * rows * FIRST_STEPS <= samples:
        if _cost_ratio(2 * rows, rows, EARLY_PHI, limits.half_rows) > FIRST_COST:
            break
        rows *= 2
    return rows


def first_changes(setup: TrainingSetup, rows: int) -> tuple[PlanChange, ...]:
    """Return the change that leads to a first batch of `rows` rows, if it is not the family's."""
    usual, limits = setup.first_batch_rows, setup.batch_range
    if limits is None or rows == usual:
        return ()
    saved = 1 - _cost_ratio(rows, usual, EARLY_PHI, limits.half_rows)
    reason = (
        f"a step takes twice its fixed time with {limits.half_rows:,} rows, and the noise scale of the "
        f"gradient is soon {EARLY_PHI:g} rows or more: {rows:,} cost {saved:.0%} less"
    )
    return (PlanChange("batch", f"{usual:,} rows", f"{rows:,} rows", reason, rows),)


@dataclass(frozen=True, slots=True)
class BatchMoves:
    """The moves of the batch so far. `rows`: the batch after them. `wanted`: the factor that the last
    measurements call for, and `agreed`: their number."""

    rows: int
    wanted: float = 1.0
    agreed: int = 0

    def after(
        self, noise: NoiseScale, limits: BatchRange, is_early: bool
    ) -> tuple[BatchMoves, PlanChange | None]:
        """Return the moves after a measurement, and the change that it calls for, if any. `is_early`: in the
        first steps."""
        factor, best = _factor(self.rows, noise, limits), best_rows(noise.rows, limits.half_rows)
        is_far = self._is_far(noise, limits)
        if factor == 1 or (factor < 1 and is_early and not is_far):
            return replace(self, wanted=1.0, agreed=0), None
        agreed = self.agreed + 1 if factor == self.wanted else 1
        if agreed < LOOKS and not is_far:
            return replace(self, wanted=factor, agreed=agreed), None
        rows = round(self.rows * factor)
        high = "without end" if noise.high is None else f"{noise.high:,.0f}"
        saved = 1 - _cost_ratio(rows, self.rows, noise.rows, limits.half_rows)
        reason = (
            f"the noise scale of the gradient is {noise.rows:,.0f} rows ({noise.low:,.0f} to {high}), and a "
            f"step takes twice its fixed time with {limits.half_rows:,}: {best:,.0f} rows are best, and "
            f"{rows:,} cost {saved:.0%} less"
        )
        return BatchMoves(rows), PlanChange("batch", f"{self.rows:,} rows", f"{rows:,} rows", reason, rows)

    def _is_far(self, noise: NoiseScale, limits: BatchRange) -> bool:
        highest = math.inf if noise.high is None else best_rows(noise.high, limits.half_rows)
        lowest = best_rows(noise.low, limits.half_rows)
        return self.rows > FAR * highest or FAR * self.rows < lowest


def _factor(rows: int, noise: NoiseScale, limits: BatchRange) -> float:
    """Return 2, 1/2 or 1: the move that makes the training cheaper, at the noise scale and at the end of its
    interval that speaks against it."""
    if relative_cost(rows, noise.rows, limits.half_rows) <= NEAR:
        return 1.0
    for factor, against in ((2.0, noise.low), (0.5, noise.high)):
        other = rows * factor
        if not (_may_grow(rows, noise.rows, limits) if factor > 1 else other >= limits.min_rows):
            continue
        # An interval without an end speaks for large batches.
        known = () if against is None else (noise.rows, against)
        if known and all(_cost_ratio(other, rows, phi, limits.half_rows) < 1 for phi in known):
            return factor
    return 1.0


def _may_grow(rows: int, phi: float, limits: BatchRange) -> bool:
    return 2 * rows <= min(limits.noise_share * phi, limits.max_rows)


def _cost_ratio(other: float, rows: float, phi: float, half_rows: float) -> float:
    return relative_cost(other, phi, half_rows) / relative_cost(rows, phi, half_rows)
