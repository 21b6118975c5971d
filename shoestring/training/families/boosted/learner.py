"""The learner of gradient boosting: a step is one round of LightGBM over all rows."""

from __future__ import annotations

from functools import partial
from typing import Any

import lightgbm
import numpy as np

from shoestring.core.datasets import Encoding
from shoestring.data.loading.gathering import gather_samples
from shoestring.data.loading.samples import SampleReader, Samples
from shoestring.training.contracts import Deferred, Feed, Progress, StepPlan, ValidationRows, Weights
from shoestring.training.curve import NO_READINGS, StepReadings
from shoestring.training.families.boosted.features import CategoryTables, tree_targets
from shoestring.training.families.boosted.forest import (
    ROWS_AT_ONCE,
    forest_bytes,
    read_forest,
    scores,
)
from shoestring.training.families.boosted.settings import BoostedSettings
from shoestring.training.losses.scores import (
    mean_metric,
    outputs,
    prior_scores,
    row_weights,
    sum_of_losses,
    total_weight,
)

Array = np.ndarray[Any, np.dtype[Any]]


class ScoredRows:
    """Validation rows with the scores of the forest so far."""

    def __init__(self, features_B: Array, target_B: Array, weight_B: Array | None, threads: int) -> None:
        self.features_B, self.target_B, self.weight_B, self.threads = features_B, target_B, weight_B, threads
        self.booster: Any = None
        self.rounds = 0
        self.scores_BK = np.zeros((0, 1))

    def add(self, booster: Any, rounds: int, encoding: Encoding) -> Array:
        """Return the scores with the rounds that are new since the last call."""
        if not rounds:
            return prior_scores(encoding, len(self.target_B))
        if booster is not self.booster:
            self.booster, self.rounds = booster, 0
            self.scores_BK = np.zeros((len(self.target_B), outputs(encoding)))
        if rounds > self.rounds:
            new = rounds - self.rounds
            self.scores_BK += scores(booster, self.features_B, encoding, self.rounds, new, self.threads)
            self.rounds = rounds
        return self.scores_BK


class BoostedLearner:
    """A forest that grows. A `Learner`.

    The average of recent weights, which other families validate, is the forest itself. Equal rows and an
    equal seed give equal forests for the same number of threads, also when it is written and read between
    rounds.
    """

    by_rounds, queues_steps, measures_noise = True, False, False
    gather = staticmethod(gather_samples)

    def __init__(
        self, encoding: Encoding, settings: BoostedSettings, train: SampleReader, seed: int, cores: int
    ) -> None:
        self._encoding, self.batch_rows, self.rounds, self._threads = encoding, len(train), 0, cores
        self._rate = settings.learning_rate
        self._params = {
            **_objective(encoding),
            "num_class": outputs(encoding),
            "learning_rate": settings.learning_rate,
            "num_leaves": settings.leaves,
            "min_data_in_leaf": settings.min_leaf_rows,
            "max_bin": settings.bins,
            "lambda_l2": settings.l2,
            "seed": seed,
            "num_threads": cores,
            "deterministic": True,
            "force_row_wise": True,
            "verbose": -1,
        }
        samples = Samples.joined([*train.scan(ROWS_AT_ONCE)])
        self._target_B, self._weight_B = samples["target"], samples.weights
        targets_BK = tree_targets(encoding, self._target_B)
        self.tables = CategoryTables.fitted(encoding, samples["code"], targets_BK, samples.weights)
        self._features_B = self.tables.train_features(samples, targets_BK)
        self._validation: dict[ValidationRows, ScoredRows] = {}
        self._resumed: Any = None
        self._booster = lightgbm.Booster(self._params, self._dataset())

    def _dataset(self) -> Any:
        weights_B = row_weights(self._encoding, self._target_B, self._weight_B)
        if weights_B is not None and (weights_B == 1).all():
            weights_B = None  # LightGBM interpolates quantiles otherwise where rows have weights.
        return lightgbm.Dataset(
            self._features_B,
            self._target_B,
            weight=weights_B,
            categorical_feature=self.tables.code_columns(self._features_B),
            params=self._params,
            free_raw_data=False,
        )

    def advance(self, plan: StepPlan, feed: Feed) -> Progress:
        feed.pass_over(plan.rows)
        self.grow(plan.rate)
        return Progress(plan.rows, None)

    def grow(self, rate: float = 1.0) -> None:
        """Make a round. `rate`: as a multiple of the learning rate."""
        if (rate := self._rate * rate) != self._params["learning_rate"]:
            self._params["learning_rate"] = rate
            self._booster.reset_parameter({"learning_rate": rate})
        if self._resumed is None:
            self._booster.update()
        else:
            # LightGBM continues a forest with its next round.
            self._booster = lightgbm.train(
                self._params, self._dataset(), 1, init_model=self._resumed, keep_training_booster=True
            )
            self._resumed = None
        self.rounds += 1

    def validate(self, rows: ValidationRows, weights: Weights | bytes) -> float:
        known = self._validation.get(rows)
        if known is None:
            samples = Samples.joined([*rows.batches(ROWS_AT_ONCE)])
            known = self._validation[rows] = ScoredRows(
                self.tables.features(samples), samples["target"], samples.weights, self._threads
            )
        if isinstance(weights, bytes):
            booster, _ = read_forest(weights)
            found = ScoredRows(known.features_B, known.target_B, known.weight_B, self._threads).add(
                booster, booster.current_iteration() if booster else 0, self._encoding
            )
        else:
            found = known.add(self._resumed or self._booster, self.rounds, self._encoding)
        total = sum_of_losses(found, known.target_B, self._encoding, known.weight_B)
        return self.metric(total / total_weight(len(known.target_B), known.weight_B))

    def metric(self, loss: float) -> float:
        return mean_metric(loss, self._encoding)

    def export(self, weights: Weights) -> Deferred:
        return self.state()

    def state(self) -> Deferred:
        """Return the forest of these rounds. It is written when it is needed: later rounds only add to it."""
        return Deferred(partial(_written, self._resumed or self._booster, self.rounds, self.tables))

    def restore(self, state: Deferred) -> None:
        booster, self.tables = read_forest(state.data)
        self.rounds = booster.current_iteration() if booster else 0
        self._resumed = booster
        if booster is None:
            self._booster = lightgbm.Booster(self._params, self._dataset())

    def mark(self) -> None:
        pass

    def go_back(self) -> None:
        pass

    def readings(self) -> StepReadings:
        return NO_READINGS


def _objective(encoding: Encoding) -> dict[str, Any]:
    """Return the loss as LightGBM names it."""
    if encoding.task == "regression" and encoding.loss.quantile is not None:
        return {"objective": "quantile", "alpha": encoding.loss.quantile}
    return {"objective": encoding.task}


def _written(booster: Any, rounds: int, tables: CategoryTables) -> bytes:
    if not rounds:
        return forest_bytes("", tables)
    # A forest that was read is written without the weight of a tree's only leaf: so are all.
    read = lightgbm.Booster(model_str=booster.model_to_string(num_iteration=rounds))
    # The parameters name the threads, which the forest does not depend on.
    forest, _, rest = read.model_to_string(num_iteration=rounds).partition("\nparameters:\n")
    return forest_bytes(forest + rest.partition("end of parameters\n")[2], tables)
