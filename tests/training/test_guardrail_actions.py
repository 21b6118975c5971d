"""The guardrails of a training: the cost of an epoch and the skill floor, with every action recorded."""

from __future__ import annotations

import math
from decimal import Decimal
from pathlib import Path

import pytest
from clocks import BOOT_S
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from small_dataset import encoding_of, table
from training_bench import TrainingBench, class_prior_loss, net_learner

from shoestring.config.adaptation import AdaptationLimits
from shoestring.config.guardrails import EpochCap, Guardrails, SkillFloor
from shoestring.core.datasets import Encoding, Feature
from shoestring.core.errors import StageStopped
from shoestring.spending.meter import Meter
from shoestring.training.control.guardrails import (
    MAX_ROLLBACKS,
    epoch_cost_violation,
    prior_loss,
    skill_score,
    skill_violation,
)
from shoestring.training.families.table_net.settings import TableNetSettings
from shoestring.training.loop import Training

LEARNS = TableNetSettings(max_epochs=8, hidden=(8,), bins=2, batch_rows=32, patience=99, learning_rate=0.02)
PRICED = Meter(Decimal("3.6"), BOOT_S, Decimal(10), None)
NUMBER = Feature(name="number", kind="numeric")


def test_the_prior_loss_is_the_spread_of_the_targets() -> None:
    train, signal = table(3000, 0), table(3000, 1)
    assert prior_loss(encoding_of(train)) == pytest.approx(class_prior_loss(train, signal), rel=0.02)
    assert prior_loss(Encoding(features=(NUMBER,), task="regression", train_prior=(5.0, 2.5))) == 2.5
    three = Encoding(
        features=(NUMBER,), task="multiclass", classes=("a", "b", "c"), train_prior=(0.5, 0.5, 0.0)
    )
    assert prior_loss(three) == pytest.approx(math.log(2))


@given(st.floats(0, 10), st.floats(0.1, 10))
def test_skill_is_0_for_the_prior_and_1_without_error(loss: float, nothing: float) -> None:
    assert skill_score(nothing, nothing) == 0
    assert skill_score(0.0, nothing) == 1 >= skill_score(loss, nothing)
    assert skill_score(loss, 0.0) == 0


@given(st.floats(-1, 1), st.floats(0, 5), st.floats(0, 1))
def test_a_skill_floor_applies_after_its_epochs_or_its_share_of_the_budget(
    skill: float, epochs: float, share: float
) -> None:
    message = skill_violation(SkillFloor(min=0.2, after_epochs=2, after_share=0.5), skill, epochs, share)
    assert bool(message) == (skill < 0.2 and (epochs >= 2 or share >= 0.5))


@given(st.integers(0, 10**6), st.floats(0.1, 3))
def test_the_cost_of_an_epoch_is_extrapolated_from_a_part_of_it(microusd: int, epochs: float) -> None:
    message = epoch_cost_violation(EpochCap(max_usd=Decimal("0.10")), Decimal(microusd) / 10**6, epochs)
    assert bool(message) == (round(microusd / epochs) > 100_000) or abs(microusd / epochs - 100_000) < 1


@pytest.mark.parametrize("action", ["stop", "pause", "roll-back"])
def test_a_training_below_its_skill_floor_is_stopped_with_a_checkpoint(tmp_path: Path, action: str) -> None:
    limits = Guardrails(skill=SkillFloor(min=0.99, after_epochs=1.5, action=action))
    bench = TrainingBench(tmp_path, settings=LEARNS, guardrails=limits)
    with pytest.raises(
        StageStopped, match=r"guardrail skill: 0\.\d+ after 1\.71 epochs .* below the minimum of 0\.99"
    ) as stopped:
        bench.training().run()
    assert stopped.value.cause == ("stop-requested" if action == "pause" else "guardrail")
    assert [(change.lever, change.after, change.samples) for change in bench.changes] == [
        ("guardrail", "stopped", 512)
    ]
    assert action in bench.changes[0].reason
    assert (tmp_path / "runs/one/checkpoints/train.json").is_file()


def test_a_training_within_its_guardrails_is_unchanged(tmp_path: Path) -> None:
    limits = Guardrails(
        skill=SkillFloor(min=0.05, after_epochs=2, action="stop"),
        usd_per_epoch=EpochCap(max_usd=Decimal(1)),
    )
    guarded = TrainingBench(tmp_path / "guarded", settings=LEARNS, guardrails=limits).training().run()
    alone = TrainingBench(tmp_path / "alone", settings=LEARNS).training().run()
    assert guarded.weights == alone.weights
    assert guarded.state.changes == []


def spoil_at(training: Training, bench: TrainingBench, samples: int) -> None:
    """Spoil the weights once, just before a validation, as too high a learning rate would."""
    left = [samples]

    def spoil(*_: object) -> None:
        if left and training.state.samples >= left[0]:
            left.clear()
            for weight in (
                *net_learner(training).net.parameters(),
                *net_learner(training).average.parameters(),
            ):
                weight.data.mul_(-3.0)

    bench.step_s = lambda: spoil() or 0.0


def test_a_training_that_gets_worse_rolls_back_and_recovers(tmp_path: Path) -> None:
    limits = Guardrails(skill=SkillFloor(min=0.25, after_epochs=3, action="roll-back"))
    bench = TrainingBench(tmp_path, settings=LEARNS, guardrails=limits)
    training = bench.training()
    spoil_at(training, bench, 1330)
    trained = training.run()
    rollbacks = [change for change in trained.state.changes if change.lever == "guardrail"]
    assert 1 <= len(rollbacks) <= MAX_ROLLBACKS
    assert rollbacks[0].after == "weights at 1,024 samples, learning rate times 0.5"
    assert "action: roll-back" in rollbacks[0].reason
    assert trained.state.samples == 8 * 300
    assert trained.val_loss is not None
    assert skill_score(trained.val_loss, prior_loss(encoding_of(bench.train))) >= 0.25


