"""The record of an evaluation on the sealed test split, stored at runs/RUN_ID/evaluation.json."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from shoestring.core.money import Usd
from shoestring.core.record import Record, StoredRecord
from shoestring.core.text import ordinal

HIGHER_IS_BETTER = frozenset({"accuracy", "balanced_accuracy", "auc", "r2"})
"""For the other metrics (log_loss, ece, rmse, mae, quantile_loss, bits_per_byte), lower is better."""


def is_none(value: object) -> bool:
    return value is None


def is_empty(value: str) -> bool:
    return not value


class Score(Record):
    """A metric on the test rows, and the ends of its 95% interval; null when no interval can be computed."""

    value: float
    low: float | None = None
    high: float | None = None


class BaselineFit(Record):
    """The record of fitting a baseline: its cost, iterations and stop reason.

    A fit of an earlier version had a time limit, and did not know its cost.
    """

    limit_s: float | None = Field(None, exclude_if=is_none, description="time limit of the fit, in seconds")
    limit_reason: str = Field("", exclude_if=is_empty, description="what set the time limit")
    elapsed_s: float
    cores: int
    cpu_s: float | None = Field(None, exclude_if=is_none, description="CPU-seconds of the fit")
    usd: Usd | None = Field(None, exclude_if=is_none, description="dollars for the time of the fit")
    run_id: str = Field("", exclude_if=is_empty, description="the run that fitted it and paid for it")
    iterations: int = Field(description="boosting iterations used for predictions, chosen on validation")
    fitted_iterations: int = Field(description="boosting iterations fitted")
    stop_reason: str = Field(description="why the fit stopped")


class ScoredModel(Record):
    """The scores of the model, or of a baseline, on the test rows."""

    name: str
    description: str = Field(description="a one-sentence description")
    scores: dict[str, Score]
    difference: dict[str, Score] = Field(
        {}, description="baselines only: the model's metric minus this one's, over the same resamples"
    )
    fit: BaselineFit | None = None


class CalibrationBin(Record):
    """Test rows with similar predicted probabilities. `low` and `high` are the 95% interval of the
    observed share."""

    predicted: float = Field(
        description="mean probability of the second class when there are two, else of the most likely class"
    )
    observed: float = Field(description="share of these rows that are of that class")
    rows: int
    low: float | None = None
    high: float | None = None


class SealedOpening(Record):
    """How often the test split has been opened, this evaluation included, and its size."""

    number: int = Field(ge=1, description="of this evaluation, among those of all runs on the same test rows")
    units: int
    unit: str = Field(description="days, groups or rows")

    @property
    def sentence(self) -> str:
        return f"the {ordinal(self.number)} evaluation on these {self.units:,} {self.unit}"


class EvaluationResults(StoredRecord):
    """All scores of one evaluation."""

    run_id: str
    inputs: dict[str, str] = Field(description="store keys of the data set and of the model")
    task: Literal["binary", "multiclass", "regression", "next_token"]
    classes: tuple[str, ...]
    metric: str = Field(description="the recipe's primary metric, a key of every model's scores")
    rows: int = Field(description="rows of the test split")
    weighted_by: str = Field(
        "",
        exclude_if=lambda column: not column,
        description="column that rows are weighted by in all scores, intervals and baselines; empty: none",
    )
    resampling_unit: Literal["groups", "rows"] = Field(
        description="what the bootstrap draws: groups of correlated rows, or single rows"
    )
    unit_count: int = Field(description="number of sampling units in the test split")
    resamples: int
    opening: SealedOpening | None = Field(
        None, exclude_if=is_none, description="null: an earlier version made it, and counted nothing"
    )
    model: ScoredModel
    baselines: tuple[ScoredModel, ...]
    skipped_baselines: dict[str, str] = Field({}, description="baseline that was not fitted -> reason")
    calibration: tuple[CalibrationBin, ...] = Field((), description="empty for regression and for texts")
    training_s: float = Field(description="seconds of the training loop")
    training_cpu_s: float | None = Field(
        None, exclude_if=is_none, description="CPU-seconds of the training's stage; null: not known"
    )
    training_usd: Usd | None = Field(
        None, exclude_if=is_none, description="dollars of the training's stage; null: not known"
    )

    @property
    def sealed_sentence(self) -> str:
        """The number of this evaluation, and the column that weights its figures; empty if not known."""
        weighted = f", weighted by {self.weighted_by}" if self.weighted_by else ""
        return f"{self.opening.sentence}{weighted}" if self.opening else ""

    @property
    def scored_models(self) -> tuple[ScoredModel, ...]:
        """The model, then the baselines."""
        return (self.model, *self.baselines)

    @property
    def quality(self) -> dict[str, float]:
        """The scores as a flat dictionary for scripts.

        It holds each metric of the model, and for the primary metric also the interval and the baselines'
        values.
        """
        found = {metric: score.value for metric, score in self.model.scores.items()}
        interval = self.model.scores[self.metric]
        found |= {
            f"{self.metric}_{end}": value
            for end, value in (("low", interval.low), ("high", interval.high))
            if value is not None
        }
        return found | {
            f"{self.metric}_{each.name.replace(' ', '_')}": each.scores[self.metric].value
            for each in self.baselines
        }

    @property
    def constant_warning(self) -> str:
        """A sentence if the model is not significantly better than the constant prediction; empty if it is.

        The constant is the first baseline: the class shares of train, or their mean. Without an interval of
        the difference, the values themselves are compared.
        """
        constant, name = self.baselines[0], self.metric
        own, other = self.model.scores[name].value, constant.scores[name].value
        sign = 1 if name in HIGHER_IS_BETTER else -1
        found = constant.difference.get(name)
        low, high = (None, None) if found is None else (found.low, found.high)
        worst = own - other if low is None or high is None else (low if sign > 0 else high)
        if sign * worst > 0:
            return ""
        return f"no better than a constant prediction ({name} {own:.4f}, {constant.name} {other:.4f})"
