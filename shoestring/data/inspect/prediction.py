"""Estimate how well one column alone predicts the target of a sample, without fitting a model.

All errors are those of rows that are predicted from other rows, so that unique values predict nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shoestring.data.inspect.columns import Codes, Flags, Numbers, SampleColumn, SampleTarget

MIN_ROWS = 30
"""With fewer rows with a target, nothing is concluded."""

MIN_FILLED = 0.2
"""With values in a smaller share of these rows, nothing is concluded."""

MIN_OTHER_ROWS = 5
"""With fewer rows outside the most frequent class, nothing is concluded."""

MIN_ROWS_PER_VALUE = 3
"""A column is compared value by value when its values have at least this many rows on average."""

MAX_COARSE_VALUES = 20
"""A column with at most this many values may be a number that was put into classes."""


def explained_share(column: SampleColumn, target: SampleTarget) -> float:
    """Return the share of the target's error that the column alone removes, from 0 to 1.

    Only rows where the column has a value count. For classes it is the error of always predicting the most
    frequent one; for numbers the variance of their ranks.
    """
    if (rows := _common_rows(column, target)) is None:
        return 0.0
    x, numbers = column.codes[rows], None if column.numbers is None else column.numbers[rows]
    if target.numbers is None:
        return max(0.0, _explained_classes(x, numbers, target.codes[rows]))
    return max(0.0, _explained_ranks(x, numbers, _ranks(target.numbers[rows])))


def ordered_share(column: SampleColumn, target: SampleTarget) -> float:
    """Return how closely the few values of a column follow the order of a numeric target, from 0 to 1.

    It is 1, less one part for each change of the value from a row to the next, for a number that was put into
    classes.
    """
    rows = _common_rows(column, target)
    if rows is None or target.numbers is None or not 2 <= len(column.values) <= MAX_COARSE_VALUES:
        return 0.0
    x = column.codes[rows]
    return max(0.0, _error_removed(_neighbour_error(target.numbers[rows], x), x))


def _common_rows(column: SampleColumn, target: SampleTarget) -> Flags | None:
    """Return the rows where both have a value; None: they are too few."""
    rows = target.known & column.filled
    return rows if rows.sum() >= max(MIN_ROWS, MIN_FILLED * target.known.sum()) else None


def _explained_classes(x: Codes, numbers: Numbers | None, classes: Codes) -> float:
    counts = np.bincount(classes)
    if len(classes) - counts.max() < MIN_OTHER_ROWS:
        return 0.0
    errors = [_value_error(x, classes)] if _has_repeats(x) else []
    if numbers is not None:
        errors.append(_neighbour_error(numbers, classes))
    return max((_error_removed(error, classes) for error in errors), default=0.0)


def _explained_ranks(x: Codes, numbers: Numbers | None, ranks: Numbers) -> float:
    variance = float(ranks.var())
    if not variance:
        return 0.0
    shares = []
    if _has_repeats(x):
        residual = ranks - _mean_of_others(x, ranks)
        shares.append(1 - float((residual**2).mean()) / variance)
    if numbers is not None:
        ordered = ranks[_order(numbers)]
        residual = ordered[1:-1] - (ordered[:-2] + ordered[2:]) / 2
        # The mean of two neighbours adds half the variance of the noise to that of the row itself.
        shares.append(1 - float((residual**2).mean()) / 1.5 / variance)
    return max(shares, default=0.0)


def _has_repeats(codes: Codes) -> bool:
    return len(codes) >= MIN_ROWS_PER_VALUE * len(np.unique(codes))


def _error_removed(error: float, classes: Codes) -> float:
    counts = np.bincount(classes - classes.min())
    base = 1 - counts.max() / len(classes)
    return 1 - error / base if base and len(classes) - counts.max() >= MIN_OTHER_ROWS else 0.0


def _value_error(x: Codes, classes: Codes) -> float:
    """Return the share of rows whose class is not the most frequent of the others with their value."""
    pairs, pair_of_row, counts = np.unique(
        x * (int(classes.max()) + 1) + classes, return_inverse=True, return_counts=True
    )
    groups = pairs // (int(classes.max()) + 1)
    first, second = _top_two(groups, counts)
    others = np.where(counts == first[groups], second[groups], first[groups])
    wrong = (counts - 1 < others) | (counts == 1)
    return float(wrong[pair_of_row].mean())


def _top_two(groups: Codes, counts: Codes) -> tuple[Codes, Codes]:
    """Return the largest and the second largest count of each group, by the group's number."""
    first, second = np.zeros((2, int(groups.max()) + 1), np.int64)
    order = np.lexsort((counts, groups))
    ordered, numbers = groups[order], counts[order]
    last = np.append(ordered[1:] != ordered[:-1], True)
    first[ordered[last]] = numbers[last]
    before = np.flatnonzero(last) - 1
    before = before[(before >= 0) & (ordered[before] == ordered[np.minimum(before + 1, len(ordered) - 1)])]
    second[ordered[before]] = numbers[before]
    return first, second


def _neighbour_error(numbers: Numbers, classes: Codes) -> float:
    """Return half the share of rows whose class differs from the one before, in the order of the numbers.

    A wrong class among right ones makes two differences, and a limit between two classes one.
    """
    ordered = classes[_order(numbers)]
    return float((ordered[1:] != ordered[:-1]).mean()) / 2 if len(ordered) > 1 else 0.0


def _mean_of_others(x: Codes, values: Numbers) -> Numbers:
    """Return the mean of the other rows with the same value; of a single row the mean of all."""
    counts, sums = np.bincount(x), np.bincount(x, weights=values)
    others = counts[x] - 1
    found: Numbers = np.where(others > 0, (sums[x] - values) / np.maximum(others, 1), float(values.mean()))
    return found


def _order(numbers: Numbers) -> Codes:
    """Return the order of the numbers; equal ones are in a random order, which depends on nothing."""
    return np.lexsort((np.random.default_rng(0).permutation(len(numbers)), numbers))


def _ranks(numbers: Numbers) -> Numbers:
    """Return the rank of each number; equal ones share their mean rank."""
    _, groups, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    found: Numbers = (ends - (counts - 1) / 2)[groups].astype(np.float64)
    return found


def rank_correlation(first: Numbers, second: Numbers) -> float:
    """Return Spearman's correlation; 0 where one of them is constant."""
    a, b = _ranks(first), _ranks(second)
    return float(np.corrcoef(a, b)[0, 1]) if a.std() and b.std() else 0.0


def purity(side: Flags, classes: Codes) -> tuple[float, float, int]:
    """Return the share of the most frequent class among the rows of one side, its share in all rows, and its
    code.
    """
    counts: Any = np.bincount(classes[side])
    top = int(counts.argmax())
    return float(counts[top] / side.sum()), float((classes == top).mean()), top
