"""Hugging Face's Trainer inside a budget: the schedule, the stop, checkpoints and a restart."""

from __future__ import annotations

import os
import signal
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")

from huggingface_trainings import BATCH, PEAK, ROWS, SmallTrainer
from torch.optim.lr_scheduler import OneCycleLR
from transformers import TrainerCallback

from shoestring.budget import Budget, huggingface_callback
from shoestring.core.errors import UsageError
from shoestring.training.own_loop.checkpoints.checkpoint_folder import LISTED
from shoestring.training.own_loop.pace import ZERO_FROM
from shoestring.training.own_loop.rates.decay import rate_factor
from shoestring.training.own_loop.termination import live_handler

pytestmark = pytest.mark.filterwarnings(
    "ignore:no folder for checkpoints", "ignore:the script's learning rate scheduler", "ignore:.*pin_memory"
)
STEPS_A_PASS = ROWS // BATCH


class AtStep(TrainerCallback):  # type: ignore[misc,unused-ignore]
    """Does something at the end of a step."""

    def __init__(self, step: int, act: Any) -> None:
        self.step, self.act = step, act

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.step:
            self.act()


class Stopped(Exception):
    """The attempt ends here, as by SIGKILL."""


def stop() -> None:
    raise Stopped


def budget_of(training: SmallTrainer, seconds: float) -> Budget:
    return Budget(
        seconds=seconds, checkpoints=training.folder / "kept", monotonic_s=training.clock.monotonic_s
    )


def test_trainer_ends_annealed_inside_its_budget(tmp_path: Path) -> None:
    training = SmallTrainer(tmp_path)
    training.run(budget_of(training, 200))
    rates = training.log.rates
    assert 190 <= training.clock.at_s <= 200
    assert len(rates) == training.clock.at_s
    assert max(rates) == pytest.approx(PEAK)
    assert rates[-1] < 0.02 * PEAK
    # In the warm-up, half a step changes the rate by 5%, and at the begin of the decay by 2.5%.
    shares = [min(1.0, (step + 0.5) / len(rates) / ZERO_FROM) for step in range(len(rates))]
    expected = [PEAK * rate_factor(share) for share in shares]
    assert rates[10:] == pytest.approx(expected[10:], abs=0.03 * PEAK)


def test_evaluations_that_stall_begin_the_decay_also_after_a_restart(tmp_path: Path) -> None:
    stalls = {"eval_strategy": "steps", "eval_steps": 10}
    first = SmallTrainer(tmp_path, lowest_loss=0.05, arguments=stalls, callbacks=[AtStep(150, stop)])
    with pytest.raises(Stopped):
        first.run(of_first := budget_of(first, 200))
    begun = of_first.loop.decay_start.share
    assert 0.2 < begun < 0.4
    rest = SmallTrainer(tmp_path, lowest_loss=0.05, arguments=stalls, resumes=True)
    rest.run(budget := budget_of(rest, 200))
    assert budget.loop.decay_start.share == begun
    expected = PEAK * rate_factor(150 / 197, begun)
    assert first.log.rates[-1] == pytest.approx(expected, abs=0.03 * PEAK)
    assert rest.log.rates[0] < 0.3 * PEAK and rest.log.rates[-1] < 0.01 * PEAK


def test_trainer_logs_the_rate_of_the_step(tmp_path: Path) -> None:
    training = SmallTrainer(tmp_path, arguments={"logging_steps": 1})
    trainer = training.run(budget_of(training, 60))
    logged = [each["learning_rate"] for each in trainer.state.log_history if "learning_rate" in each]
    assert logged == pytest.approx(training.log.rates)


def test_gradient_accumulation_is_paced_by_its_steps(tmp_path: Path) -> None:
    training = SmallTrainer(tmp_path, arguments={"gradient_accumulation_steps": 4})
    trainer = training.run(budget_of(training, 400))
    assert training.clock.at_s <= 400
    assert trainer.state.global_step == len(training.log.rates) == training.clock.at_s / 4
    assert max(training.log.rates) == pytest.approx(PEAK)
    assert training.log.rates[-1] < 0.04 * PEAK


