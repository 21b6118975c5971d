"""Properties of the charts: tick labels are distinct, and only finite numbers are drawn."""

from __future__ import annotations

import itertools
import math

from hypothesis import example, given
from hypothesis import strategies as st

from shoestring.reporting.html.charts import (
    CalibrationPoint,
    LossPlot,
    MetricInterval,
    PhaseBand,
    bands,
    calibration,
    dollar_labels,
    dots_and_whiskers,
    loss_chart,
    number_labels,
    padded_range,
    ticks,
)

NUMBERS = st.floats(-1e12, 1e12, allow_nan=False).filter(lambda number: number == 0 or abs(number) > 1e-9)
LOSSES = st.one_of(st.floats(0, 100), st.sampled_from([math.nan, math.inf, 1e300]))
DOLLARS = st.integers(0, 10**11).map(lambda micro: micro / 1e6)
POINTS = st.lists(st.tuples(DOLLARS, LOSSES), max_size=30).map(
    lambda points: tuple(sorted(points, key=lambda point: point[0]))
)


@given(NUMBERS, NUMBERS, st.integers(2, 10))
@example(-1e12, -999999999999.9999, 3)
def test_ticks_are_few_evenly_spaced_and_inside(one: float, other: float, max_count: int) -> None:
    low, high = padded_range([one, other])
    marks = ticks(low, high, max_count)
    assert len(marks) <= max_count
    steps = [b - a for a, b in itertools.pairwise(marks)]
    width = high - low
    assert all(math.isclose(step, steps[0], rel_tol=1e-6, abs_tol=1e-9 * width) for step in steps)
    assert all(low - 1e-6 * width <= mark <= high + 1e-6 * width for mark in marks)


@given(st.floats(1e-6, 1e6), st.integers(3, 10))
def test_tick_labels_are_distinct(high: float, max_count: int) -> None:
    for labels_of in (number_labels, dollar_labels):
        marks = ticks(0.0, high, max_count)
        labels = [labels_of(marks)(mark) for mark in marks]
        assert len(set(labels)) == len(labels)


@given(
    st.lists(
        st.tuples(st.integers(0, 1000), st.sampled_from(["warm-up", "stable", "decay"])),
        min_size=1,
        max_size=20,
    )
)
def test_bands_cover_the_whole_range_in_order(points: list[tuple[int, str]]) -> None:
    phases = [(float(at), name) for at, name in sorted(points)]
    found = bands(phases, 1000.0)
    assert (found[0].start, found[-1].end) == (phases[0][0], 1000.0)
    assert all(one.end == other.start and one.name != other.name for one, other in itertools.pairwise(found))


@given(POINTS, POINTS, DOLLARS)
def test_a_loss_chart_draws_numbers_only(
    train: tuple[tuple[float, float], ...], validation: tuple[tuple[float, float], ...], stop: float
) -> None:
    plot = LossPlot(
        train=train,
        validation=validation,
        bands=(PhaseBand("stable", 0.0, stop),),
        stop_usd=stop,
        description="loss",
    )
    drawn = loss_chart("loss", "loss", plot, 354, 300)
    assert "nan" not in drawn
    assert "inf" not in drawn


@given(st.lists(st.tuples(NUMBERS, st.one_of(st.none(), st.floats(0, 10))), min_size=1, max_size=5))
def test_every_scored_model_is_drawn_with_its_value(scores: list[tuple[float, float | None]]) -> None:
    measured = [
        MetricInterval(
            f"number {at}",
            value,
            None if by is None else value - by,
            None if by is None else value + by,
            is_model=at == 0,
        )
        for at, (value, by) in enumerate(scores)
    ]
    drawn = dots_and_whiskers("dots", "scores", measured, lambda value: f"{value:.4g}")
    assert drawn.count("<circle") == len(measured)
    assert "nan" not in drawn


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.integers(0, 10**9)), max_size=15))
def test_calibration_stays_inside_its_square(found: list[tuple[float, float, int]]) -> None:
    drawn = calibration(
        "calibration", "calibration", [CalibrationPoint(*each, low=each[1], high=each[1]) for each in found]
    )
    assert drawn.count("<circle") == len(found)
    assert "nan" not in drawn
