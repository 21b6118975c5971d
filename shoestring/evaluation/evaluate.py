"""Open the sealed test split, once, and write down what it says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shoestring.core.datasets import Encoding, Manifest
from shoestring.core.errors import DataError
from shoestring.core.interfaces import Clock, Store
from shoestring.data.formats.readers import Rows
from shoestring.data.recipe import Metric, Task
from shoestring.data.run_records import read
from shoestring.data.storage.blobs import load_manifest
from shoestring.data.transforms.split import GROUP
from shoestring.evaluation.baselines import Table, boost, knows_nothing
from shoestring.evaluation.metrics import Floats
from shoestring.evaluation.resampling import RESAMPLES, units_of
from shoestring.evaluation.results import Fit, Scorecard
from shoestring.evaluation.significance import Claim, Tell, judge
from shoestring.evaluation.split_rows import answers, column, features, open_split
from shoestring.spending.meter import Meter
from shoestring.training.model_record import ModelRecord

BOOSTING = "gradient boosting"

BASELINE_S, BASELINE_S_PER_ROW = 4.0, 30e-6
"""The most that gradient boosting gets, so that what evaluating costs can be foretold. Flights need 6 s of a core for the best."""

AFTER_S, AFTER_S_PER_ROW = 2.0, 10e-6
"""Left for what follows the fit: predicting, resampling, writing."""

OVERRUN = 1.5
"""A fit may take so many times its seconds when other processes get in its way."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Which model to judge on which data, and with what. `predict`: probabilities float[n, classes], or float[n] in y's units."""

    run_id: str
    data_key: str
    model_key: str
    predict: Callable[[Store, str, Rows], Floats]
    metric_of: Callable[[Task], Metric]
    seed: int
    cores: int
    meter: Meter


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One evaluation on its way."""

    asked: Asked
    store: Store
    clock: Clock
    tell: Tell
    manifest: Manifest
    encoding: Encoding
    model: ModelRecord

    def scorecard(self) -> Scorecard:
        asked, encoding = self.asked, self.encoding
        self.tell("opening the test split", 0)
        test = open_split(self.store, self.manifest, "test")
        y = answers(test, encoding, "test")
        grouped = GROUP in self.manifest.columns
        units = units_of(column(test, GROUP) if grouped else None, len(test))
        claims = [self._trained(test), self._nothing(test)]
        boosted, absent = self._boosted(test)
        verdict = judge(encoding, y, claims + boosted, units, asked.seed, self.tell)
        return Scorecard(
            run_id=asked.run_id,
            inputs={"data": asked.data_key, "model": asked.model_key},
            task=encoding.task,
            classes=encoding.classes,
            metric=asked.metric_of(encoding.task),
            rows=len(test),
            resampled="groups" if grouped else "rows",
            units=units.count,
            resamples=RESAMPLES,
            model=verdict.contenders[0],
            baselines=verdict.contenders[1:],
            absent=absent,
            calibration=verdict.calibration,
            trained_s=self.model.seconds,
        )

    def _trained(self, test: Rows) -> Claim:
        self.tell("predicting", 0)
        what = f"{self.model.epochs:.1f} epochs in {self.model.seconds:.1f} s on {self.model.cores} core{'s' * (self.model.cores > 1)}"
        return Claim("model", what, self.asked.predict(self.store, self.asked.model_key, test))

    def _nothing(self, test: Rows) -> Claim:
        regression = self.encoding.task == "regression"
        name, what = (
            ("mean", "train's mean, for every row")
            if regression
            else ("class prior", "train's class shares, for every row")
        )
        return Claim(name, what, knows_nothing(self.encoding, len(test)))

    def _boosted(self, test: Rows) -> tuple[list[Claim], dict[str, str]]:
        """The claim, or why there is none."""
        encoding, clock = self.encoding, self.clock
        phase = f"fitting {BOOSTING}"
        self.tell(phase, 0)
        train, val = self._table("train"), self._table("val")
        left_s = self.asked.meter.seconds_left(clock.monotonic_s())
        given_s, why_s = allowance(self.model, self.asked.cores, self.manifest.rows, left_s)
        if given_s <= 0:
            return [], {BOOSTING: f"it had no seconds: {why_s}"}
        made = boost(
            train,
            val,
            encoding,
            self.asked.seed,
            given_s,
            clock.monotonic_s,
            lambda grown: self.tell(phase, grown),
        )
        fit = Fit(
            given_s=round(given_s, 3),
            why_s=why_s,
            taken_s=round(made.taken_s, 3),
            cores=self.asked.cores,
            iterations=made.iterations,
            grown=made.grown,
            ended=made.ended,
        )
        return [
            Claim(
                BOOSTING,
                f"scikit-learn's {type(made.estimator).__name__}",
                made.predict(features(test, encoding)),
                fit,
            )
        ], {}

    def _table(self, split: str) -> Table:
        rows = open_split(self.store, self.manifest, split)
        return Table(features(rows, self.encoding), column(rows, "y"))


def evaluate(asked: Asked, store: Store, clock: Clock, tell: Tell) -> Scorecard:
    """Judge a model. Raises DataError when the test split is empty, of one class or not the model's own, and whatever `tell` raises."""
    manifest = load_manifest(store, asked.data_key)
    if manifest.encoding is None:
        raise DataError(f"{asked.data_key} is not encoded: evaluate reads what preprocess wrote")
    model = read(store, asked.model_key, ModelRecord)
    if model.data != asked.data_key:
        raise DataError(
            f"{asked.model_key} was trained on {model.data}, whose test split this is not: evaluate it on that"
        )
    return Evaluation(asked, store, clock, tell, manifest, manifest.encoding, model).scorecard()


def allowance(model: ModelRecord, cores: int, rows: int, left_s: float) -> tuple[float, str]:
    """Seconds that gradient boosting gets on so many cores, and why so many. `rows` are of all splits."""
    alike = (
        "as long as training took"
        if cores == model.cores
        else f"training took {model.seconds:.1f} s on {model.cores} core{'s' * (model.cores > 1)}"
    )
    return min(
        (model.seconds * model.cores / cores, alike),
        (BASELINE_S + rows * BASELINE_S_PER_ROW, f"the most that {rows:,} rows get"),
        (
            (left_s - AFTER_S - rows * AFTER_S_PER_ROW) / OVERRUN,
            f"what {left_s:.1f} s to the end of the budget or the deadline leave it",
        ),
    )
