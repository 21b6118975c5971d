"""Evaluate a model: open the sealed test split once, and compare the model with its baselines."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

from shoestring.core import store_layout
from shoestring.core.datasets import MEDIAN, Encoding, Loss, Manifest
from shoestring.core.errors import DataError
from shoestring.core.interfaces import Clock, Store
from shoestring.core.receipt import Receipt
from shoestring.data.loading.open_split import open_split, require_encoding
from shoestring.data.loading.samples import SampleReader
from shoestring.data.metrics import Metric, Task
from shoestring.data.run_records import read_record, read_records
from shoestring.data.split_settings import Split
from shoestring.data.storage.blobs import load_manifest
from shoestring.data.storage.import_closure import library_versions
from shoestring.data.transforms.split import unit_name
from shoestring.evaluation.baselines import (
    baseline_key_fields,
    baseline_libraries,
    find_baseline,
    predict_prior,
    predict_trees,
    save_baseline,
    train_trees,
)
from shoestring.evaluation.metrics import Judgement, Targets
from shoestring.evaluation.openings import count_opening, sealed_split
from shoestring.evaluation.results import BaselineFit, EvaluationResults, SealedOpening
from shoestring.evaluation.significance import Predictions, ReportPhase, score_models
from shoestring.evaluation.split_rows import read_groups, read_target, read_targets, read_weights
from shoestring.evaluation.text_baselines import stored_texts, text_baselines
from shoestring.evaluation.units import Floats, make_units
from shoestring.spending.meter import Meter
from shoestring.training.families.boosted.settings import BASELINE
from shoestring.training.losses.scores import weighted_quantile
from shoestring.training.model_record import ModelRecord

BOOSTING = "gradient boosting"

NO_TIME = "no time was left to train it"
"""The beginning of the reason why a baseline is missing that more money or time would have trained."""

FIT_S = 0.5
"""Time without which a training of gradient boosting does not start."""

FINISH_S, FINISH_S_PER_ROW = 0.5, 1e-6
"""Time reserved for the steps after that training: predicting, resampling and writing."""


class OutOfTime(Exception):
    """Training a baseline would leave no time to finish the evaluation. It never leaves this module."""


@dataclass(frozen=True, slots=True)
class EvaluationRequest:
    """The model to evaluate, the data set, and the resources.

    `predict` returns probabilities float[n, classes], or float[n] in the units of y, or of texts the
    nats of each row.
    """

    run_id: str
    split: Split
    split_seed: int
    dataset_key: str
    model_key: str
    predict: Callable[[Store, str, SampleReader], Floats]
    metric_for: Callable[[Task], Metric]
    loss: Loss
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
        sealed = sealed_split(self.store, self.manifest, request.split, request.split_seed)
        number = count_opening(self.store, sealed, request.run_id)
        is_text = encoding.vocabulary is not None
        y = read_targets(test) if is_text else read_target(test, encoding, "test")
        groups = read_groups(test)
        grouped = groups is not None
        units = make_units(groups, len(test), read_weights(test))
        predictions = [self._model_predictions(test)]
        baselines, skipped = self._baselines(test, y)
        unit = unit_name(request.split, self.manifest.split_unit)
        cpu_s, usd = training_cost(self.store, self.model.run_id)
        comparison = score_models(
            encoding, y, predictions + baselines, units, request.seed, self.report, self._judgement()
        )
        return EvaluationResults(
            run_id=request.run_id,
            inputs={"data": request.dataset_key, "model": request.model_key},
            task=encoding.task,
            classes=encoding.classes,
            metric=request.metric_for(encoding.task),
            rows=len(test),
            weighted_by=encoding.weight.column if encoding.weight else "",
            resampling_unit="groups" if grouped else "rows",
            unit_count=units.count,
            resamples=comparison.resamples,
            opening=SealedOpening(number=number, units=units.count, unit=unit),
            model=comparison.scored_models[0],
            baselines=comparison.scored_models[1:],
            skipped_baselines=skipped,
            calibration=comparison.calibration,
            training_s=self.model.training_s,
            training_cpu_s=cpu_s,
            training_usd=usd,
        )

    def _model_predictions(self, test: SampleReader) -> Predictions:
        self.report("predicting", 0)
        model = self.model
        family, share = model.settings.family, model.settings.rows_share
        epochs = model.settings.epochs_name
        rows = f" of {100 * share:g}% of the rows" if share < 1 else ""
        name = model.weights_source if model.settings.members_for(self.manifest.rows) else family
        description = (
            f"{name}, {model.epochs:.1f} {epochs}{rows} in {model.training_s:.1f} s on {_cores(model.cores)}"
        )
        return Predictions(
            "model", description, self.request.predict(self.store, self.request.model_key, test)
        )

    def _baselines(self, test: SampleReader, y: Targets) -> tuple[list[Predictions], dict[str, str]]:
        """Return the predictions of the baselines, and why one was skipped."""
        if self.encoding.vocabulary is not None:
            texts = stored_texts(self.store, self.encoding.vocabulary)
            return text_baselines(self.encoding, test, y, texts), {}
        boosted, skipped = self._boosted_predictions(test)
        return [self._prior_predictions(test), *boosted], skipped

    def _prior_predictions(self, test: SampleReader) -> Predictions:
        encoding, quantile = self.encoding, self.encoding.loss.quantile
        if encoding.task != "regression":
            values = predict_prior(encoding, len(test))
            return Predictions("class prior", "train's class shares, for every row", values)
        name, constant = "mean", None
        if quantile is not None:
            name = "median" if quantile == MEDIAN else f"{quantile} quantile"
            train, weights = open_split(self.store, self.manifest, "train").targets()
            constant = weighted_quantile(train, quantile, weights)
        return Predictions(
            name, f"train's {name}, for every row", predict_prior(encoding, len(test), constant)
        )

    def _judgement(self) -> Judgement:
        loss, metric = self.encoding.loss, self.request.metric_for(self.encoding.task)
        weights = tuple(1 / share if share else 0.0 for share in self.encoding.train_prior)
        return Judgement(metric, loss.quantile or MEDIAN, weights if loss.balanced else ())

    def _boosted_predictions(self, test: SampleReader) -> tuple[list[Predictions], dict[str, str]]:
        """Return the predictions of gradient boosting, or the reason why it was skipped.

        The first evaluation on a data set trains it; the others find it in the store.
        """
        if self.encoding.of_use("image"):
            return [], {BOOSTING: "it reads columns, and this data set has images"}
        if (self.model.settings, self.model.seed) == (BASELINE, self.request.seed):
            return [], {BOOSTING: f"the model is that one: {BASELINE.family} with its default settings"}
        versions = library_versions(baseline_libraries())
        request, loss = self.request, self.encoding.loss
        fields = baseline_key_fields(request.dataset_key, loss, request.seed, versions)
        if found := find_baseline(self.store, fields):
            baseline, values = found
            return [Predictions(BOOSTING, baseline.description, values, baseline.fit)], {}
        try:
            description, fit, values = self._fit(test)
        except OutOfTime as error:
            return [], {BOOSTING: f"{NO_TIME}: {error}"}
        save_baseline(self.store, fields, description, fit, values)
        return [Predictions(BOOSTING, description, values, fit)], {}

    def _fit(self, test: SampleReader) -> tuple[str, BaselineFit, Floats]:
        """Train gradient boosting; return its description, record and predictions. Raises OutOfTime."""
        phase, request, rows = f"training {BOOSTING}", self.request, self.manifest.rows
        started_s, started_cpu_s = self.clock.monotonic_s(), time.process_time()

        def report(rounds: int, needed_s: float = 0.0) -> None:
            self.report(phase, rounds)
            left_s = request.meter.seconds_left(self.clock.monotonic_s())
            if left_s < needed_s + FINISH_S + rows * FINISH_S_PER_ROW:
                raise OutOfTime(f"{left_s:.1f} s are left until the budget or the deadline ends")

        report(0, FIT_S)
        train, val = (open_split(self.store, self.manifest, split) for split in ("train", "val"))
        trees = train_trees(self.encoding, train, val, request.seed, request.cores, report)
        values = predict_trees(self.encoding, trees, test)
        ended_s = self.clock.monotonic_s()
        record = BaselineFit(
            elapsed_s=round(ended_s - started_s, 3),
            cores=request.cores,
            cpu_s=round(time.process_time() - started_cpu_s, 3),
            usd=request.meter.spent_usd(ended_s) - request.meter.spent_usd(started_s),
            run_id=request.run_id,
            iterations=trees.rounds,
            fitted_iterations=trees.trained_rounds,
            stop_reason=trees.stop_reason,
        )
        return f"{BASELINE.family} with its default settings", record, values


def evaluate(
    request: EvaluationRequest, store: Store, clock: Clock, report: ReportPhase
) -> EvaluationResults:
    """Evaluate a model on the test split.

    Raises DataError when the test split is empty, holds one class, or belongs to another data set than
    the model's; and whatever `report` raises.
    """
    manifest = load_manifest(store, request.dataset_key)
    encoding = require_encoding(manifest).model_copy(update={"loss": request.loss})
    model = read_record(store, request.model_key, ModelRecord)
    if model.dataset_key != request.dataset_key:
        raise DataError(
            f"{request.model_key} was trained on {model.dataset_key}, not on {request.dataset_key}: "
            "evaluate it on the data set it was trained on"
        )
    return Evaluation(request, store, clock, report, manifest, encoding, model).run()


def training_cost(store: Store, run_id: str) -> tuple[float | None, Decimal | None]:
    """Return the CPU-seconds and dollars of all attempts at a run's training; None without a receipt."""
    receipts, _ = read_records(store, list(store.list(store_layout.receipts(run_id, "train"))), Receipt)
    paid = [each for each in receipts if not each.cache_hit]
    if not paid:
        return None, None
    return round(sum(each.cpu_s for each in paid), 3), sum((each.spent_usd for each in paid), Decimal(0))


def _cores(count: int) -> str:
    return f"{count} core{'s' * (count > 1)}"
