"""The budget in LightGBM: a callback that stops in time, and keeps the model in checkpoints."""

from __future__ import annotations

from lightgbm import Booster
from lightgbm.callback import CallbackEnv, EarlyStopException

from shoestring.core.errors import UsageError
from shoestring.training.own_loop.budget import Budget
from shoestring.training.own_loop.callbacks.boosting_session import BoostingSession
from shoestring.training.own_loop.checkpoints.checkpoint_folder import LIGHTGBM


class LightGBMBudget:
    """A callback of `lightgbm.train`, and of its estimators' `fit`. It runs after others."""

    order, before_iteration = 90, False

    def __init__(self, budget: Budget) -> None:
        self._session = BoostingSession(budget, LIGHTGBM, "lightgbm.engine")

    def __call__(self, env: CallbackEnv) -> None:
        """Note a round.

        Raises:
            EarlyStopException: the budget ends. LightGBM ends the training there.
            UsageError: the rounds are those of a cross-validation.
        """
        session, booster, results = self._session, env.model, env.evaluation_result_list or []
        if not isinstance(booster, Booster):
            raise UsageError("lightgbm.cv has no support for a budget: call lightgbm.train")

        def model() -> bytes:
            return str(booster.model_to_string(num_iteration=-1)).encode()

        session.begin()
        # The last metric of which less is better.
        losses = [float(result[2]) for result in results if not result[3]]
        rounds = env.iteration + 1
        if session.after_round(rounds, losses[-1] if losses else None, model):
            raise EarlyStopException(env.iteration, results)
        if rounds == env.end_iteration:
            session.finish(rounds, f"num_boost_round={rounds - env.begin_iteration}", model)
