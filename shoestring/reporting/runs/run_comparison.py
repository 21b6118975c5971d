"""Two runs side by side: their choices, dollars and quality."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from shoestring.core.money import Usd
from shoestring.core.record import Record, StoredRecord
from shoestring.evaluation.results import HIGHER_IS_BETTER, EvaluationResults, Score
from shoestring.reporting.run_story import RunStory
from shoestring.reporting.summary import StageSummary, summarise_run
from shoestring.routing.candidates import offer_text

MetricVerdict = Literal[
    "first better", "second better", "intervals overlap", "no interval", "other test rows"
]


class StagePair(Record):
    """One stage of two runs; null where a run did not place it."""

    stage: str
    first: StageSummary | None
    second: StageSummary | None
    same_choice: bool = Field(description="both placed it on the same pool and market, in the same format")


class MetricPair(Record):
    """One metric of two models on the sealed test split, each with its 95% interval.

    Intervals that overlap do not show that the models are equal; intervals that do not overlap show a
    difference.
    """

    metric: str
    first: Score
    second: Score
    verdict: MetricVerdict


class RunComparison(StoredRecord):
    """Two runs. Dollars are what each spent; `second_costs_usd` is the second's less the first's."""

    first: str
    second: str
    first_spent_usd: Usd
    second_spent_usd: Usd
    second_costs_usd: Usd
    first_wall_s: float
    second_wall_s: float
    stages: tuple[StagePair, ...]
    metrics: tuple[MetricPair, ...] = Field(description="empty unless both runs were evaluated")


def compare_runs(first: RunStory, second: RunStory) -> RunComparison:
    """Return the stages in the order of the first run, and the metrics that both models have."""
    one, other = summarise_run(first), summarise_run(second)
    placed = [{stage.name: stage for stage in each.stages} for each in (one, other)]
    return RunComparison(
        first=one.run_id,
        second=other.run_id,
        first_spent_usd=one.spent_usd,
        second_spent_usd=other.spent_usd,
        second_costs_usd=other.spent_usd - one.spent_usd,
        first_wall_s=one.wall_s,
        second_wall_s=other.wall_s,
        stages=tuple(
            stage_pair(name, placed[0].get(name), placed[1].get(name)) for name in placed[0] | placed[1]
        ),
        metrics=metric_pairs(first.evaluation, second.evaluation),
    )


def stage_pair(name: str, first: StageSummary | None, second: StageSummary | None) -> StagePair:
    same = first is not None and second is not None and choice_of(first) == choice_of(second)
    return StagePair(stage=name, first=first, second=second, same_choice=same)


def choice_of(stage: StageSummary) -> str:
    return offer_text(stage.pool, stage.market, stage.format, stage.storage_class)


def metric_pairs(first: EvaluationResults | None, second: EvaluationResults | None) -> tuple[MetricPair, ...]:
    if first is None or second is None:
        return ()
    same_rows = (first.inputs.get("data"), first.rows) == (second.inputs.get("data"), second.rows)
    shared = [metric for metric in first.model.scores if metric in second.model.scores]
    shared.sort(key=lambda metric: metric != first.metric)
    return tuple(
        MetricPair(
            metric=metric,
            first=(one := first.model.scores[metric]),
            second=(other := second.model.scores[metric]),
            verdict=metric_verdict(metric, one, other) if same_rows else "other test rows",
        )
        for metric in shared
    )


def metric_verdict(metric: str, first: Score, second: Score) -> MetricVerdict:
    if None in (first.low, first.high, second.low, second.high):
        return "no interval"
    assert first.low is not None and first.high is not None
    assert second.low is not None and second.high is not None
    if first.low <= second.high and second.low <= first.high:
        return "intervals overlap"
    return "first better" if (first.value > second.value) == (metric in HIGHER_IS_BETTER) else "second better"
