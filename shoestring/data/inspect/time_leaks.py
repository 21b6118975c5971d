"""Name a column that is filled in only after the target is known, by where it is missing or by its dates."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np

from shoestring.data.inspect.columns import Codes, Flags, SampleColumn, SampleTarget
from shoestring.data.inspect.prediction import MIN_ROWS, purity, rank_correlation

MIN_PURE = 0.975
"""The share of one class among the rows with (or without) a value that is taken for a leak."""

MAX_ERROR_RATIO = 0.1
"""These rows may hold other classes by at most this fraction of what all rows hold."""

MIN_NATS = 21.0
"""By chance, as many rows of one class have a value with a probability below e^-21, or 1 in 10^9."""

MIN_SIDE_ROWS = 20
MAX_PERIODS = 3
"""A column that starts or ends being filled in at most this often follows the order of the rows, such as the
time, and not the number that is to be predicted.
"""

MIN_UNKNOWN_ROWS = 5

MIN_LATER = 0.99
"""The share of rows in which a date is later than the row's other dates."""

MIN_GAP_CORRELATION = 0.3
"""The correlation of ranks, of the time after the other dates with the target."""

LATE_NAME = re.compile(
    r"clos|end|finish|complet|resolv|cancel|churn|return|refund|paid|settl|deliver|death|died|discharg|"
    r"outcome|updat|modif|default|repaid|terminat|left|actual",
    re.I,
)
"""Words in the name of a date that follows an outcome."""

MICROSECONDS_A_DAY = 86_400e6


def null_leak(column: SampleColumn, columns: Sequence[SampleColumn], target: SampleTarget) -> str:
    """Return how the missing values of a column give the target away; empty: they do not."""
    return _known_with_target(column, columns, target) or _pure_side(column, target)


def _known_with_target(column: SampleColumn, columns: Sequence[SampleColumn], target: SampleTarget) -> str:
    """Return a sentence if the column is missing where the target is, unless the whole row is."""
    unknown = ~target.known
    if unknown.sum() < MIN_UNKNOWN_ROWS or target.known.sum() < MIN_ROWS:
        return ""

    def follows(each: SampleColumn) -> bool:
        known_share, unknown_share = each.filled[target.known].mean(), each.filled[unknown].mean()
        return bool(unknown_share <= 1 - MIN_PURE and known_share >= MIN_PURE)

    if not follows(column) or 2 * sum(map(follows, columns)) > len(columns):
        return ""
    return (
        f"missing in {int((~column.filled & unknown).sum()):,} of the "
        f"{int(unknown.sum()):,} rows read without {target.name}, and filled in with it"
    )


def _pure_side(column: SampleColumn, target: SampleTarget) -> str:
    """Return a sentence if the rows with a value, or those without one, are of one class."""
    filled = column.filled[target.known]
    if target.numbers is not None and int((filled[1:] != filled[:-1]).sum()) <= MAX_PERIODS:
        return ""
    for labels, names in _labels(target):
        for side, where in ((filled, "filled in"), (~filled, "missing")):
            if side.sum() < MIN_SIDE_ROWS or side.all():
                continue
            share, base, top = purity(side, labels)
            if share < MIN_PURE or (1 - share) > MAX_ERROR_RATIO * (1 - base):
                continue
            if side.sum() * _divergence(share, base) >= MIN_NATS:
                return (
                    f"{target.name} is {names[top]} in {100 * share:.1f}% of the "
                    f"{int(side.sum()):,} rows read where it is {where}, and in {100 * base:.1f}% of "
                    "all rows"
                )
    return ""


def _labels(target: SampleTarget) -> Sequence[tuple[Codes, tuple[str, ...]]]:
    """Return the classes of the rows with a target; of numbers, whether they are above a quartile, and
    whether they are the most frequent one.
    """
    if target.numbers is None:
        return [(target.codes[target.known], target.classes)]
    numbers = target.numbers[target.known]
    values, counts = np.unique(numbers, return_counts=True)
    mode = float(values[counts.argmax()])
    found = [((numbers != mode).astype(np.int64), (f"{mode:g}", f"not {mode:g}"))]
    for limit in np.quantile(numbers, [0.25, 0.5, 0.75]):
        found.append(((numbers > limit).astype(np.int64), (f"at most {limit:g}", f"above {limit:g}")))
    return found


def _divergence(share: float, base: float) -> float:
    """Return the Kullback-Leibler divergence of two Bernoulli distributions, in nats."""
    if base >= 1:
        return 0.0
    rest = (1 - share) * math.log((1 - share) / (1 - base)) if share < 1 else 0.0
    return share * math.log(share / base) + rest


def date_leak(column: SampleColumn, columns: Sequence[SampleColumn], target: SampleTarget) -> str:
    """Return a sentence if a date follows the row's other dates and depends on the outcome.

    It depends on it when its name implies it, when it is missing more often than the other dates, or when
    the time after them is correlated with the target.
    """
    others = [each for each in columns if each.is_date and each.name != column.name]
    if not column.is_date or not others or column.numbers is None:
        return ""
    latest = np.fmax.reduce([each.numbers for each in others if each.numbers is not None])
    both = column.filled & ~np.isnan(latest)
    if both.sum() < MIN_ROWS:
        return ""
    gap = column.numbers[both] - latest[both]
    if (gap >= 0).mean() < MIN_LATER or (gap > 0).mean() < 0.5:
        return ""
    if not (reason := _dependence(column, others, gap, both, target)):
        return ""
    return (
        f"later than {', '.join(each.name for each in others[:3])} in "
        f"{100 * (gap >= 0).mean():.1f}% of {int(both.sum()):,} rows read, by "
        f"{float(np.median(gap)) / MICROSECONDS_A_DAY:,.1f} days in the median, and {reason}"
    )


def _dependence(
    column: SampleColumn,
    others: Sequence[SampleColumn],
    gap: np.ndarray[tuple[int], np.dtype[np.float64]],
    both: Flags,
    target: SampleTarget,
) -> str:
    """Return why a later date depends on the outcome; empty: nothing shows it."""
    if LATE_NAME.search(column.name):
        return "its name implies an outcome"
    missing = int((~column.filled).sum())
    if missing >= MIN_SIDE_ROWS and all(2 * int((~each.filled).sum()) < missing for each in others):
        return f"missing in {missing:,} rows where they are filled in"
    known = target.known[both]
    for labels, _ in [*_labels(target), *_single_classes(target)]:
        outcome = labels.astype(np.float64)[both[target.known]]
        if known.sum() >= MIN_ROWS and abs(rank_correlation(gap[known], outcome)) >= MIN_GAP_CORRELATION:
            return f"the time between depends on {target.name}"
    return ""


def _single_classes(target: SampleTarget) -> list[tuple[Codes, tuple[str, ...]]]:
    """Return whether each row is of a class, for each of the first ten classes."""
    classes = target.codes[target.known]
    return [
        ((classes == code).astype(np.int64), ())
        for code in range(min(len(target.classes), 10) if target.numbers is None else 0)
    ]
