"""Training never exceeds its budget or deadline, for any duration of steps, validations and checkpoints
and any price, and always leaves a model.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from clocks import BOOT_S, StillClock
from examples import examples
from hypothesis import example, given
from hypothesis import strategies as st
from small_dataset import table
from training_bench import TrainingBench, stop_after

from shoestring.core.errors import StageStopped
from shoestring.pricing.checkpoint_interval import CHECKPOINT_EVERY_S
from shoestring.spending.meter import Meter, cost_usd
from shoestring.training.families.table_net.settings import TableNetSettings
from shoestring.training.losses.fitting import FIT_S
from shoestring.training.session import PREDICTING
from shoestring.training.task import TrainedModel

SMALL = TableNetSettings(max_epochs=10, hidden=(4,), bins=2, batch_rows=64, patience=3)


def write_model(bench: TrainingBench, trained: TrainedModel) -> None:
    """Write the weights and the model record, as the stage does."""
    bench.store.put("blobs/weights", trained.weights)
    bench.store.put("runs/one/model.json", b"{}")


def drifting(first_s: float, chance: random.Random) -> Callable[[], float]:
    """Return step durations that vary, but never exceed twice the slowest of the last 30."""
    recent = deque([first_s], maxlen=30)

    def step_s() -> float:
        recent.append(min(2.0, max(recent) * chance.uniform(0.2, 2)))
        return recent[-1]

    return step_s


@given(
    budget_s=st.floats(3.0, 40.0),
    usd_per_hour=st.sampled_from(["0", "0.0004", "0.04", "3.5"]),
    due=st.booleans(),
    step_s=st.floats(0.02, 0.2),
    validation_s=st.floats(0.0, 1.2),
    put_s=st.floats(0.0, 0.1),
    stops=st.lists(st.integers(1, 60), max_size=2),
    epochs=st.sampled_from([10, 10**6]),
    seed=st.integers(0, 1000),
)
@examples(30)
def test_budget_and_deadline_are_never_exceeded(
    budget_s: float,
    usd_per_hour: str,
    due: bool,
    step_s: float,
    validation_s: float,
    put_s: float,
    stops: list[int],
    epochs: int,
    seed: int,
) -> None:
    """Steps and writes take up to 2 times, validations up to 1.5 times as long as before. Of many epochs some
    steps are measured."""
    price = Decimal(usd_per_hour)
    deadline_s = BOOT_S + budget_s if due or not price else None
    meter = Meter(
        price, BOOT_S, cost_usd(price, budget_s if deadline_s is None else 2 * budget_s), deadline_s
    )
    chance, clock = random.Random(seed), StillClock()
    with TemporaryDirectory() as folder:
        settings = SMALL.model_copy(update={"max_epochs": epochs})
        bench = TrainingBench(Path(folder), settings=settings, clock=clock, meter=meter)
        bench.step_s = drifting(step_s, chance)
        bench.validation_s = lambda: validation_s * chance.uniform(1, 1.5)
        bench.put_s = lambda: put_s * chance.uniform(1, 2)
        for steps in stops:
            # A stopped start writes its checkpoint in the grace period; the next start has its own budget.
            with pytest.raises(StageStopped):
                replace(
                    bench, meter=Meter(Decimal(0), BOOT_S, Decimal(0), None), should_stop=stop_after(steps)
                ).training().run()
            clock.at_s = 0.0
        trained = bench.training().run()
        write_model(bench, trained)
    assert clock.monotonic_s() <= meter.ends_s
    assert meter.spent_usd(clock.monotonic_s()) <= meter.limit_usd
    assert trained.weights


@given(
    budget_s=st.floats(3.0, 30.0),
    step_s=st.floats(0.05, 0.2),
    validation_s=st.floats(0.0, 0.3),
    seed=st.integers(0, 1000),
)
@examples(15)
@example(budget_s=3.0, step_s=0.09375, validation_s=0.25, seed=0)
def test_the_budget_is_used_up(budget_s: float, step_s: float, validation_s: float, seed: int) -> None:
    """Only the time that the guard reserves for the exit is left, based on the slowest validation so far."""
    chance, clock = random.Random(seed), StillClock()
    endless = SMALL.model_copy(update={"max_epochs": 10**6, "patience": 10**6})
    with TemporaryDirectory() as folder:
        bench = TrainingBench(
            Path(folder),
            settings=endless,
            clock=clock,
            meter=Meter(Decimal("0.04"), BOOT_S, Decimal(1), BOOT_S + budget_s),
        )
        bench.step_s = lambda: step_s * chance.uniform(1, 2)
        bench.validation_s = lambda: validation_s * chance.uniform(1, 1.5)
        training = bench.training()
        trained = training.run()
        last = bench.points()[-1]
    assert trained.stop_reason == "the budget or the deadline was reached"
    exit_s, last_step_s = training.measured.guard.exit_s, 2 * max(0.2, 2 * step_s)
    assert budget_s - clock.at_s <= exit_s + last_step_s + validation_s / 2 + 1e-6
    assert last.learning_rate == 0.0


def test_a_training_that_its_money_ends_leaves_time_for_a_temperature_from_all_validation_rows(
    tmp_path: Path,
) -> None:
    """However few of them the last validations read."""
    clock, validation_s = StillClock(), 0.4
    endless = SMALL.model_copy(update={"max_epochs": 10**6, "patience": 10**6})
    meter = Meter(Decimal("0.04"), BOOT_S, Decimal(1), BOOT_S + 60.0)
    bench = TrainingBench(tmp_path, settings=endless, clock=clock, meter=meter)
    bench.step_s, bench.validation_s = lambda: 0.1, lambda: validation_s
    training = bench.training()
    training.measured.costs.scale_validation(0.25)
    training.measured.record_validation(validation_s / 4)
    assert training.measured.costs.whole_validation_s == pytest.approx(validation_s)
    trained = training.run()
    assert trained.stop_reason == "the budget or the deadline was reached"
    left_s = meter.seconds_left(clock.monotonic_s())
    assert left_s >= FIT_S + PREDICTING * validation_s + training.measured.costs.writing_s


@pytest.mark.parametrize("budget_s", [0.0, 0.5, 0.7, 1.0])
def test_a_budget_too_small_for_a_step_gives_the_prior(tmp_path: Path, budget_s: float) -> None:
    bench = TrainingBench(
        tmp_path,
        meter=Meter(Decimal("0.04"), BOOT_S, Decimal(1), BOOT_S + budget_s),
        validation_s=lambda: 0.01,
    )
    training = bench.training()
    assert training.measured.position().left_s <= 0.4
    trained = training.run()
    assert (trained.weights_source, trained.state.samples, trained.state.sample_ranges) == ("prior", 0, ())
    assert trained.stop_reason == "the budget or the deadline left no time for a first step"
    assert bench.clock.at_s <= max(0.02, budget_s)
    assert (trained.val_loss is None) == (budget_s < 0.63)


def test_the_time_for_the_last_validation_is_never_used_earlier(tmp_path: Path) -> None:
    """A run that validates midway and then may not step any more needs two validations."""
    for budget_s in [4.4 + share / 10 for share in range(40)]:
        bench = TrainingBench(
            tmp_path / str(budget_s), meter=Meter(Decimal("0.04"), BOOT_S, Decimal(1), BOOT_S + budget_s)
        )
        bench.validation, bench.step_s, bench.validation_s = table(1000, 1), lambda: 0.3, lambda: 1.5
        bench.training().run()
        assert bench.clock.at_s <= budget_s
        assert bench.points()[-1].learning_rate == 0.0


def test_a_checkpoint_never_uses_the_time_reserved_for_the_exit(tmp_path: Path) -> None:
    """A checkpoint is due one second after the start, at any distance from the end."""
    for budget_s in [1.7 + share / 20 for share in range(40)]:
        bench = TrainingBench(
            tmp_path / str(budget_s), meter=Meter(Decimal("0.04"), BOOT_S, Decimal(1), BOOT_S + budget_s)
        )
        bench.step_s, bench.put_s = lambda: 0.02, lambda: 0.19
        training = bench.training()
        training.measured.saved_s = BOOT_S + 1.0 - CHECKPOINT_EVERY_S
        write_model(bench, training.run())
        assert bench.clock.at_s <= budget_s
