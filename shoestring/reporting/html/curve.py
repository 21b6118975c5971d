"""The report's loss curve: loss against dollars, the phases of training, and where and why it stopped."""

from __future__ import annotations

from shoestring.core.text import join_names
from shoestring.reporting import number_text
from shoestring.reporting.html.charts import LossPlot, bands, loss_chart
from shoestring.reporting.html.markup import Html, tag, text
from shoestring.reporting.run_story import AttemptStory, RunStory
from shoestring.training.curve import CurvePoint, TrainingCurve

MAX_POINTS = 600
WIDE, NARROW = (1016, 340), (354, 300)


def curve_section(story: RunStory) -> Html | None:
    """Return the section, or None if nothing was trained."""
    curve = story.curve
    if curve is None or not curve.points:
        return None
    name = number_text.metric_name(curve.metric)
    plot = _plot(curve, next((stage.last_attempt for stage in story.stages if stage.elastic), None))
    charts = (
        tag("div", loss_chart("loss-wide", f"{name} against dollars", plot, *WIDE), class_="wide"),
        tag("div", loss_chart("loss-narrow", f"{name} against dollars", plot, *NARROW), class_="narrow"),
    )
    caption = tag(
        "figcaption",
        number_text.capitalized(name),
        tag("small", "validation uses the averaged weights, on the signal split"),
    )
    legend = tag("p", _swatch("train", "train"), _swatch("validation", "validation"), class_="legend")
    paid = "" if curve.run_id == story.run_id else f" Run {curve.run_id} trained this model and paid for it."
    return text(
        tag("p", f"{plot.description}{paid}{_time_text(curve)}{noise_text(curve)}", class_="prose"),
        tag("figure", caption, legend, *charts),
    )


def _time_text(curve: TrainingCurve) -> str:
    """Return where the time went; nothing if an earlier version trained."""
    shares = curve.time_shares
    if shares is None:
        return ""
    parts = [f"{shares.read:.0%} for rows to be read", f"{shares.decode:.0%} for them to be decoded"]
    if shares.transfer:
        parts.append(f"{shares.transfer:.0%} for them to be moved to the GPU")
    waited = f"waited {join_names(parts)}"
    return (
        f" It computed for {shares.compute:.0%} of its time, and {waited} (bottleneck: {shares.bottleneck})."
    )


def noise_text(curve: TrainingCurve) -> str:
    """Return the noise scale of the gradient; nothing if no step measured it."""
    noise, measured = curve.noise, number_text.quantity(curve.measured_steps, "step")
    if not curve.measured_steps:
        return ""
    if noise is None:
        return f" {measured} measured the noise of its gradient: too few for its scale."
    low, rows = (number_text.short_count(round(each)) for each in (noise.low, noise.rows))
    interval = (
        f"at least {low}" if noise.high is None else f"{low} to {number_text.short_count(round(noise.high))}"
    )
    return f" The noise scale of its gradient is {rows} rows ({interval}, from {measured})."


def _swatch(class_: str, name: str) -> Html:
    mark = tag(
        "svg", tag("line", x1=0, y1=5, x2=22, y2=5, class_=class_), viewBox="0 0 22 10", aria_hidden="true"
    )
    return tag("span", mark, name)


def _plot(curve: TrainingCurve, last: AttemptStory | None) -> LossPlot:
    points = curve.points
    train = [(float(point.spent_usd), point.train_loss) for point in points if point.train_loss is not None]
    validation = [(float(point.spent_usd), point.val_loss) for point in points if point.val_loss is not None]
    stop_usd = float(points[-1].spent_usd)
    return LossPlot(
        train=tuple(train[:: 1 + len(train) // MAX_POINTS]),
        validation=tuple(validation),
        bands=bands([(float(point.spent_usd), point.phase) for point in points], stop_usd),
        stop_usd=stop_usd,
        description=_stop_text(points[-1], last),
    )


def _stop_text(end: CurvePoint, last: AttemptStory | None) -> str:
    """Return where training stopped and why, or how far it is."""
    samples, dollars = number_text.count(end.samples), number_text.dollars(end.spent_usd)
    done = f"{samples} samples, {end.epoch:.2f} epochs, {dollars}"
    if last is None or last.state in ("placed", "running"):
        return f"So far: {done}."
    return f"Stopped after {done}: {last.reason}." if last.reason else f"Completed: {done}."
