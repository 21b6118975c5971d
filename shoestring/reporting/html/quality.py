"""The report's section on quality: the model compared with its baselines, with intervals, and calibration."""

from __future__ import annotations

from decimal import Decimal

from shoestring.evaluation.results import (
    HIGHER_IS_BETTER,
    BaselineFit,
    EvaluationResults,
    Score,
    ScoredModel,
)
from shoestring.reporting import number_text
from shoestring.reporting.html.charts import CalibrationPoint, MetricInterval, calibration, dots_and_whiskers
from shoestring.reporting.html.markup import Html, table, tag, text
from shoestring.reporting.run_story import RunStory


def quality_figure(story: RunStory) -> Html | None:
    """Return the main metric and those of the baselines; None before there is an evaluation."""
    results = story.evaluation
    if results is None:
        return None
    model_score = results.model.scores[results.metric]
    big = text(
        number_text.score(model_score.value), tag("small", f" {number_text.metric_name(results.metric)}")
    )
    others = (
        tag("p", f"{each.name} {number_text.score(each.scores[results.metric].value)}")
        for each in results.baselines
    )
    interval = (
        tag("p", f"95% interval {_interval_text(model_score)}") if _interval_text(model_score) else None
    )
    return tag(
        "div",
        tag("dt", "Quality on the sealed test split"),
        tag("dd", big, class_="big"),
        tag("dd", interval, *others, tag("p", results.sealed_sentence) if results.opening else None),
    )


def quality_section(story: RunStory) -> Html | None:
    results = story.evaluation
    if results is None:
        return None
    verdicts = (
        tag("p", " ".join(_verdict(results, each) for each in results.baselines), class_="prose")
        if results.baselines
        else None
    )
    return text(
        verdicts,
        tag("div", _chart(results), _calibration(results), class_="charts"),
        _table(results),
        _conditions(results, story.run_id),
    )


def _interval_text(score: Score) -> str:
    return (
        ""
        if score.low is None or score.high is None
        else f"{number_text.score(score.low)} to {number_text.score(score.high)}"
    )


def _verdict(results: EvaluationResults, baseline: ScoredModel) -> str:
    """Compare by the paired interval of the difference: better, worse, or statistically tied."""
    difference = baseline.difference.get(results.metric)
    if difference is None:
        return f"The model and {baseline.name} are statistically tied."
    significant = (
        difference.low is not None
        and difference.high is not None
        and not difference.low <= 0 <= difference.high
    )
    difference_text = f"{number_text.score(abs(difference.value))} {number_text.metric_name(results.metric)}"
    span = (
        f" (95% interval of the difference: {_interval_text(difference)})"
        if _interval_text(difference)
        else ""
    )
    if not significant:
        return f"The model and {baseline.name} are statistically tied: {difference_text} apart{span}."
    better = (difference.value > 0) == (results.metric in HIGHER_IS_BETTER)
    comparison = "better" if better else "worse"
    return f"The model is {comparison} than {baseline.name} by {difference_text}{span}."


def _chart(results: EvaluationResults) -> Html:
    measured = []
    for each in results.scored_models:
        score = each.scores[results.metric]
        measured.append(
            MetricInterval(each.name, score.value, score.low, score.high, is_model=each is results.model)
        )
    name = number_text.metric_name(results.metric)
    better = "higher" if results.metric in HIGHER_IS_BETTER else "lower"
    caption = tag(
        "figcaption",
        number_text.capitalized(name),
        tag("small", f"on {number_text.count(results.rows)} test rows; {better} is better"),
    )
    return tag(
        "figure",
        caption,
        dots_and_whiskers("quality-dots", f"{name}, model and baselines", measured, number_text.score),
    )


def _calibration(results: EvaluationResults) -> Html | None:
    if not results.calibration:
        return None
    bins = [
        CalibrationPoint(each.predicted, each.observed, each.rows, each.low, each.high)
        for each in results.calibration
    ]
    what = f"of {results.classes[1]}" if len(results.classes) == 2 else "of the most likely class"
    caption = tag(
        "figcaption",
        "Calibration",
        tag("small", f"predicted probability {what}, and observed share; larger dots are more rows"),
    )
    return tag("figure", caption, calibration("calibration", "Predicted against observed", bins))


def _table(results: EvaluationResults) -> Html:
    metrics = sorted(results.model.scores, key=lambda metric: metric != results.metric)
    heads = [("", "name"), *((number_text.metric_name(metric), "n") for metric in metrics)]
    rows = [
        (
            text(each.name, tag("small", each.description)),
            *(_cell(each.scores.get(metric)) for metric in metrics),
        )
        for each in results.scored_models
    ]
    return table("All metrics, with 95% intervals", heads, rows, class_="stack")


def _cell(score: Score | None) -> Html | None:
    return (
        None
        if score is None
        else text(
            number_text.score(score.value),
            tag("small", _interval_text(score)) if _interval_text(score) else None,
        )
    )


def _cost_text(seconds: float, cpu_s: float | None, usd: Decimal | None) -> str:
    """Return what a fit took: seconds, and CPU-seconds and dollars where they are known."""
    cost = _costs(cpu_s, usd)
    return number_text.duration(seconds) + (f" ({', '.join(cost)})" if cost else "")


def _costs(cpu_s: float | None, usd: Decimal | None) -> list[str]:
    return [
        *([] if cpu_s is None else [f"{cpu_s:.1f} CPU-seconds"]),
        *([] if usd is None else [number_text.dollars(usd)]),
    ]


def _training_sentences(results: EvaluationResults) -> list[str]:
    """Return the seconds of the training loop, and what its whole stage took: more, on more than one core."""
    stage = " and ".join(_costs(results.training_cpu_s, results.training_usd))
    return [
        f"Training took {number_text.duration(results.training_s)}.",
        *([f"Its stage took {stage}, with its start, its imports and its checkpoints."] if stage else []),
    ]


def _fit_sentence(results: EvaluationResults, name: str, fit: BaselineFit) -> str:
    used, fitted = number_text.count(fit.iterations), number_text.count(fit.fitted_iterations)
    took = f"took {_cost_text(fit.elapsed_s, fit.cpu_s, fit.usd)}"
    if fit.limit_s is not None:
        took = f"was allowed {number_text.duration(fit.limit_s)} ({fit.limit_reason}), and {took}"
    paid = "" if fit.run_id in ("", results.run_id) else f" Run {fit.run_id} trained it and paid for it."
    name = number_text.capitalized(name)
    return f"{name} {took}: {used} of {fitted} rounds used; {fit.stop_reason}.{paid}"


def _conditions(results: EvaluationResults, run_id: str) -> Html:
    """Return the conditions of the comparison."""
    unit = results.opening.unit if results.opening else results.resampling_unit
    unit = "groups of rows" if unit == "groups" else unit
    sampled = f"{number_text.count(results.unit_count)} {unit}"
    weighted = f"Rows are weighted by {results.weighted_by}, in all figures. " if results.weighted_by else ""
    sentences = [
        f"{weighted}Intervals by bootstrap over {sampled}, {number_text.count(results.resamples)} times.",
        *_training_sentences(results),
    ]
    sentences += [_fit_sentence(results, each.name, each.fit) for each in results.baselines if each.fit]
    if results.run_id != run_id:
        sentences.append(f"Run {results.run_id} made this evaluation of the same model and data.")
    sentences += [
        f"{number_text.capitalized(name)} is missing: {reason}."
        for name, reason in results.skipped_baselines.items()
    ]
    return tag("p", " ".join(sentences), class_="note")