def test_rollbacks_are_limited_over_all_starts(
    tmp_path: Path,
) -> None:
    """Each start resumes from a checkpoint with the number of rollbacks and the rollback point."""
    limits = Guardrails(skill=SkillFloor(min=0.25, after_epochs=3, action="roll-back"))
    bench = TrainingBench(tmp_path, settings=LEARNS.model_copy(update={"max_epochs": 30}), guardrails=limits)
    rollbacks, starts = 0, list[Training]()
    # Each start is stopped after its rollback.
    bench.should_stop = lambda: starts[-1].state.controller.rollbacks > len(starts) - 1
    for start in range(MAX_ROLLBACKS + 1):
        starts.append(training := bench.training())
        assert training.state.controller.rollbacks == rollbacks
        spoil_at(training, bench, training.state.samples + 580 if start else 1330)
        with pytest.raises(StageStopped) as stopped:
            training.run()
        rollbacks = training.state.controller.rollbacks
    assert rollbacks == MAX_ROLLBACKS
    assert training.state.controller.rate_factor == 0.25
    assert stopped.value.cause == "guardrail"


def expensive(folder: Path, action: str, **also: float) -> TrainingBench:
    """A step takes 0.1 s, an epoch 10 steps, at $0.001 a second; an epoch may cost half of that."""
    rails = Guardrails(usd_per_epoch=EpochCap(max_usd=Decimal("0.0005"), action=action))
    settings = LEARNS.model_copy(update={"max_epochs": 16})
    bench = TrainingBench(
        folder,
        train=table(640, 0),
        settings=settings,
        meter=PRICED,
        guardrails=rails,
        limits=AdaptationLimits(**also),
    )
    bench.step_s = lambda: 0.1
    return bench


@pytest.mark.parametrize("action", ["stop", "pause"])
def test_a_training_whose_epochs_cost_too_much_is_stopped(tmp_path: Path, action: str) -> None:
    bench = expensive(tmp_path, action)
    with pytest.raises(
        StageStopped,
        match=r"guardrail usd_per_epoch: an epoch costs \$0\.00\d+, above the maximum of \$0\.0005",
    ) as stopped:
        bench.training().run()
    assert stopped.value.cause == ("stop-requested" if action == "pause" else "guardrail")
    assert [change.samples for change in bench.changes] == [2 * 640]


def test_rebalance_changes_one_setting_at_a_time_within_the_limits_and_then_stops(
    tmp_path: Path,
) -> None:
    bench = expensive(tmp_path, "rebalance", min_validation_share=0.5, max_batch_factor=2.0)
    bench.validation_s = lambda: 0.3
    with pytest.raises(StageStopped, match="no further saving is possible"):
        bench.training().run()
    levers = [change.lever for change in bench.changes]
    assert levers[0] == "validation" and levers[-1] == "guardrail"
    assert levers.index("batch") < levers.index("pool")
    assert all(
        "usd_per_epoch" in change.reason
        for change in bench.changes
        if change.lever in ("validation", "pool", "guardrail")
    )


def test_rebalance_stops_changing_once_an_epoch_is_cheap_enough(tmp_path: Path) -> None:
    bench = expensive(tmp_path, "rebalance")
    bench.guardrails = Guardrails(usd_per_epoch=EpochCap(max_usd=Decimal("0.002"), action="rebalance"))
    trained = bench.training().run()
    batches = [change for change in trained.state.changes if change.lever == "batch"]
    assert [change.after for change in batches] == ["40 rows"]
    assert trained.state.samples == 16 * 640


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"usd_per_epoch": {"max_usd": "0.1", "action": "throttle"}},
            "throttle is no action for usd_per_epoch: choose rebalance, pause, stop",
        ),
        ({"usd_per_epoch": {"max_usd": "0"}}, "greater than 0"),
        (
            {"skill": {"min": 0.1, "action": "rebalance"}},
            "rebalance is no action for skill: choose roll-back, pause, stop",
        ),
        ({"joules": {"max": 1, "action": "roll-back"}}, "roll-back is no action for joules"),
        ({"skill": {"min": 1.0}}, "less than 1"),
        ({"skill": {"min": 0.1, "after_share": 0}}, "greater than 0"),
        ({"skill": {"min": 0.1, "after_epochs": -1}}, "greater than or equal to 0"),
    ],
)
def test_invalid_guardrails_are_refused_with_the_reason(given: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Guardrails.model_validate(given)


def test_guardrails_are_described_in_sentences() -> None:
    guardrails = Guardrails.model_validate(
        {
            "joules": {"max": 600},
            "usd_per_epoch": {"max_usd": "0.05", "action": "rebalance"},
            "skill": {"min": 0.1, "after_epochs": 2, "after_share": 0.5, "action": "roll-back"},
        }
    )
    assert guardrails.sentences(trains=True) == (
        "guardrail joules: at most 600 J, else stop",
        "guardrail usd_per_epoch: at most $0.050000, else rebalance",
        "guardrail skill: at least 0.1 after 2 epochs, or 50% of the budget, else roll-back",
    )
    assert guardrails.sentences(trains=False) == ("guardrail joules: at most 600 J, else stop",)
