"""The noise of the gradient, from steps of two batches whose gradients are compared, and its interval.

With g1 and g2 the mean gradients of two batches of b rows each, G the mean gradient and S the covariance of
the gradient of a row:

    E[g1 . g2] = |G|^2        E[b |g1 - g2|^2 / 2] = tr S        phi = tr S / |G|^2, in rows

(McCandlish et al. 2018, arXiv 1812.06162, appendix A.1). Both are averaged apart, since a
mean of ratios is far from the ratio of means, and phi is the quotient. Its interval is Fieller's: of all phi
for which tr S - phi |G|^2 is not significantly different from zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

from shoestring.training.curve import Halves, NoiseScale

AGING = 3
"""A measurement weighs the third power of the share of the training so far that came before it: at half, an
eighth. The gradient becomes smaller during a training, so old measurements read phi too low."""

LEAST_MEASUREMENTS = 6
"""With fewer, phi has no interval."""

MEASURED_STEPS = 0.5
"""Steps that a measured one costs, at most. It has twice the batch, so it takes the time of two steps, and
learns a little less (bench/noise_scale.py)."""

DENSE_EVERY, LATER_EVERY = 13, 75
"""One step in 13 is measured at first, and later one in 75. At `MEASURED_STEPS` that costs 4% and 0.7%."""

DENSE_STEPS = 20 * DENSE_EVERY
"""The first steps: twenty measurements are enough for an interval that tells two batches apart."""

MEASURED_BEFORE_END = 20
"""Steps of two batches for which there has to be time before one is made: the guard expects those of one."""

LEAST_STEPS = 1_000
"""Measuring these costs 1.5% of them. Shorter trainings measure nothing."""


@dataclass(frozen=True, slots=True)
class GradientNoise:
    """The measurements of a training so far, older ones with less weight.

    `dense_until`: the samples until which more steps are measured; 0: none ever is. `is_short`: the budget
    buys too few steps to measure any. `weight` and the sums that follow are weighted by age: of the squared
    weights, of |G|^2 and tr S, of their squares, and of their product.
    """

    dense_until: int = 0
    is_short: bool = False
    measurements: int = 0
    seen: int = 0
    weight: float = 0.0
    squared_weight: float = 0.0
    signal: float = 0.0
    noise: float = 0.0
    signal_2: float = 0.0
    noise_2: float = 0.0
    both: float = 0.0

    @classmethod
    def start(cls, batch_rows: int, most_samples: int, planned_samples: int) -> Self:
        """Return the noise before the first step. `most_samples`: those of the recipe; `planned_samples`:
        those that the budget should buy."""
        least = LEAST_STEPS * batch_rows
        return cls(DENSE_STEPS * batch_rows if most_samples >= least else 0, planned_samples < least)

    def is_due(self, samples: int, batch_rows: int) -> bool:
        """Return True for a step that begins after these samples if a long training measures it. The first
        ones are not: their preconditioner is that of a few rows."""
        every = (DENSE_EVERY if self.is_dense(samples) else LATER_EVERY) * batch_rows
        return self.dense_until > 0 and samples >= every and samples % every < batch_rows

    def is_dense(self, samples: int) -> bool:
        """Return True in the first steps, of which more are measured."""
        return samples < self.dense_until

    def after(self, found: Iterable[Halves]) -> Self:
        """Return the noise with more measurements. What is not finite changes nothing."""
        now = self
        for each in found:
            if each.is_finite:
                now = now._after(each)
        return now

    def _after(self, halves: Halves) -> Self:
        keep = min(1.0, self.seen / halves.seen) ** AGING if halves.seen else 1.0
        x, y = halves.signal, halves.noise
        return replace(
            self,
            measurements=self.measurements + 1,
            seen=halves.seen,
            weight=keep * self.weight + 1,
            squared_weight=keep * keep * self.squared_weight + 1,
            signal=keep * self.signal + x,
            noise=keep * self.noise + y,
            signal_2=keep * self.signal_2 + x * x,
            noise_2=keep * self.noise_2 + y * y,
            both=keep * self.both + x * y,
        )

    @property
    def scale(self) -> NoiseScale | None:
        """phi; None: there are too few measurements, or the gradient is lost in its noise."""
        if self.measurements < LEAST_MEASUREMENTS:
            return None
        signal, noise = self.signal / self.weight, self.noise / self.weight
        # The variance of a weighted mean, from the weighted variance of what it is of, and its degrees of
        # freedom: those of as many equal weights with this sum of squares.
        share = self.squared_weight / self.weight**2
        freedom = 1 / share - 1
        share /= 1 - share
        signal_var = max(0.0, self.signal_2 / self.weight - signal * signal) * share
        noise_var = max(0.0, self.noise_2 / self.weight - noise * noise) * share
        covariance = (self.both / self.weight - signal * noise) * share
        found = quotient(noise, signal, noise_var, signal_var, covariance, student_quantile(freedom))
        return None if found is None else NoiseScale(*found, self.measurements)


NOT_MEASURED = GradientNoise()


def student_quantile(freedom: float) -> float:
    """Return the end of Student's interval of 95%: within 1% from 3 degrees of freedom on (Abramowitz and
    Stegun 1964, 26.7.5)."""
    z = 1.959964
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum(term / freedom**power for power, term in enumerate(terms, 1))


def quotient(
    y: float, x: float, y_var: float, x_var: float, covariance: float, quantile: float
) -> tuple[float, float, float | None] | None:
    """Return y / x of two means above zero, with the interval of Fieller (1954): low end and high end, None:
    without end. None: it may be anything, or nothing above zero. `quantile`: of the distribution of the
    means, for the interval."""
    if x <= 0 or y < 0:
        return None
    a = x * x - quantile**2 * x_var
    b = x * y - quantile**2 * covariance
    c = y * y - quantile**2 * y_var
    root = b * b - a * c
    if root < 0:
        return None
    # The ends are the roots of a q^2 - 2 b q + c. With a <= 0, x may be zero: large q are all possible.
    low = max(0.0, c / (b + math.sqrt(root))) if b + math.sqrt(root) > 0 else 0.0
    high = (b + math.sqrt(root)) / a if a > 0 else None
    return y / x, min(low, y / x), high
