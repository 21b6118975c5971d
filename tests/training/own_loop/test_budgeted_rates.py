"""One place sets the learning rate, whatever else the script does with it."""

from __future__ import annotations

import warnings

import pytest
import torch
from clocks import StillClock
from small_trainings import PEAK, SmallTraining
from torch import nn
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import (
    ChainedScheduler,
    CosineAnnealingLR,
    LinearLR,
    LRScheduler,
    MultiplicativeLR,
    OneCycleLR,
)

from shoestring.budget import Budget, budgeted
from shoestring.training.own_loop.rates.decay import rate_factor

pytestmark = pytest.mark.filterwarnings("ignore:no folder for checkpoints")
STEPS = 40


def expected(peak: float) -> list[float]:
    return [peak * rate_factor((step + 0.5) / STEPS) for step in range(STEPS)]


class RateLog:
    """A script's loop of its own: backward, some steps of the optimizer, a scheduler that is stepped, too.

    `by_group`: the rate of each group after each batch.
    """

    def __init__(self, groups: list[dict[str, object]] | None = None) -> None:
        self.model = nn.Linear(4, 1)
        self.optimizer: Optimizer = SGD(groups or self.model.parameters(), lr=PEAK)
        self.by_group: list[list[float]] = []
        self.clock = StillClock()
        self.scheduler: LRScheduler | ChainedScheduler | None = None

    def run(self, steps_every: int = 1, scaler: torch.amp.GradScaler | None = None) -> list[float]:
        """Return the rates of the first group at each step of the optimizer."""
        budget = Budget(seconds=1e6, monotonic_s=self.clock.monotonic_s)
        batches, found = [torch.ones(2, 4)] * 10, []
        for _ in budget.epochs():
            for number, batch in enumerate(
                budgeted(batches, self.model, self.optimizer, budget, steps=STEPS), 1
            ):
                loss = self.model(batch).pow(2).mean() / steps_every
                (scaler.scale(loss) if scaler else loss).backward()
                if number % steps_every == 0:
                    self.step(scaler)
                    found.append(float(self.optimizer.param_groups[0]["lr"]))
                    self.by_group.append([group["lr"] for group in self.optimizer.param_groups])
                    if self.scheduler is not None:
                        self.scheduler.step()
                self.clock.sleep(0.1)
        return found

    def step(self, scaler: torch.amp.GradScaler | None) -> None:
        if scaler is None:
            self.optimizer.step()
        else:
            scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            scaler.step(self.optimizer)
            scaler.update()
        self.optimizer.zero_grad()


@pytest.fixture(autouse=True)
def quiet() -> object:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".* steps ended with")
        yield


def test_each_step_has_the_peak_times_the_factor() -> None:
    assert RateLog().run() == pytest.approx(expected(PEAK))


def test_with_a_gradient_scaler() -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=1024)
    assert RateLog().run(scaler=scaler) == pytest.approx(expected(PEAK))


def test_a_step_that_a_scaler_skips_sets_no_rate() -> None:
    """The first scale makes the gradients infinite, so the scaler leaves out steps until it is lower."""
    log = RateLog()
    nn.init.constant_(log.model.weight, 100.0)
    weights = log.model.weight.detach().clone()
    found = log.run(scaler=torch.amp.GradScaler("cpu", init_scale=2.0**127, backoff_factor=2.0**-20))
    assert found[0] == PEAK
    assert found[-1] == pytest.approx(expected(PEAK)[-1])
    assert not torch.equal(weights, log.model.weight)


def test_with_gradient_accumulation() -> None:
    assert RateLog().run(steps_every=5) == pytest.approx(expected(PEAK)[4::5])


def test_groups_keep_the_ratio_of_their_rates() -> None:
    log = RateLog()
    log.optimizer = AdamW(
        [{"params": [log.model.weight], "lr": 0.1}, {"params": [log.model.bias], "lr": 0.002}]
    )
    log.run()
    assert [rates[0] for rates in log.by_group] == pytest.approx(expected(0.1))
    assert [rates[1] for rates in log.by_group] == pytest.approx(expected(0.002))


def test_a_group_that_is_added_later_has_its_own_peak() -> None:
    log = RateLog()
    log.optimizer = SGD([log.model.weight], lr=PEAK)
    budget = Budget(seconds=1e6, monotonic_s=log.clock.monotonic_s)
    for number, _ in enumerate(budgeted([torch.ones(2, 4)] * 10, log.model, log.optimizer, budget, steps=10)):
        if number == 5:
            log.optimizer.add_param_group({"params": [log.model.bias], "lr": 0.01})
        log.step(None)
    assert log.optimizer.param_groups[1]["lr"] == pytest.approx(0.01 * rate_factor(0.95))


@pytest.mark.parametrize("name", ["warm-up from 0", "chained", "one cycle", "cosine"])
def test_a_scheduler_of_the_script_is_overwritten_which_is_said_once(name: str) -> None:
    log = RateLog()
    optimizer = log.optimizer
    if name == "warm-up from 0":
        log.scheduler = LinearLR(optimizer, start_factor=1e-9, total_iters=10)
        assert optimizer.param_groups[0]["lr"] < 1e-6
    elif name == "chained":
        log.scheduler = ChainedScheduler(
            [CosineAnnealingLR(optimizer, 10), MultiplicativeLR(optimizer, lambda step: 1.5)]
        )
    elif name == "one cycle":
        log.scheduler = OneCycleLR(optimizer, max_lr=PEAK, total_steps=STEPS + 1)
    else:
        log.scheduler = CosineAnnealingLR(optimizer, STEPS)
    with pytest.warns(UserWarning, match="the script's learning rate scheduler is overwritten") as found:
        rates = log.run()
    assert sum("scheduler is overwritten" in str(each.message) for each in found) == 1
    assert rates == pytest.approx(expected(PEAK))


def test_a_rate_that_is_a_tensor_is_changed_in_place() -> None:
    log = RateLog()
    rate = torch.tensor(PEAK)
    log.optimizer = AdamW(log.model.parameters(), lr=rate, foreach=False, capturable=False)
    assert log.run() == pytest.approx(expected(PEAK), abs=1e-6)
    assert log.optimizer.param_groups[0]["lr"] is rate


def test_without_a_scheduler_nothing_is_said() -> None:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        log = SmallTraining()
        log.run(Budget(seconds=50, monotonic_s=log.clock.monotonic_s))
    assert [str(each.message) for each in found if "folder" not in str(each.message)] == []
