"""The report's account of quality: the model beside its baselines, with intervals, and whether its probabilities can be believed."""

from __future__ import annotations

from shoestring.evaluation.results import HIGHER_IS_BETTER, EvaluationResults, Score, ScoredModel
from shoestring.reporting import number_text
from shoestring.reporting.html.charts import CalibrationBin, MetricInterval, calibration, dots_and_whiskers
from shoestring.reporting.html.markup import Html, scroll, table, tag, text
from shoestring.reporting.run_story import RunStory


def quality_figure(story: RunStory) -> Html | None:
    """The metric that counts, beside the baselines; None before there is an evaluation."""
    card = story.scorecard
    if card is None:
        return None
    ours = card.model.scores[card.metric]
    big = text(number_text.score(ours.value), tag("small", f" {number_text.metric(card.metric)}"))
    others = (
        tag("p", f"{each.name} {number_text.score(each.scores[card.metric].value)}")
        for each in card.baselines
    )
    interval = tag("p", f"95% interval {_ends(ours)}") if _ends(ours) else None
    return tag(
        "div",
        tag("dt", "Quality on the sealed test split"),
        tag("dd", big, class_="big"),
        tag("dd", interval, *others),
    )


def quality_section(story: RunStory) -> Html | None:
    card = story.scorecard
    if card is None:
        return None
    verdicts = (
        tag("p", " ".join(_verdict(card, each) for each in card.baselines), class_="prose")
        if card.baselines
        else None
    )
    return text(
        verdicts, tag("div", _chart(card), _calibration(card), class_="charts"), _table(card), _terms(card)
    )


def _ends(score: Score) -> str:
    return (
        ""
        if score.low is None or score.high is None
        else f"{number_text.score(score.low)} to {number_text.score(score.high)}"
    )


def _verdict(card: EvaluationResults, baseline: ScoredModel) -> str:
    """By the paired interval of the difference: better, worse, or no telling."""
    lead = baseline.difference.get(card.metric)
    if lead is None:
        return f"There is no telling the model from {baseline.name}."
    known = lead.low is not None and lead.high is not None and not lead.low <= 0 <= lead.high
    by = f"{number_text.score(abs(lead.value))} {number_text.metric(card.metric)}"
    span = f" (95% interval of the difference: {_ends(lead)})" if _ends(lead) else ""
    if not known:
        return f"There is no telling the model from {baseline.name}: {by} apart{span}."
    better = (lead.value > 0) == (card.metric in HIGHER_IS_BETTER)
    return f"The model is {'better' if better else 'worse'} than {baseline.name} by {by}{span}."


def _chart(card: EvaluationResults) -> Html:
    measured = []
    for each in card.scored_models:
        score = each.scores[card.metric]
        measured.append(MetricInterval(each.name, score.value, score.low, score.high, ours=each is card.model))
    name = number_text.metric(card.metric)
    better = "more" if card.metric in HIGHER_IS_BETTER else "less"
    caption = tag(
        "figcaption",
        number_text.capital(name),
        tag("small", f"on {number_text.count(card.rows)} test rows; {better} is better"),
    )
    return tag(
        "figure",
        caption,
        dots_and_whiskers("quality-dots", f"{name}, model and baselines", measured, number_text.score),
    )


def _calibration(card: EvaluationResults) -> Html | None:
    if not card.calibration:
        return None
    bins = [CalibrationBin(each.predicted, each.observed, each.rows, each.low, each.high) for each in card.calibration]
    what = f"of {card.classes[1]}" if len(card.classes) == 2 else "of the most likely class"
    caption = tag(
        "figcaption",
        "Calibration",
        tag("small", f"predicted probability {what}, and how often it came; a larger dot is more rows"),
    )
    return tag("figure", caption, calibration("calibration", "Predicted against observed", bins))


def _table(card: EvaluationResults) -> Html:
    metrics = list(card.model.scores)
    heads = [("", "name"), *((number_text.metric(metric), "n") for metric in metrics)]
    rows = [
        (text(each.name, tag("small", each.description)), *(_cell(each.scores.get(metric)) for metric in metrics))
        for each in card.scored_models
    ]
    return tag("div", table("All metrics, with 95% intervals", heads, rows), **scroll("all metrics"))


def _cell(score: Score | None) -> Html | None:
    return (
        None
        if score is None
        else text(number_text.score(score.value), tag("small", _ends(score)) if _ends(score) else None)
    )


def _terms(card: EvaluationResults) -> Html:
    """On what terms they met."""
    drawn = f"{number_text.count(card.unit_count)} {'groups of rows' if card.resampling_unit == 'groups' else 'rows'}"
    said = [
        f"Intervals by bootstrap over {drawn}, {number_text.count(card.resamples)} times; training took {number_text.duration(card.training_s)}."
    ]
    for each in card.baselines:
        if fit := each.fit:
            given = f"{number_text.capital(each.name)} might take {number_text.duration(fit.limit_s)} ({fit.limit_reason}) on {number_text.things(fit.cores, 'core')}"
            kept = f"{number_text.count(fit.iterations)} of {number_text.count(fit.fitted_iterations)} iterations kept"
            said.append(f"{given}, and took {number_text.duration(fit.elapsed_s)}: {kept}; {fit.stop_reason}.")
    said += [f"{number_text.capital(name)} is missing: {why}." for name, why in card.skipped_baselines.items()]
    return tag("p", " ".join(said), class_="note")
