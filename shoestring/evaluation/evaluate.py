"""Evaluate a model: open the sealed test split once, and compare the model with its baselines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shoestring.core.datasets import Encoding, Manifest
from shoestring.core.errors import DataError
from shoestring.core.interfaces import Clock, Store
from shoestring.data.formats.readers import EncodedRows
from shoestring.data.recipe import Metric, Task
from shoestring.data.run_records import read_record
from shoestring.data.storage.blobs import load_manifest
from shoestring.data.transforms.split import GROUP_COLUMN
from shoestring.evaluation.baselines import BoostedTrees, FeatureTable, fit_boosted_trees, predict_prior
from shoestring.evaluation.metrics import Floats
from shoestring.evaluation.resampling import RESAMPLES, make_units
from shoestring.evaluation.results import BaselineFit, EvaluationResults
from shoestring.evaluation.significance import Predictions, ReportPhase, score_models
from shoestring.evaluation.split_rows import open_split, read_column, read_features, read_target
from shoestring.spending.meter import Meter
from shoestring.training.model_record import ModelRecord

BOOSTING = "gradient boosting"

BASELINE_S, BASELINE_S_PER_ROW = 4.0, 30e-6
"""The maximum time limit of gradient boosting, so that the cost of an evaluation can be predicted.
On flights it reaches its best validation loss after 6 s on one core."""

FINISH_S, FINISH_S_PER_ROW = 2.0, 10e-6
"""Time reserved for the steps after the fit: predicting, resampling and writing."""

OVERRUN_FACTOR = 1.5
"""A fit may take this many times its time limit when other processes compete for the cores."""


@dataclass(frozen=True, slots=True)
class EvaluationRequest:
    """The model to evaluate, the data set, and the resources.

    `predict` returns probabilities float[n, classes], or float[n] in the units of y.
    """

    run_id: str
    dataset_key: str
    model_key: str
    predict: Callable[[Store, str, EncodedRows], Floats]
    metric_for: Callable[[Task], Metric]
    seed: int
    cores: int
    meter: Meter


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One evaluation in progress."""

    request: EvaluationRequest
    store: Store
    clock: Clock
    report: ReportPhase
    manifest: Manifest
    encoding: Encoding
    model: ModelRecord

    def run(self) -> EvaluationResults:
        request, encoding = self.request, self.encoding
        self.report("opening the test split", 0)
        test = open_split(self.store, self.manifest, "test")
        y = read_target(test, encoding, "test")
        grouped = GROUP_COLUMN in self.manifest.columns
        units = make_units(read_column(test, GROUP_COLUMN) if grouped else None, len(test))
        predictions = [self._model_predictions(test), self._prior_predictions(test)]
        boosted, skipped = self._boosted_predictions(test)
        comparison = score_models(encoding, y, predictions + boosted, units, request.seed, self.report)
        return EvaluationResults(
            run_id=request.run_id,
            inputs={"data": request.dataset_key, "model": request.model_key},
            task=encoding.task,
            classes=encoding.classes,
            metric=request.metric_for(encoding.task),
            rows=len(test),
            resampling_unit="groups" if grouped else "rows",
            unit_count=units.count,
            resamples=RESAMPLES,
            model=comparison.scored_models[0],
            baselines=comparison.scored_models[1:],
            skipped_baselines=skipped,
            calibration=comparison.calibration,
            training_s=self.model.training_s,
        )

    def _model_predictions(self, test: EncodedRows) -> Predictions:
        self.report("predicting", 0)
        model = self.model
        description = f"{model.epochs:.1f} epochs in {model.training_s:.1f} s on {_cores(model.cores)}"
        return Predictions(
            "model", description, self.request.predict(self.store, self.request.model_key, test)
        )

    def _prior_predictions(self, test: EncodedRows) -> Predictions:
        regression = self.encoding.task == "regression"
        name, description = (
            ("mean", "train's mean, for every row")
            if regression
            else ("class prior", "train's class shares, for every row")
        )
        return Predictions(name, description, predict_prior(self.encoding, len(test)))

    def _boosted_predictions(self, test: EncodedRows) -> tuple[list[Predictions], dict[str, str]]:
        """Return the predictions of gradient boosting, or the reason why it was skipped."""
        phase = f"fitting {BOOSTING}"
        self.report(phase, 0)
        train, val = self._table("train"), self._table("val")
        left_s = self.request.meter.seconds_left(self.clock.monotonic_s())
        limit_s, reason = fit_limit(self.model, self.request.cores, self.manifest.rows, left_s)
        if limit_s <= 0:
            return [], {BOOSTING: f"no time was left to fit it: {reason}"}
        fitted = fit_boosted_trees(
            train,
            val,
            self.encoding,
            self.request.seed,
            limit_s,
            self.clock.monotonic_s,
            lambda iterations: self.report(phase, iterations),
        )
        description = f"scikit-learn's {type(fitted.estimator).__name__}"
        values = fitted.predict(read_features(test, self.encoding))
        return [Predictions(BOOSTING, description, values, self._fit_record(fitted, limit_s, reason))], {}

    def _fit_record(self, fitted: BoostedTrees, limit_s: float, reason: str) -> BaselineFit:
        return BaselineFit(
            limit_s=round(limit_s, 3),
            limit_reason=reason,
            elapsed_s=round(fitted.elapsed_s, 3),
            cores=self.request.cores,
            iterations=fitted.iterations,
            fitted_iterations=fitted.fitted_iterations,
            stop_reason=fitted.stop_reason,
        )

    def _table(self, split: str) -> FeatureTable:
        rows = open_split(self.store, self.manifest, split)
        return FeatureTable(read_features(rows, self.encoding), read_column(rows, "y"))


def evaluate(
    request: EvaluationRequest, store: Store, clock: Clock, report: ReportPhase
) -> EvaluationResults:
    """Evaluate a model on the test split.

    Raises DataError when the test split is empty, holds one class, or belongs to another data set than
    the model's; and whatever `report` raises.
    """
    manifest = load_manifest(store, request.dataset_key)
    if manifest.encoding is None:
        raise DataError(f"{request.dataset_key} is not encoded: evaluate reads the output of preprocess")
    model = read_record(store, request.model_key, ModelRecord)
    if model.dataset_key != request.dataset_key:
        raise DataError(
            f"{request.model_key} was trained on {model.dataset_key}, not on {request.dataset_key}: "
            "evaluate it on the data set it was trained on"
        )
    return Evaluation(request, store, clock, report, manifest, manifest.encoding, model).run()


def fit_limit(model: ModelRecord, cores: int, rows: int, left_s: float) -> tuple[float, str]:
    """Return the time limit of gradient boosting in seconds, and what sets it. `rows` counts all splits."""
    equal_share = (
        "as long as training took"
        if cores == model.cores
        else f"training took {model.training_s:.1f} s on {_cores(model.cores)}"
    )
    return min(
        (model.training_s * model.cores / cores, equal_share),
        (BASELINE_S + rows * BASELINE_S_PER_ROW, f"the maximum for {rows:,} rows"),
        (
            (left_s - FINISH_S - rows * FINISH_S_PER_ROW) / OVERRUN_FACTOR,
            f"{left_s:.1f} s are left until the budget or the deadline ends",
        ),
    )


def _cores(count: int) -> str:
    return f"{count} core{'s' * (count > 1)}"
