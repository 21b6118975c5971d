"""Pareto pruning, compared with the definition: on few points and on thousands, one axis constant or none."""

from __future__ import annotations

import numpy as np
import pytest

from shoestring.routing.candidates import Flags, Ints
from shoestring.routing.planner.dag.labels import P95, Labels, thin_out, undominated_labels
from shoestring.routing.planner.partial_plans import (
    BLOCK_SIZE,
    GRID_MIN_POINTS,
    dominated_on_grid,
    undominated,
)

SIZES = (
    2,
    BLOCK_SIZE - 1,
    BLOCK_SIZE,
    BLOCK_SIZE + 1,
    3 * BLOCK_SIZE + 5,
    GRID_MIN_POINTS,
    GRID_MIN_POINTS + 1,
    1500,
)
SPREADS = (1, 3, 40, 10**5, 10**9)


def draw_points(seed: int, size: int, rows: int) -> Ints:
    """Return points whose rows trade against each other, so that many are undominated; [rows, points].

    Values are rounded to a drawn number of levels, so that some are equal, and lie on a drawn offset.
    """
    rng = np.random.default_rng([7, seed, size])
    angles = rng.random((rows, size)) + 0.05
    surface = angles / angles.sum(axis=0) * rng.choice([1.0, 1.0, 1.02], size)
    points = np.floor(surface * rng.choice(SPREADS, (rows, 1))) + rng.choice([0, 10**6], (rows, 1))
    return np.array(points[:, rng.integers(0, size, size)], dtype=np.int64)


def dominates(points: Ints, others: Ints) -> Flags:
    """Return which of the first points are no worse in any row and better in one; [points, others]."""
    no_worse = (points[:, :, None] <= others[:, None, :]).all(axis=0)
    better = (points[:, :, None] < others[:, None, :]).any(axis=0)
    found: Flags = no_worse & better
    return found


def undominated_points(points: Ints) -> list[tuple[int, ...]]:
    """Return the points that no other dominates, each once, in lexicographic order, by the definition."""
    unique = np.unique(points, axis=1)
    return [tuple(each) for each in unique[:, ~dominates(unique, unique).any(axis=0)].T.tolist()]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("seed", range(12))
def test_undominated_points_are_those_of_the_definition_at_every_size(seed: int, size: int) -> None:
    points = draw_points(seed, size, 3)
    kept = undominated(*points)
    assert [tuple(each) for each in points[:, kept].T.tolist()] == undominated_points(points)
    # Of equal points the first is kept.
    assert all((points[:, : int(each)] != points[:, [each]]).any(axis=0).all() for each in kept)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("seed", range(6))
def test_below_a_sufficient_amount_less_only_breaks_ties(seed: int, size: int) -> None:
    points = draw_points(seed, size, 3)
    micro, ms = (int(np.quantile(each, 0.4)) for each in points[1:])
    kept = undominated(*points, sufficient_micro=micro, sufficient_ms=ms)
    cost, p95, time = points
    raised = np.stack([cost, np.maximum(p95, micro), np.maximum(time, ms)])
    found = {tuple(each) for each in raised[:, kept].T.tolist()}
    assert found >= set(undominated_points(raised)) and len(found) == len(kept)
    order = np.lexsort(points[::-1])
    for each in kept:
        earlier = order[: int(np.flatnonzero(order == each)[0])]
        assert not (raised[:, earlier] <= raised[:, [each]]).all(axis=0).any()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("seed", range(6))
def test_a_grid_only_finds_dominated_points_and_finds_all_that_are_much_worse(seed: int, size: int) -> None:
    points, others = draw_points(seed, size, 3), draw_points(seed + 100, size, 3)
    by_others, by_all = dominates(others, points).any(axis=0), dominates(points, points).any(axis=0)
    assert not (dominated_on_grid(points, others) & ~by_others).any()
    assert not (dominated_on_grid(points, points) & ~by_all).any()
    # Plans that cost more and need much more of the rest are found at once.
    worse = points + 1 + np.ptp(points, axis=1, keepdims=True)
    assert dominated_on_grid(worse, points).all()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("seed", "rows"), [(seed, 3 + seed % 4) for seed in range(8)])
def test_undominated_labels_are_those_of_the_definition_at_every_size(
    seed: int, rows: int, size: int
) -> None:
    sums = draw_points(seed, size, rows)
    kept = undominated_labels(sums, timed=True)
    assert sorted(tuple(each) for each in sums[:, kept].T.tolist()) == undominated_points(sums)
    untimed = undominated_labels(sums, timed=False)
    assert [tuple(each) for each in sums[: P95 + 1, untimed].T.tolist()] == undominated_points(
        sums[: P95 + 1]
    )


@pytest.mark.parametrize(("seed", "rows"), [(seed, 3 + seed % 4) for seed in range(8)])
@pytest.mark.parametrize("maximum", [4, 40])
def test_thinned_labels_are_few_and_bound_all_others_from_below(seed: int, rows: int, maximum: int) -> None:
    sums = draw_points(seed, 600, rows)
    sums = sums[:, undominated_labels(sums, timed=True)]
    labels = Labels(sums, np.arange(sums.shape[1]))
    some = thin_out(labels, maximum, timed=True, optimistic=False)
    assert (some.sums == sums[:, some.trail]).all() and len(some.trail) <= maximum + rows
    assert (some.sums.min(axis=1) == sums.min(axis=1)).all()
    lowest = thin_out(labels, maximum, timed=True, optimistic=True).sums
    assert lowest.shape[1] <= maximum
    assert (lowest[:, :, None] <= sums[:, None, :]).all(axis=0).any(axis=0).all()
