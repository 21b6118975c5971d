"""Open the sealed test split, once, and write down what it says."""

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
from shoestring.evaluation.baselines import FeatureTable, fit_boosted_trees, predict_prior
from shoestring.evaluation.metrics import Floats
from shoestring.evaluation.resampling import RESAMPLES, make_units
from shoestring.evaluation.results import BaselineFit, EvaluationResults
from shoestring.evaluation.significance import Predictions, ReportPhase, score_models
from shoestring.evaluation.split_rows import open_split, read_column, read_features, read_target
from shoestring.spending.meter import Meter
from shoestring.training.model_record import ModelRecord

BOOSTING = "gradient boosting"

BASELINE_S, BASELINE_S_PER_ROW = 4.0, 30e-6
"""The most that gradient boosting gets, so that what evaluating costs can be foretold. Flights need 6 s of a core for the best."""

FINISH_S, FINISH_S_PER_ROW = 2.0, 10e-6
"""Left for what follows the fit: predicting, resampling, writing."""

OVERRUN_FACTOR = 1.5
"""A fit may take so many times its seconds when other processes get in its way."""


@dataclass(frozen=True, slots=True)
class EvaluationRequest:
    """Which model to judge on which data, and with what. `predict`: probabilities float[n, classes], or float[n] in y's units."""

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
    """One evaluation on its way."""

    request: EvaluationRequest
    store: Store
    clock: Clock
    report: ReportPhase
    manifest: Manifest
    encoding: Encoding
    model: ModelRecord

    def run(self) -> EvaluationResults:
        asked, encoding = self.request, self.encoding
        self.report("opening the test split", 0)
        test = open_split(self.store, self.manifest, "test")
        y = read_target(test, encoding, "test")
        grouped = GROUP_COLUMN in self.manifest.columns
        units = make_units(read_column(test, GROUP_COLUMN) if grouped else None, len(test))
        claims = [self._trained(test), self._nothing(test)]
        boosted, absent = self._boosted(test)
        verdict = score_models(encoding, y, claims + boosted, units, asked.seed, self.report)
        return EvaluationResults(
            run_id=asked.run_id,
            inputs={"data": asked.dataset_key, "model": asked.model_key},
            task=encoding.task,
            classes=encoding.classes,
            metric=asked.metric_for(encoding.task),
            rows=len(test),
            resampling_unit="groups" if grouped else "rows",
            unit_count=units.count,
            resamples=RESAMPLES,
            model=verdict.scored_models[0],
            baselines=verdict.scored_models[1:],
            skipped_baselines=absent,
            calibration=verdict.calibration,
            training_s=self.model.training_s,
        )

    def _trained(self, test: EncodedRows) -> Predictions:
        self.report("predicting", 0)
        what = f"{self.model.epochs:.1f} epochs in {self.model.training_s:.1f} s on {self.model.cores} core{'s' * (self.model.cores > 1)}"
        return Predictions("model", what, self.request.predict(self.store, self.request.model_key, test))

    def _nothing(self, test: EncodedRows) -> Predictions:
        regression = self.encoding.task == "regression"
        name, what = (
            ("mean", "train's mean, for every row")
            if regression
            else ("class prior", "train's class shares, for every row")
        )
        return Predictions(name, what, predict_prior(self.encoding, len(test)))

    def _boosted(self, test: EncodedRows) -> tuple[list[Predictions], dict[str, str]]:
        """The claim, or why there is none."""
        encoding, clock = self.encoding, self.clock
        phase = f"fitting {BOOSTING}"
        self.report(phase, 0)
        train, val = self._table("train"), self._table("val")
        left_s = self.request.meter.seconds_left(clock.monotonic_s())
        given_s, why_s = fit_limit(self.model, self.request.cores, self.manifest.rows, left_s)
        if given_s <= 0:
            return [], {BOOSTING: f"it had no seconds: {why_s}"}
        made = fit_boosted_trees(
            train,
            val,
            encoding,
            self.request.seed,
            given_s,
            clock.monotonic_s,
            lambda grown: self.report(phase, grown),
        )
        fit = BaselineFit(
            limit_s=round(given_s, 3),
            limit_reason=why_s,
            elapsed_s=round(made.elapsed_s, 3),
            cores=self.request.cores,
            iterations=made.iterations,
            fitted_iterations=made.fitted_iterations,
            stop_reason=made.stop_reason,
        )
        return [
            Predictions(
                BOOSTING,
                f"scikit-learn's {type(made.estimator).__name__}",
                made.predict(read_features(test, encoding)),
                fit,
            )
        ], {}

    def _table(self, split: str) -> FeatureTable:
        rows = open_split(self.store, self.manifest, split)
        return FeatureTable(read_features(rows, self.encoding), read_column(rows, "y"))


def evaluate(asked: EvaluationRequest, store: Store, clock: Clock, tell: ReportPhase) -> EvaluationResults:
    """Judge a model. Raises DataError when the test split is empty, of one class or not the model's own, and whatever `tell` raises."""
    manifest = load_manifest(store, asked.dataset_key)
    if manifest.encoding is None:
        raise DataError(f"{asked.dataset_key} is not encoded: evaluate reads what preprocess wrote")
    model = read_record(store, asked.model_key, ModelRecord)
    if model.dataset_key != asked.dataset_key:
        raise DataError(
            f"{asked.model_key} was trained on {model.dataset_key}, whose test split this is not: evaluate it on that"
        )
    return Evaluation(asked, store, clock, tell, manifest, manifest.encoding, model).run()


def fit_limit(model: ModelRecord, cores: int, rows: int, left_s: float) -> tuple[float, str]:
    """Seconds that gradient boosting gets on so many cores, and why so many. `rows` are of all splits."""
    alike = (
        "as long as training took"
        if cores == model.cores
        else f"training took {model.training_s:.1f} s on {model.cores} core{'s' * (model.cores > 1)}"
    )
    return min(
        (model.training_s * model.cores / cores, alike),
        (BASELINE_S + rows * BASELINE_S_PER_ROW, f"the most that {rows:,} rows get"),
        (
            (left_s - FINISH_S - rows * FINISH_S_PER_ROW) / OVERRUN_FACTOR,
            f"what {left_s:.1f} s to the end of the budget or the deadline leave it",
        ),
    )
