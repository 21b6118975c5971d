"""The report's loss curve: loss against dollars, the phases of training, and where it stopped and why."""

from __future__ import annotations

from shoestring.reporting import number_text
from shoestring.reporting.html.charts import LossPlot, bands, loss_chart
from shoestring.reporting.html.markup import Html, tag, text
from shoestring.reporting.run_story import Attempt, RunStory
from shoestring.training.curve import CurvePoint, TrainingCurve

MAX_POINTS = 600
WIDE, NARROW = (1016, 340), (354, 300)


def curve_section(story: RunStory) -> Html | None:
    """None when nothing was trained."""
    curve = story.curve
    if curve is None or not curve.points:
        return None
    name = number_text.metric(curve.metric)
    plot = _plot(curve, next((stage.last for stage in story.stages if stage.elastic), None))
    charts = (
        tag("div", loss_chart("loss-wide", f"{name} against dollars", plot, *WIDE), class_="wide"),
        tag("div", loss_chart("loss-narrow", f"{name} against dollars", plot, *NARROW), class_="narrow"),
    )
    caption = tag(
        "figcaption",
        number_text.capital(name),
        tag("small", "validation is of the averaged weights, on the signal split"),
    )
    key = tag("p", _swatch("train", "train"), _swatch("validation", "validation"), class_="key")
    return text(tag("p", plot.said, class_="prose"), tag("figure", caption, key, *charts))


def _swatch(class_: str, name: str) -> Html:
    mark = tag(
        "svg", tag("line", x1=0, y1=5, x2=22, y2=5, class_=class_), viewBox="0 0 22 10", aria_hidden="true"
    )
    return tag("span", mark, name)


def _plot(curve: TrainingCurve, last: Attempt | None) -> LossPlot:
    points = curve.points
    train = [(float(point.spent_usd), point.train_loss) for point in points if point.train_loss is not None]
    validation = [(float(point.spent_usd), point.val_loss) for point in points if point.val_loss is not None]
    stop_usd = float(points[-1].spent_usd)
    return LossPlot(
        train=tuple(train[:: 1 + len(train) // MAX_POINTS]),
        validation=tuple(validation),
        bands=bands([(float(point.spent_usd), point.phase) for point in points], stop_usd),
        stop_usd=stop_usd,
        said=_said(points[-1], last),
    )


def _said(end: CurvePoint, last: Attempt | None) -> str:
    """Where training stopped and why, or how far it is."""
    done = f"{number_text.count(end.samples)} samples, {end.epoch:.2f} epochs, {number_text.dollars(end.spent_usd)}"
    if last is None or last.state in ("placed", "running"):
        return f"So far: {done}."
    return f"Stopped after {done}: {last.why}." if last.why else f"It went all the way: {done}."