@pytest.mark.parametrize("strategy", ["epoch", "steps"])
def test_a_stop_leaves_time_for_the_evaluation_that_was_measured(strategy: str, tmp_path: Path) -> None:
    training = SmallTrainer(tmp_path, validation_s=9.0)
    training.arguments = {"eval_strategy": strategy, "eval_steps": 20}
    trainer = training.run(budget_of(training, 200))
    log = training.log
    assert 180 <= training.clock.at_s <= 200
    assert log.evaluated_s[-1] == training.clock.at_s
    assert log.rates[-1] < 0.03 * PEAK
    assert max(log.saved_at) == trainer.state.global_step
    # A step is never evaluated twice.
    assert len({each["step"] for each in trainer.state.log_history if "eval_loss" in each}) == len(
        log.evaluated_s
    )


@pytest.mark.parametrize("limit", [{"num_train_epochs": 2}, {"max_steps": 2 * STEPS_A_PASS}])
def test_epochs_and_steps_that_end_before_the_money_are_named(limit: dict[str, int], tmp_path: Path) -> None:
    training = SmallTrainer(tmp_path, arguments=limit)
    with pytest.warns(UserWarning, match="=.* ended with 68% of the budget left: name more epochs or steps"):
        training.run(budget_of(training, 100))
    assert len(training.log.rates) == 32
    assert training.log.rates[-1] < 0.03 * PEAK


def test_a_scheduler_of_trainer_is_named_once(tmp_path: Path) -> None:
    training = SmallTrainer(tmp_path)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        training.run(budget_of(training, 30))
    assert sum("scheduler is overwritten" in str(each.message) for each in found) == 1


def test_a_killed_training_continues_its_schedule(tmp_path: Path) -> None:
    first = SmallTrainer(tmp_path)
    first.callbacks = [AtStep(70, stop)]
    with pytest.raises(Stopped):
        first.run(budget_of(first, 200))
    rest = SmallTrainer(tmp_path, resumes=True)
    budget = budget_of(rest, 200)
    assert budget.checkpoint is not None and budget.checkpoints == tmp_path / "kept"
    saved = int(budget.checkpoint.name.removeprefix("checkpoint-"))
    assert 50 < saved <= 70
    trainer = rest.run(budget)
    assert trainer.state.global_step == saved + len(rest.log.rates)
    assert 190 <= first.clock.at_s + rest.clock.at_s <= 202
    assert rest.log.rates[0] == pytest.approx(first.log.rates[-1], rel=0.05)
    assert rest.log.rates == sorted(rest.log.rates, reverse=True)
    assert rest.log.rates[-1] < 0.03 * PEAK


def test_checkpoints_are_kept_for_the_budget_and_not_left_with_the_script(tmp_path: Path) -> None:
    training = SmallTrainer(tmp_path, arguments={"save_steps": 25})
    trainer = training.run(budget_of(training, 100))
    last = trainer.state.global_step
    kept = {path.name for path in (tmp_path / "kept").iterdir() if path.is_dir()}
    assert len(kept) == 2 and f"checkpoint-{last}" in kept
    own = {path.name for path in (tmp_path / "out").iterdir()}
    assert own == {f"checkpoint-{step}" for step in (25, 50, 75, last)}


def test_a_damaged_checkpoint_is_not_chosen(tmp_path: Path) -> None:
    training = SmallTrainer(tmp_path)
    training.run(budget_of(training, 60))
    newest = budget_of(training, 60).checkpoint
    assert newest is not None and (newest / LISTED).exists()
    with (newest / "optimizer.pt").open("r+b") as file:
        file.truncate(10)
    before = budget_of(training, 60).checkpoint
    assert before is not None and before != newest


