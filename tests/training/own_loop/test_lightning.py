"""Lightning's Trainer inside a budget: the schedule, the stop, checkpoints and a restart."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import torch
from clocks import NOON
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, IterableDataset

pytest.importorskip("lightning")

from lightning_trainings import (
    BATCH,
    PEAK,
    ROWS,
    LightningTraining,
    TimedModule,
    TwoOptimizers,
    WithAdam,
    loader,
)
from small_trainings import Killed, kill_at, survives_sigterm

from shoestring.budget import Budget, lightning_callback
from shoestring.core.errors import UsageError
from shoestring.core.record import record_bytes
from shoestring.spending.budget_file import BudgetFile
from shoestring.training.own_loop.pace import ZERO_FROM
from shoestring.training.own_loop.rates.decay import rate_factor
from shoestring.training.own_loop.termination import live_handler

pytestmark = pytest.mark.filterwarnings(
    "ignore", "always:.*budget left", "always:.*overwritten", "always:.*of its peak"
)


def budget_of(training: LightningTraining, seconds: float) -> Budget:
    return Budget(
        seconds=seconds, checkpoints=training.folder / "kept", monotonic_s=training.clock.monotonic_s
    )


def expected(steps: int) -> list[float]:
    return [rate_factor(min(1.0, (step + 0.5) / steps / ZERO_FROM)) for step in range(steps)]


def test_lightning_ends_annealed_inside_its_budget(tmp_path: Path) -> None:
    training = LightningTraining(tmp_path)
    training.run(budget_of(training, 200))
    rates = training.made.rates
    assert 190 <= training.clock.at_s <= 200 and len(rates) == training.clock.at_s
    assert max(rates) == pytest.approx(PEAK) and rates[-1] < 0.03 * PEAK
    assert [each / PEAK for each in rates][10:] == pytest.approx(expected(len(rates))[10:], abs=0.03)


class StalledModule(TimedModule):
    def loss(self, batch: list[torch.Tensor]) -> torch.Tensor:
        return super().loss(batch).clamp(min=0.05)


def test_validations_that_stall_begin_the_decay_also_after_a_restart(tmp_path: Path) -> None:
    first = LightningTraining(tmp_path, validates=True)
    first.module = killed = StalledModule(first.clock)
    killed.after_batch = kill_at(150)
    with pytest.raises(Killed):
        first.run(of_first := budget_of(first, 200))
    begun = of_first.loop.decay_start.share
    assert 0.2 < begun < 0.6
    rest = LightningTraining(tmp_path, validates=True, resumes=True)
    rest.module = module = StalledModule(rest.clock)
    rest.run(budget := budget_of(rest, 200))
    assert budget.loop.decay_start.share == begun
    expected = PEAK * rate_factor(150 / 197, begun)
    assert killed.rates[-1] == pytest.approx(expected, abs=0.03 * PEAK)
    assert module.rates[-1] < 0.01 * PEAK


def test_both_optimizers_of_a_manual_optimisation_follow_one_schedule(tmp_path: Path) -> None:
    training = LightningTraining(tmp_path)
    training.module = module = TwoOptimizers(training.clock)
    training.run(budget_of(training, 200))
    assert 190 <= training.clock.at_s <= 200
    assert max(module.rates) == pytest.approx(PEAK) and module.rates[-1] < 0.03 * PEAK
    assert max(module.other_rates) == pytest.approx(PEAK / 10)
    assert module.other_rates[-1] < 0.03 * PEAK / 10


def test_an_accumulated_step_is_not_cut(tmp_path: Path) -> None:
    training = LightningTraining(tmp_path, arguments={"accumulate_grad_batches": 4})
    trainer = training.run(budget_of(training, 200))
    assert 190 <= training.clock.at_s <= 200
    assert trainer.global_step * 4 == training.clock.at_s
    assert training.made.rates[-1] < 0.05 * PEAK


def test_a_stop_leaves_time_for_the_validation_that_was_measured(tmp_path: Path) -> None:
    training = LightningTraining(tmp_path, validates=True)
    training.module = module = TimedModule(training.clock, validation_s=9.0)
    training.run(budget := budget_of(training, 200))
    assert 180 <= training.clock.at_s <= 200
    assert module.validated_s[-1] == training.clock.at_s
    assert module.rates[-1] < 0.03 * PEAK
    assert budget.checkpoint is not None
    assert int(budget.checkpoint.stem.split("-")[1]) == len(module.rates)


@pytest.mark.parametrize("limit", [{"max_epochs": 2}, {"max_steps": 32}])
def test_epochs_and_steps_of_lightning_that_end_before_the_money_are_named(
    limit: dict[str, int], tmp_path: Path
) -> None:
    training = LightningTraining(tmp_path, arguments=limit)
    with pytest.warns(UserWarning, match="=.* ended with 68% of the budget left: name more epochs or steps"):
        training.run(budget_of(training, 100))
    assert len(training.made.rates) == 32
    assert training.made.rates[-1] < 0.05 * PEAK


def test_a_scheduler_of_lightning_is_overwritten_and_named_once(tmp_path: Path) -> None:
    training = LightningTraining(tmp_path)
    training.made.has_scheduler = True
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        training.run(budget_of(training, 100))
    assert sum("scheduler is overwritten" in str(each.message) for each in found) == 1


@pytest.mark.parametrize("at", [64, 70])
def test_a_killed_lightning_training_continues_its_schedule(at: int, tmp_path: Path) -> None:
    first = LightningTraining(tmp_path)
    first.made.after_batch = kill_at(at)
    with pytest.raises(Killed):
        first.run(budget_of(first, 200))
    rest = LightningTraining(tmp_path, resumes=True)
    budget = budget_of(rest, 200)
    assert budget.checkpoint is not None and budget.checkpoint.suffix == ".ckpt"
    saved = int(budget.checkpoint.stem.split("-")[1])
    assert 50 < saved <= at
    trainer = rest.run(budget)
    assert trainer.global_step == saved + len(rest.made.rates)
    assert 190 <= first.clock.at_s + rest.clock.at_s <= 202
    assert rest.made.rates[0] == pytest.approx(first.made.rates[-1], rel=0.05)
    assert rest.made.rates == sorted(rest.made.rates, reverse=True)
    assert rest.made.rates[-1] < 0.03 * PEAK


def test_a_changed_module_is_named_at_a_restart(tmp_path: Path) -> None:
    first = LightningTraining(tmp_path)
    first.run(budget_of(first, 30))
    changed = LightningTraining(tmp_path, resumes=True)
    changed.module = TimedModule(changed.clock, width=2)
    with pytest.raises(UsageError, match="is of another model: name another folder"):
        changed.run(budget_of(changed, 300))


def test_another_optimizer_is_named_at_a_restart(tmp_path: Path) -> None:
    first = LightningTraining(tmp_path)
    first.run(budget_of(first, 30))
    changed = LightningTraining(tmp_path, resumes=True)
    changed.module = WithAdam(changed.clock)
    with pytest.raises(
        UsageError, match="it has the state of SGD, and the script trains with Adam: name another"
    ):
        changed.run(budget_of(changed, 300))
    assert changed.made.rates == []


def test_sigterm_ends_lightning_with_a_checkpoint(tmp_path: Path) -> None:
    before = live_handler()
    training = LightningTraining(tmp_path, validates=True)

    def terminate(batches: int) -> None:
        if batches == 20:
            os.kill(os.getpid(), signal.SIGTERM)

    training.made.after_batch = terminate
    training.run(budget := budget_of(training, 200))
    assert len(training.made.rates) == 21
    assert budget.checkpoint is not None and budget.checkpoint.stem.endswith("-000000000021")
    assert live_handler() == before


def test_a_lightning_training_that_has_raised_leaves_sigterm_to_the_script(tmp_path: Path) -> None:
    before = live_handler()
    training = LightningTraining(tmp_path)
    training.made.after_batch = kill_at(5)
    with pytest.raises(Killed):
        training.run(budget_of(training, 200))
    assert live_handler() == before


def test_a_budget_of_lightning_belongs_to_one_training() -> None:
    budget: Any = Budget(seconds=10)
    lightning_callback(budget)
    with pytest.raises(UsageError, match="one training"):
        lightning_callback(budget)


def test_sigterm_ends_neither_what_follows_lightning_in_the_grace_nor_its_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = LightningTraining(tmp_path)
    write_budget(tmp_path / "budget.json", seconds_left=60.0)
    monkeypatch.setenv("SHOESTRING_BUDGET", str(tmp_path / "budget.json"))
    trainer = training.run(Budget.here(monotonic_s=training.clock.monotonic_s))
    assert survives_sigterm()
    tested = list[int]()

    def test_step(batch: Any, batch_idx: int) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        tested.append(batch_idx)

    training.made.test_step = test_step
    trainer.test(training.made, loader())
    assert tested == list(range(ROWS // BATCH))
    assert survives_sigterm()


def test_early_stopping_is_told_with_its_rate(tmp_path: Path) -> None:
    training = LightningTraining(tmp_path, validates=True)
    training.arguments["max_epochs"] = -1

    def stop(batches: int) -> None:
        if batches == 100:
            training.made.trainer.should_stop = True

    training.made.after_batch = stop
    with pytest.warns(UserWarning, match=r"ended at a learning rate of 0\.1, 100% of its peak \(the script"):
        training.run(budget_of(training, 1000))


class Once(IterableDataset[Any]):
    """Rows that are used up after the first pass."""

    def __init__(self) -> None:
        self.rows = iter(torch.ones(40, 1, 1))

    def __iter__(self) -> Iterator[Any]:
        return ([each] for each in self.rows)


def test_a_pass_of_lightning_without_batches_is_an_error(tmp_path: Path) -> None:
    training = LightningTraining(
        tmp_path, arguments={"max_epochs": -1}, rows=DataLoader(Once(), batch_size=4)
    )
    with pytest.raises(UsageError, match="has no batches, so the budget would be spent on nothing"):
        training.run(budget_of(training, 1000))
    assert len(training.made.rates) == 10


@pytest.mark.parametrize(("interval", "counted"), [("step", 3200), ("epoch", 200)])
def test_a_scheduler_that_lightning_steps_past_its_end_is_refused(
    interval: str, counted: int, tmp_path: Path
) -> None:
    def configure(steps: int) -> None:
        optimizer = torch.optim.SGD(training.made.parameters(), lr=PEAK)
        schedule = {"scheduler": OneCycleLR(optimizer, PEAK, total_steps=steps), "interval": interval}
        training.made.configure_optimizers = lambda: {"optimizer": optimizer, "lr_scheduler": schedule}

    training = LightningTraining(tmp_path, arguments={"max_epochs": 200})
    configure(counted - 1)
    with pytest.raises(UsageError, match=rf"total_steps={counted - 1}\) raises an error"):
        training.run(budget_of(training, 100))
    assert not training.made.rates
    configure(counted)
    training.run(budget_of(training, 100))
    assert len(training.made.rates) > 90


def write_budget(path: Path, seconds_left: float) -> None:
    file = BudgetFile(
        run_id="one",
        attempt=1,
        usd_left=Decimal(1),
        usd_per_hour=Decimal(1),
        seconds_left=seconds_left,
        share_gone=0.0,
        should_stop=False,
        stop_reason="",
        grace_s=30.0,
        written_at=NOON,
    )
    path.write_bytes(record_bytes(file))
