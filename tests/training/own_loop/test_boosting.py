"""LightGBM and XGBoost inside a budget: they stop in time, and continue from their newest checkpoint."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clocks import StillClock

from shoestring.budget import Budget, lightgbm_callback, xgboost_callback
from shoestring.core.errors import UsageError
from shoestring.training.own_loop.checkpoints.checkpoint_folder import LIGHTGBM, XGBOOST, checkpoints_in

lightgbm = pytest.importorskip("lightgbm")
xgboost = pytest.importorskip("xgboost")

ROWS = np.random.default_rng(3).normal(size=(400, 4))
TARGET = ROWS[:, 0] * 2 + np.sin(3 * ROWS[:, 1])


class Rounds:
    """A clock that each round advances by a second. `act`: what happens at the end of a round."""

    def __init__(self) -> None:
        self.clock, self.done, self.act = StillClock(), 0, dict[int, Any]()

    def end(self) -> None:
        self.clock.sleep(1)
        self.done += 1
        self.act.get(self.done, lambda: None)()


def train_lightgbm(
    rounds: Rounds, budget: Budget, n: int = 5000, callbacks: Sequence[Any] = (), held_out: Any = TARGET
) -> Any:
    def tick(env: Any) -> None:
        rounds.end()

    data = lightgbm.Dataset(ROWS[:300], TARGET[:300])
    checked = lightgbm.Dataset(ROWS[300:], held_out[300:], reference=data)
    settings = {"objective": "l2", "num_leaves": 4, "verbose": -1, "num_threads": 1, "seed": 1}
    return lightgbm.train(
        settings,
        data,
        n,
        valid_sets=[checked],
        callbacks=[tick, lightgbm_callback(budget), *callbacks],
        init_model=budget.checkpoint,
    )


def train_xgboost(
    rounds: Rounds, budget: Budget, n: int = 5000, callbacks: Sequence[Any] = (), held_out: Any = TARGET
) -> Any:
    class Tick(xgboost.callback.TrainingCallback):  # type: ignore[misc,unused-ignore]
        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            rounds.end()
            return False

    data, checked = xgboost.DMatrix(ROWS[:300], TARGET[:300]), xgboost.DMatrix(ROWS[300:], held_out[300:])
    return xgboost.train(
        {"max_depth": 2, "nthread": 1, "seed": 1},
        data,
        n,
        evals=[(checked, "held")],
        verbose_eval=False,
        callbacks=[Tick(), *callbacks, xgboost_callback(budget)],
        xgb_model=budget.checkpoint,
    )


def trees(model: Any) -> int:
    return int(model.num_trees() if hasattr(model, "num_trees") else model.num_boosted_rounds())


def predictions(model: Any) -> Any:
    return model.predict(ROWS if hasattr(model, "num_trees") else xgboost.DMatrix(ROWS))


def budget_of(rounds: Rounds, seconds: float, folder: Path | None = None) -> Budget:
    return Budget(seconds=seconds, checkpoints=folder, monotonic_s=rounds.clock.monotonic_s)


both = pytest.mark.parametrize(
    ("train", "ending"), [(train_lightgbm, LIGHTGBM), (train_xgboost, XGBOOST)], ids=["lightgbm", "xgboost"]
)


@both
def test_a_boosting_ends_with_its_budget_and_keeps_its_model(train: Any, ending: str, tmp_path: Path) -> None:
    rounds = Rounds()
    budget = budget_of(rounds, 100, tmp_path)
    model = train(rounds, budget)
    assert 95 <= trees(model) <= 100 and rounds.clock.at_s <= 100
    newest, before = checkpoints_in(tmp_path, ending)
    assert int(newest.stem.split("-")[1]) == trees(model) > int(before.stem.split("-")[1])
    assert budget.should_stop and budget.checkpoint == newest
    assert budget.loop.progress.loss == pytest.approx(
        float(np.mean((predictions(model)[300:] - TARGET[300:]) ** 2)) ** (0.5 if ending == XGBOOST else 1),
        rel=1e-3,
    )


@both
def test_a_killed_boosting_continues_from_its_checkpoint(train: Any, ending: str, tmp_path: Path) -> None:
    class Killed(Exception):
        pass

    def kill() -> None:
        raise Killed

    rounds = Rounds()
    rounds.act[70] = kill
    with pytest.raises(Killed):
        train(rounds, budget_of(rounds, 100, tmp_path))
    saved = int(checkpoints_in(tmp_path, ending)[0].stem.split("-")[1])
    assert 60 <= saved < 70
    rest = Rounds()
    model = train(rest, budget_of(rest, 100, tmp_path))
    # The budget counts the seconds of the first attempt, too.
    assert 25 <= rest.done <= 100 - saved and trees(model) == saved + rest.done
    whole = Rounds()
    assert predictions(model) == pytest.approx(
        predictions(train(whole, budget_of(whole, 5000), trees(model))), abs=1e-4
    )


@both
def test_sigterm_ends_a_boosting_with_its_last_round_kept(train: Any, ending: str, tmp_path: Path) -> None:
    rounds = Rounds()
    rounds.act[30] = lambda: os.kill(os.getpid(), signal.SIGTERM)
    model = train(rounds, budget_of(rounds, 1000, tmp_path))
    assert trees(model) == 30
    assert int(checkpoints_in(tmp_path, ending)[0].stem.split("-")[1]) == 30
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@both
def test_rounds_that_end_before_the_budget_are_said(train: Any, ending: str, tmp_path: Path) -> None:
    rounds = Rounds()
    with pytest.warns(UserWarning, match="ended with 60% of the budget left: name more rounds"):
        model = train(rounds, budget_of(rounds, 100, tmp_path), 40)
    assert trees(model) == 40
    assert int(checkpoints_in(tmp_path, ending)[0].stem.split("-")[1]) == 40
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@both
def test_a_boosting_that_another_callback_ends_leaves_sigterm_to_the_script(
    train: Any, ending: str, tmp_path: Path
) -> None:
    class Ended(Exception):
        pass

    def fail() -> None:
        raise Ended

    rounds, received = Rounds(), list[int]()
    rounds.act[30] = fail
    signal.signal(signal.SIGTERM, lambda number, frame: received.append(number))
    with pytest.raises(Ended):
        train(rounds, budget_of(rounds, 1000, tmp_path))
    os.kill(os.getpid(), signal.SIGTERM)
    assert received == [signal.SIGTERM]


@both
def test_early_stopping_names_the_best_round_and_the_budget_the_last(
    train: Any, ending: str, tmp_path: Path
) -> None:
    is_lightgbm = ending == LIGHTGBM
    stop = lightgbm.early_stopping(1, verbose=False) if is_lightgbm else xgboost.callback.EarlyStopping(1)
    rounds = Rounds()
    # The target of the rows held out is another one, so that more rounds are soon worse.
    model = train(rounds, budget_of(rounds, 1000, tmp_path), callbacks=[stop], held_out=TARGET[::-1])
    best = model.best_iteration if is_lightgbm else model.best_iteration + 1
    # LightGBM drops the rounds after the best one.
    assert best == rounds.done - 1 < 60 and trees(model) == (best if is_lightgbm else rounds.done)
    limited = Rounds()
    model = train(limited, budget_of(limited, 20, tmp_path / "other"))
    assert trees(model) == limited.done <= 20
    assert not is_lightgbm or model.best_iteration == limited.done


def test_estimators_take_the_callbacks(tmp_path: Path) -> None:
    for name, ending in (("lightgbm", LIGHTGBM), ("xgboost", XGBOOST)):
        folder = tmp_path / name
        for _ in range(2):
            budget = Budget(seconds=0.4, checkpoints=folder)
            (folder / "spent.json").unlink(missing_ok=True)
            if name == "lightgbm":
                model = lightgbm.LGBMRegressor(n_estimators=10**6, num_leaves=4, verbose=-1, n_jobs=1)
                model.fit(ROWS, TARGET, callbacks=[lightgbm_callback(budget)], init_model=budget.checkpoint)
            else:
                callbacks = [xgboost_callback(budget)]
                model = xgboost.XGBRegressor(n_estimators=10**6, max_depth=2, n_jobs=1, callbacks=callbacks)
                model.fit(ROWS, TARGET, xgb_model=budget.checkpoint and str(budget.checkpoint))
        newest = int(checkpoints_in(folder, ending)[0].stem.split("-")[1])
        booster = model.booster_ if name == "lightgbm" else model.get_booster()
        assert trees(booster) == newest > 20


def test_a_cross_validation_is_refused() -> None:
    with pytest.raises(UsageError, match=r"call lightgbm\.train"):
        lightgbm.cv(
            {"verbose": -1},
            lightgbm.Dataset(ROWS, TARGET),
            stratified=False,
            callbacks=[lightgbm_callback(Budget(seconds=9))],
        )
    with pytest.raises(UsageError, match=r"call xgboost\.train"):
        xgboost.cv({}, xgboost.DMatrix(ROWS, TARGET), callbacks=[xgboost_callback(Budget(seconds=9))])


def test_a_metric_of_which_more_is_better_is_no_loss() -> None:
    target, budgets = ROWS[:, 0] > 0, [Budget(seconds=99), Budget(seconds=99)]
    data = lightgbm.Dataset(ROWS, target)
    settings = {"objective": "binary", "metric": ["binary_logloss", "auc"], "verbose": -1}
    lightgbm.train(settings, data, 3, valid_sets=[data], callbacks=[lightgbm_callback(budgets[0])])
    data = xgboost.DMatrix(ROWS, target)
    settings = {"objective": "binary:logistic", "eval_metric": ["logloss", "auc"]}
    xgboost.train(settings, data, 3, evals=[(data, "all")], callbacks=[xgboost_callback(budgets[1])])
    assert all(0.1 < budget.loop.progress.loss < 0.6 for budget in budgets)


@pytest.mark.parametrize("callback", [lightgbm_callback, xgboost_callback])
def test_a_budget_of_a_boosting_belongs_to_one_training(callback: Any) -> None:
    budget = Budget(seconds=10)
    callback(budget)
    with pytest.raises(UsageError, match="one training"):
        callback(budget)
