"""The best plan of each candidate, and the order of plans.

A plan counts if it buys at least `min_samples`: the policy's share of the most samples that any plan buys. Of
the plans that count, the one with the lowest expected cost for each sample is best, then the one with more
samples. The others are ordered by samples, then by expected cost. Ties go to the lower P95 dollars, then to
the lower P95 time. All plans of a stage of fixed work have its samples, so there the lowest cost decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from shoestring.routing.candidates import Flags, Floats, Ints
from shoestring.routing.planner.partial_plans import UNBOUNDED

PPM = 1_000_000

NEAR = 1e-9
"""Prices of a sample that differ by this share or less are compared in whole numbers."""


COLUMNS = ("way", "samples", "est", "total", "needs_micro", "needs_ms")

MAX_INT = np.iinfo(np.int64).max


def share_of_samples(most: int, share_ppm: int) -> int:
    """Return the fewest samples that are at least this share of the most, in parts per million."""
    return -(-most * share_ppm // PPM)


def price_order(total: Ints, samples: Ints, other_total: Ints, other_samples: Ints) -> Ints:
    """Return -1, 0 or 1: whether the micro-dollars of a sample are less than, equal to or more than those of
    another plan. Exact.
    """
    ours, theirs = total * np.maximum(other_samples, 1.0), other_total * np.maximum(samples, 1.0)
    order: Ints = np.sign(ours - theirs).astype(np.int64)
    same = (total == other_total) & (samples == other_samples)
    order[same] = 0
    near = np.flatnonzero(~same & (np.abs(ours - theirs) <= NEAR * np.maximum(ours, theirs)))
    for at in near.tolist():
        difference = int(total[at]) * max(int(other_samples[at]), 1)
        difference -= int(other_total[at]) * max(int(samples[at]), 1)
        order[at] = (difference > 0) - (difference < 0)
    return order


@dataclass(slots=True)
class BestPlans:
    """One plan of each candidate: the best one.

    `way`: the index of its continuation, -1 where no plan fits and the other columns mean nothing. `samples`,
    `est`: of this stage. `total`: expected cost of the plan. `needs_*`: what the plan needs of money and of
    time at P95. `min_samples`: the fewest samples of a plan that counts; UNBOUNDED: none counts yet.
    """

    way: Ints
    samples: Ints
    est: Ints
    total: Ints
    needs_micro: Ints
    needs_ms: Ints
    min_samples: int = UNBOUNDED

    def at(self, rows: Ints) -> BestPlans:
        """Return the plans of these candidates."""
        way, samples, est, total, micro, ms = (getattr(self, name)[rows] for name in COLUMNS)
        return BestPlans(way, samples, est, total, micro, ms, self.min_samples)

    @property
    def most_samples(self) -> int:
        """The most samples that one of these plans buys; 0: there is no plan."""
        return int(self.samples[self.way >= 0].max(initial=0))

    @property
    def counts(self) -> Flags:
        """Whether each candidate's plan buys enough samples to be compared by its price."""
        return (self.way >= 0) & (self.samples >= self.min_samples)

    def price(self, row: int) -> Fraction:
        """Return the expected micro-dollars for each sample."""
        return Fraction(int(self.total[row]), max(int(self.samples[row]), 1))

    def take_better(self, rows: Ints, new: BestPlans) -> Flags:
        """Replace the plans of these candidates by new ones that are better; return which were replaced."""
        old = self.at(rows)
        better, same = self._compare(new, old)
        for name in ("total", "needs_micro", "needs_ms"):
            ours, theirs = getattr(new, name), getattr(old, name)
            better |= same & (ours < theirs)
            same &= ours == theirs
        better = (new.way >= 0) & (better | (old.way < 0))
        for name in COLUMNS:
            getattr(self, name)[rows[better]] = getattr(new, name)[better]
        return better

    def _compare(self, new: BestPlans, old: BestPlans) -> tuple[Flags, Flags]:
        """Return where new plans are better, and where they are equal, by samples and the price of one."""
        better, same = new.samples > old.samples, new.samples == old.samples
        both = (new.samples >= self.min_samples) & (old.samples >= self.min_samples) & ~same
        if both.any():
            order = price_order(new.total, new.samples, old.total, old.samples)
            better = np.where(both, (order < 0) | ((order == 0) & better), better)
        return better, same

    def first(self, but: int | None = None) -> int | None:
        """Return the best candidate other than `but`; None: there is none. Names decide the last tie."""
        able = self.way >= 0
        if but is not None:
            able[but] = False
        counts = able & (self.samples >= self.min_samples)
        if counts.any():
            able = counts & self._cheapest(np.flatnonzero(counts))
        able &= self.samples == np.where(able, self.samples, -1).max(initial=-1)
        able &= self.total == np.where(able, self.total, MAX_INT).min(initial=MAX_INT)
        rows = np.flatnonzero(able)
        for column in (self.needs_micro, self.needs_ms):
            if rows.size:
                rows = rows[column[rows] == column[rows].min()]
        return int(rows[0]) if rows.size else None

    def _cheapest(self, rows: Ints) -> Flags:
        """Return which candidates have the lowest cost for each sample among these rows."""
        found = np.zeros(len(self.way), dtype=np.bool_)
        if (self.samples[rows] == self.samples[rows[0]]).all():
            found[rows[self.total[rows] == self.total[rows].min()]] = True
            return found
        prices: Floats = self.total[rows] / np.maximum(self.samples[rows], 1)
        rows = rows[prices <= prices.min() * (1 + NEAR)]
        pairs = np.stack([self.total[rows], np.maximum(self.samples[rows], 1)])
        kinds, kind = np.unique(pairs, axis=1, return_inverse=True)
        exact = [Fraction(total, samples) for total, samples in kinds.T.tolist()]
        lowest = np.array([each == min(exact) for each in exact])
        found[rows[lowest[kind.reshape(-1)]]] = True
        return found
