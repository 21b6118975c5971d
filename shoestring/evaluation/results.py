"""What the sealed test split said of the model, beside the baselines, with intervals. Lies at runs/RUN_ID/evaluation.json."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from shoestring.core.record import Record, StoredRecord

HIGHER_IS_BETTER = frozenset({"accuracy", "auc", "r2"})
"""Of the other metrics (log_loss, ece, rmse, mae), less is better."""


class Score(Record):
    """A value on the test rows, and the ends of its 95% interval; null when no interval can be made."""

    value: float
    low: float | None = None
    high: float | None = None


class BaselineFit(Record):
    """What a baseline that had to be fitted was given, and what it made of it."""

    limit_s: float = Field(description="seconds it might take")
    limit_reason: str = Field(description="why so many")
    elapsed_s: float
    cores: int
    iterations: int = Field(description="of boosting, as chosen by signal validation; what it predicts with")
    fitted_iterations: int = Field(description="iterations that the seconds sufficed for")
    stop_reason: str = Field(description="why it grew no more")


class ScoredModel(Record):
    """The model, or a baseline, on the same test rows."""

    name: str
    description: str = Field(description="a sentence that says what it is")
    scores: dict[str, Score]
    difference: dict[str, Score] = Field(
        {}, description="of a baseline: the model's metric minus this one's, over the same resamples"
    )
    fit: BaselineFit | None = None


class CalibrationBin(Record):
    """Test rows whose predicted probability fell together. `low` and `high`: 95% interval of the observed share."""

    predicted: float = Field(
        description="mean probability: of the second class when there are two, else of the most likely class"
    )
    observed: float = Field(description="share of these rows that are of that class")
    rows: int
    low: float | None = None
    high: float | None = None


class EvaluationResults(StoredRecord):
    """An evaluation."""

    run_id: str
    inputs: dict[str, str] = Field(description="the keys of the data and of the model")
    task: Literal["binary", "multiclass", "regression"]
    classes: tuple[str, ...]
    metric: str = Field(description="the one that counts; a key of every contender's scores")
    rows: int = Field(description="of the test split")
    resampling_unit: Literal["groups", "rows"] = Field(
        description="what the bootstrap draws: groups of rows that share their fate, or rows"
    )
    unit_count: int = Field(description="how many of those there are")
    resamples: int
    model: ScoredModel
    baselines: tuple[ScoredModel, ...]
    skipped_baselines: dict[str, str] = Field(
        {}, description="baseline that there was no time or money for -> why"
    )
    calibration: tuple[CalibrationBin, ...] = Field((), description="none for regression")
    training_s: float = Field(description="seconds that training took")

    @property
    def scored_models(self) -> tuple[ScoredModel, ...]:
        """The model first."""
        return (self.model, *self.baselines)

    @property
    def quality(self) -> dict[str, float]:
        """Flat, for scripts: each metric of the model; of the one that counts also the interval, and the baselines'."""
        found = {metric: score.value for metric, score in self.model.scores.items()}
        ends = self.model.scores[self.metric]
        found |= {
            f"{self.metric}_{end}": value
            for end, value in (("low", ends.low), ("high", ends.high))
            if value is not None
        }
        return found | {
            f"{self.metric}_{each.name.replace(' ', '_')}": each.scores[self.metric].value
            for each in self.baselines
        }