def test_a_changed_model_is_named_at_a_restart(tmp_path: Path) -> None:
    first = SmallTrainer(tmp_path)
    first.run(budget_of(first, 30))
    changed = SmallTrainer(tmp_path, width=2)
    budget = budget_of(changed, 300)
    assert budget.checkpoint is not None
    with pytest.raises(UsageError, match="is of another model: name another folder"):
        changed.run(budget)


def test_another_optimizer_is_named_at_a_restart(tmp_path: Path) -> None:
    first = SmallTrainer(tmp_path)
    first.run(budget_of(first, 30))
    changed = SmallTrainer(tmp_path, arguments={"optim": "sgd"}, resumes=True)
    with pytest.raises(
        UsageError, match="it has the state of AdamW, and the script trains with SGD: name another"
    ):
        changed.run(budget_of(changed, 300))
    assert changed.log.rates == []


def test_sigterm_ends_a_training_with_a_checkpoint_and_is_handled_by_the_script_afterwards(
    tmp_path: Path,
) -> None:
    before = live_handler()
    training = SmallTrainer(tmp_path)
    training.callbacks = [AtStep(20, lambda: os.kill(os.getpid(), signal.SIGTERM))]
    trainer = training.run(budget := budget_of(training, 200))
    assert trainer.state.global_step == 21
    assert budget.checkpoint == tmp_path / "kept" / "checkpoint-21"
    assert live_handler() == before


def test_a_training_that_has_raised_leaves_sigterm_to_the_script(tmp_path: Path) -> None:
    got = list[int]()
    before = signal.signal(signal.SIGTERM, lambda number, frame: got.append(number))
    try:
        training = SmallTrainer(tmp_path, callbacks=[AtStep(5, stop)])
        with pytest.raises(Stopped):
            training.run(budget_of(training, 200))
        os.kill(os.getpid(), signal.SIGTERM)
        assert got == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_sigterm_ends_the_training_after_one_that_has_raised(tmp_path: Path) -> None:
    failed = SmallTrainer(tmp_path / "failed", callbacks=[AtStep(5, stop)])
    with pytest.raises(Stopped):
        failed.run(budget_of(failed, 200))
    training = SmallTrainer(tmp_path)
    training.callbacks = [AtStep(20, lambda: os.kill(os.getpid(), signal.SIGTERM))]
    trainer = training.run(budget_of(training, 200))
    assert trainer.state.global_step == 21


def test_a_model_alone_is_no_checkpoint_of_a_budget(tmp_path: Path) -> None:
    training = SmallTrainer(tmp_path, arguments={"save_only_model": True, "save_steps": 5})
    with pytest.warns(UserWarning, match="cannot be resumed"):
        training.run(budget := budget_of(training, 20))
    assert budget.checkpoint is None


def test_a_budget_belongs_to_one_training() -> None:
    budget = Budget(seconds=10)
    huggingface_callback(budget)
    with pytest.raises(UsageError, match="one training"):
        huggingface_callback(budget)


def test_early_stopping_is_told_with_its_rate(tmp_path: Path) -> None:
    class Early(TrainerCallback):  # type: ignore[misc,unused-ignore]
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            control.should_training_stop = state.global_step >= 100

    training = SmallTrainer(tmp_path, callbacks=[Early()])
    with pytest.warns(UserWarning, match=r"ended at a learning rate of 0\.1, 100% of its peak \(the script"):
        training.run(budget_of(training, 1000))
    assert len(training.log.rates) == 100


@pytest.mark.parametrize("counted", [999, 1000])
def test_a_scheduler_that_trainer_steps_past_its_end_is_refused(counted: int, tmp_path: Path) -> None:
    training = SmallTrainer(tmp_path, arguments={"max_steps": 1000})
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=PEAK)
    training.optimizers = (optimizer, OneCycleLR(optimizer, PEAK, total_steps=counted))
    if counted < 1000:
        with pytest.raises(UsageError, match=r"total_steps=999\) raises an error"):
            training.run(budget_of(training, 100))
        assert not training.log.rates
    else:
        training.run(budget_of(training, 100))
        assert len(training.log.rates) > 90
