"""The budget in XGBoost: a callback that stops in time, and keeps the model in checkpoints."""

from __future__ import annotations

from typing import Any

from xgboost import Booster
from xgboost.callback import TrainingCallback

from shoestring.core.errors import UsageError
from shoestring.training.own_loop.budget import Budget
from shoestring.training.own_loop.callbacks.boosting_session import BoostingSession
from shoestring.training.own_loop.checkpoints.checkpoint_folder import XGBOOST

# Metrics of which more is better, by how their names begin. XGBoost itself does not tell.
GAINS = ("auc", "pre", "map", "ndcg")


class XGBoostBudget(TrainingCallback):  # type: ignore[misc,unused-ignore]
    """A callback of `xgboost.train`, and of its estimators."""

    def __init__(self, budget: Budget) -> None:
        super().__init__()
        self._session = BoostingSession(budget, XGBOOST, "xgboost.training")

    def before_training(self, model: Booster) -> Booster:
        """Begin the training. Raises UsageError for a cross-validation."""
        if not isinstance(model, Booster):
            raise UsageError("xgboost.cv has no support for a budget: call xgboost.train")
        self._session.begin()
        return model

    def after_iteration(self, model: Booster, epoch: int, evals_log: dict[str, Any]) -> bool:
        """Note a round, and return whether the budget ends."""
        losses = [
            float(values[-1])
            for metrics in evals_log.values()
            for name, values in metrics.items()
            if name == "mape" or not name.startswith(GAINS)
        ]
        rounds = model.num_boosted_rounds()
        return self._session.after_round(rounds, losses[-1] if losses else None, lambda: content(model))

    def after_training(self, model: Booster) -> Booster:
        rounds = model.num_boosted_rounds()
        self._session.finish(rounds, f"after {rounds} rounds, the training", lambda: content(model))
        return model


def content(model: Booster) -> bytes:
    return bytes(model.save_raw("ubj"))
