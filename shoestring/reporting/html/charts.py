"""The report's charts, as SVG that takes its colours from the style of the page.

Shapes: a point is (x, y) in data units. The width and height of a chart are in px, margins included.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from shoestring.reporting.html.markup import Html, tag, text

Point = tuple[float, float]
MAX_PX = 1e5  # points further off the chart are drawn here, such as a loss of 1e300
LETTER_PX = 6.2  # mean width of a letter of the 11 px labels
SMALLEST_WIDTH = 1e-12  # of an axis, in data units


@dataclass(frozen=True, slots=True)
class AxisScale:
    """A linear scale from data units to px."""

    low: float
    high: float
    start_px: float
    end_px: float

    def __call__(self, value: float) -> float:
        px = self.start_px + (value - self.low) / (self.high - self.low) * (self.end_px - self.start_px)
        return round(max(-MAX_PX, min(MAX_PX, px)), 1)


@dataclass(frozen=True, slots=True)
class MetricInterval:
    """A value with its interval. `is_model` marks the model that is evaluated; the others are baselines."""

    name: str
    value: float
    low: float | None
    high: float | None
    is_model: bool


@dataclass(frozen=True, slots=True)
class PhaseBand:
    """A named interval on the x axis: a phase of training."""

    name: str
    start: float
    end: float


def ticks(low: float, high: float, max_count: int) -> list[float]:
    """Return at most `max_count` round numbers inside [low, high]: multiples of 1, 2 or 5 times a power of
    ten.
    """
    rough = (high - low) / max(1, max_count - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [index * step for index in range(first, last + 1)]


def padded_range(values: Iterable[float], pad: float = 0.06) -> tuple[float, float]:
    """Return the range of the finite values, widened by `pad`, so that floats can tell its ticks apart."""
    finite = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    low, high = min(finite), max(finite)
    width, magnitude = high - low, max(abs(low), abs(high))
    flat_margin = magnitude * 0.1 if magnitude > SMALLEST_WIDTH else 1.0
    margin = width * pad if width > max(magnitude * 1e-8, SMALLEST_WIDTH) else flat_margin
    return low - margin, high + margin


def decimals(marks: Sequence[float]) -> int:
    """Return the number of decimals that distinguishes these ticks."""
    step = min((abs(b - a) for a, b in pairwise(marks)), default=abs(marks[0]) if marks else 1.0)
    return max(0, min(8, -math.floor(math.log10(step) + 1e-9))) if step > 0 else 0


def number_labels(marks: Sequence[float]) -> Callable[[float], str]:
    places = decimals(marks)
    return lambda mark: f"{mark:,.{places}f}" if abs(mark) < 1e7 else f"{mark:.3g}"


def dollar_labels(marks: Sequence[float]) -> Callable[[float], str]:
    """Return the labels of dollar ticks. They are only drawn: no amount is computed from these floats."""
    places = decimals(marks)
    return lambda mark: f"${mark:,.{places if places == 0 else max(2, places)}f}" if mark else "$0"


def svg(key: str, title: str, description: str, width: int, height: int, *marks: object) -> Html:
    names = f"{key}-title {key}-desc"
    head = (tag("title", title, id=f"{key}-title"), tag("desc", description, id=f"{key}-desc"))
    return tag("svg", *head, *marks, viewBox=f"0 0 {width} {height}", role="img", aria_labelledby=names)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Html:
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def label(x: float, y: float, content: object, anchor: str = "start", class_: str | None = None) -> Html:
    return tag("text", content, x=x, y=y, text_anchor=anchor, class_=class_)


def x_axis(
    scale: AxisScale,
    marks: Sequence[float],
    number_text: Callable[[float], str],
    top_px: float,
    bottom_px: float,
) -> Html:
    lines = (line(scale(mark), top_px, scale(mark), bottom_px, "grid") for mark in marks)
    return text(*lines, *(label(scale(mark), bottom_px + 16, number_text(mark), "middle") for mark in marks))


def y_axis(
    scale: AxisScale,
    marks: Sequence[float],
    number_text: Callable[[float], str],
    left_px: float,
    right_px: float,
) -> Html:
    lines = (line(left_px, scale(mark), right_px, scale(mark), "grid") for mark in marks)
    return text(*lines, *(label(left_px - 8, scale(mark) + 4, number_text(mark), "end") for mark in marks))


def path(points: Iterable[Point], x: AxisScale, y: AxisScale, class_: str) -> Html | None:
    """Return a line through the finite points, or None if there are fewer than two."""
    finite_points = [(x(a), y(b)) for a, b in points if math.isfinite(a) and math.isfinite(b)]
    if len(finite_points) < 2:
        return None
    return tag("path", d="M" + "L".join(f"{a},{b}" for a, b in finite_points), class_=class_)


def dots_and_whiskers(
    key: str, title: str, measured: Sequence[MetricInterval], number_text: Callable[[float], str]
) -> Html:
    """Return one row per model on a common axis: name and value above, interval and dot below."""
    width, row_px, top = 360, 46, 4
    ends = [end for each in measured for end in (each.value, each.low, each.high) if end is not None]
    x = AxisScale(*padded_range(ends, 0.08), 6, width - 6)
    bottom = top + row_px * len(measured)
    marks = ticks(x.low, x.high, 5)
    rows = []
    for index, each in enumerate(measured):
        y, kind = top + row_px * index + 32, "model" if each.is_model else "baseline"
        rows += [line(x(mark), y - 9, x(mark), y + 9, "grid") for mark in marks]
        rows += [
            label(0, y - 16, each.name, class_=f"name {kind}"),
            label(width, y - 16, number_text(each.value), "end", f"value {kind}"),
        ]
        if each.low is not None and each.high is not None:
            rows += [line(x(each.low), y, x(each.high), y, f"whisker {kind}")]
            rows += [line(x(end), y - 4, x(end), y + 4, f"whisker {kind}") for end in (each.low, each.high)]
        rows.append(tag("circle", cx=x(each.value), cy=y, r=5, class_=f"dot {kind}"))
    description = "; ".join(
        f"{each.name} {number_text(each.value)}" + _interval(each, number_text) for each in measured
    )
    return svg(
        key,
        title,
        description,
        width,
        bottom + 26,
        x_axis(x, marks, number_labels(marks), bottom, bottom),
        *rows,
    )


def _interval(each: MetricInterval, number_text: Callable[[float], str]) -> str:
    return (
        ""
        if each.low is None or each.high is None
        else f" ({number_text(each.low)} to {number_text(each.high)})"
    )


@dataclass(frozen=True, slots=True)
class CalibrationPoint:
    """Rows with similar predicted probability. `low` and `high` are the interval of the observed share."""

    predicted: float
    observed: float
    rows: int
    low: float | None = None
    high: float | None = None


def calibration(key: str, title: str, bins: Sequence[CalibrationPoint]) -> Html:
    """Return predicted against observed shares, with the diagonal; the area of a dot is its share of the
    rows.
    """
    width, height, left, top, bottom = 360, 320, 48, 12, 276
    max_count = max((max(each.predicted, each.observed, each.high or 0.0) for each in bins), default=1.0)
    limit = min(1.0, math.ceil(max_count * 10.4) / 10) or 1.0
    x, y = AxisScale(0, limit, left, width - 12), AxisScale(0, limit, bottom, top)
    marks = ticks(0, limit, 6)
    total = sum(each.rows for each in bins) or 1
    drawn = []
    for each in bins:
        if each.low is not None and each.high is not None:
            drawn.append(
                line(x(each.predicted), y(each.low), x(each.predicted), y(each.high), "whisker model")
            )
        radius = round(max(2.5, 12 * math.sqrt(each.rows / total)), 1)
        drawn.append(tag("circle", cx=x(each.predicted), cy=y(each.observed), r=radius, class_="dot model"))
    axes = (
        x_axis(x, marks, number_labels(marks), top, bottom),
        y_axis(y, marks, number_labels(marks), left, width - 12),
    )
    names = (
        label(width - 12, bottom + 36, "predicted", "end", "axis"),
        label(left + 6, top + 12, "observed", class_="axis"),
    )
    description = "; ".join(
        f"{each.predicted:.3f} predicted, {each.observed:.3f} observed, {each.rows} rows" for each in bins
    )
    return svg(
        key,
        title,
        description,
        width,
        height,
        *axes,
        line(x(0), y(0), x(limit), y(limit), "agree"),
        *drawn,
        *names,
    )


@dataclass(frozen=True, slots=True)
class LossPlot:
    """The data of a plot of loss against dollars, without its size."""

    train: tuple[Point, ...]
    validation: tuple[Point, ...]
    bands: tuple[PhaseBand, ...]
    stop_usd: float
    description: str


def bands(phases: Sequence[tuple[float, str]], end: float) -> tuple[PhaseBand, ...]:
    """Return neighbouring points of one phase as one band, up to the start of the next."""
    runs = [(name, next(run)[0]) for name, run in groupby(phases, key=lambda point: point[1])]
    stops = [start for _, start in runs[1:]] + [end]
    return tuple(
        PhaseBand(name, start, stop) for (name, start), stop in zip(runs, stops, strict=True) if name
    )


def loss_chart(key: str, title: str, plot: LossPlot, width: int, height: int) -> Html:
    left, right, top, bottom = 52, width - 24, 28, height - 42
    x = AxisScale(0.0, plot.stop_usd * 1.03 or 1.0, left, right)
    y = AxisScale(*loss_span(plot), bottom, top)
    x_marks, y_marks = ticks(x.low, x.high, max(4, width // 110)), ticks(y.low, y.high, 6)
    shades = [_band(band, x, top, bottom, index) for index, band in enumerate(plot.bands)]
    axes = (
        x_axis(x, x_marks, dollar_labels(x_marks), bottom, bottom),
        y_axis(y, y_marks, number_labels(y_marks), left, right),
    )
    inside = tag(
        "clipPath", tag("rect", x=left, y=top, width=right - left, height=bottom - top), id=f"{key}-clip"
    )
    lines = tag(
        "g",
        path(plot.train, x, y, "train"),
        path(plot.validation, x, y, "validation"),
        clip_path=f"url(#{key}-clip)",
    )
    end = line(x(plot.stop_usd), top, x(plot.stop_usd), bottom, "stop")
    names = label(right, height - 6, "dollars spent by this stage", "end", "axis")
    return svg(key, title, plot.description, width, height, inside, *shades, *axes, lines, end, names)


def loss_span(plot: LossPlot) -> tuple[float, float]:
    """Return the range of all validation losses and the lower 98% of training losses.

    The first few batches would otherwise flatten the rest.
    """
    train = sorted(loss for _, loss in plot.train if math.isfinite(loss))
    return padded_range(
        [*train[: max(1, math.floor(len(train) * 0.98))], *(loss for _, loss in plot.validation)]
    )


def _band(band: PhaseBand, x: AxisScale, top: float, bottom: float, index: int) -> Html:
    start, end = x(band.start), x(band.end)
    fits = len(band.name) * LETTER_PX + 8 <= end - start
    width = round(max(0.0, end - start), 1)
    shade = tag("rect", x=start, y=top, width=width, height=bottom - top, class_=f"band band{index % 2}")
    return text(
        shade, label(round((start + end) / 2, 1), top - 8, band.name, "middle", "band-name") if fits else None
    )
