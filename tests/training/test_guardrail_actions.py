"""A training's own guardrails: an epoch that costs too much, a model that is not good enough; each action is done and said."""

from __future__ import annotations

import math
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up import encoding_of, table
from pydantic import ValidationError
from small_world import Bench, class_prior_loss

from shoestring.config.adaptation import AdaptationLimits
from shoestring.config.guardrails import EpochCap, Guardrails, SkillFloor
from shoestring.core.datasets import Encoding, Feature
from shoestring.core.errors import StageStopped
from shoestring.data.recipe import TrainSettings
from shoestring.spending.meter import Meter
from shoestring.training.control.guardrails import (
    MAX_ROLLBACKS,
    epoch_cost_violation,
    prior_loss,
    skill_score,
    skill_violation,
)
from shoestring.training.torch_.loop import Training

LEARNS = TrainSettings(max_epochs=8, hidden=(8,), bins=2, batch_rows=32, patience=99, learning_rate=0.02)
PRICED = Meter(Decimal("3.6"), 0.0, Decimal(10), None)
NUMBER = Feature(name="number", kind="numeric")


def test_a_model_that_knows_nothing_has_the_loss_of_its_targets_spread() -> None:
    train, signal = table(3000, 0), table(3000, 1)
    assert prior_loss(encoding_of(train)) == pytest.approx(class_prior_loss(train, signal), rel=0.02)
    assert prior_loss(Encoding(features=(NUMBER,), task="regression", train_prior=(5.0, 2.5))) == 2.5
    three = Encoding(
        features=(NUMBER,), task="multiclass", classes=("a", "b", "c"), train_prior=(0.5, 0.5, 0.0)
    )
    assert prior_loss(three) == pytest.approx(math.log(2))


@given(st.floats(0, 10), st.floats(0.1, 10))
def test_skill_is_nothing_for_who_knows_nothing_and_one_without_error(loss: float, nothing: float) -> None:
    assert skill_score(nothing, nothing) == 0
    assert skill_score(0.0, nothing) == 1 >= skill_score(loss, nothing)
    assert skill_score(loss, 0.0) == 0


@given(st.floats(-1, 1), st.floats(0, 5), st.floats(0, 1))
def test_a_floor_counts_from_its_epochs_on_or_from_its_share_of_the_budget(
    skill: float, epochs: float, share: float
) -> None:
    said = skill_violation(SkillFloor(min=0.2, after_epochs=2, after_share=0.5), skill, epochs, share)
    assert bool(said) == (skill < 0.2 and (epochs >= 2 or share >= 0.5))


@given(st.integers(0, 10**6), st.floats(0.1, 3))
def test_an_epoch_is_too_dear_by_what_some_of_it_cost(microusd: int, epochs: float) -> None:
    said = epoch_cost_violation(EpochCap(max_usd=Decimal("0.10")), Decimal(microusd) / 10**6, epochs)
    assert bool(said) == (round(microusd / epochs) > 100_000) or abs(microusd / epochs - 100_000) < 1


@pytest.mark.parametrize("action", ["stop", "pause", "roll-back"])
def test_a_training_that_is_never_good_enough_is_stopped_with_its_checkpoint(
    tmp_path: Path, action: str
) -> None:
    rails = Guardrails(skill=SkillFloor(min=0.99, after_epochs=1.5, action=action))
    bench = Bench(tmp_path, settings=LEARNS, guardrails=rails)
    with pytest.raises(
        StageStopped, match=r"guardrail skill: 0\.\d+ after 1\.50 epochs .* below the minimum of 0\.99"
    ) as stopped:
        bench.training().run()
    assert stopped.value.cause == ("stop-requested" if action == "pause" else "guardrail")
    assert [(change.lever, change.after, change.samples) for change in bench.changes] == [
        ("guardrail", "stopped", 450)
    ]
    assert action in bench.changes[0].reason
    assert (tmp_path / "runs/one/checkpoints/train.json").is_file()


def test_a_training_that_is_good_enough_is_left_alone(tmp_path: Path) -> None:
    rails = Guardrails(
        skill=SkillFloor(min=0.05, after_epochs=2, action="stop"),
        usd_per_epoch=EpochCap(max_usd=Decimal(1)),
    )
    guarded = Bench(tmp_path / "guarded", settings=LEARNS, guardrails=rails).training().run()
    alone = Bench(tmp_path / "alone", settings=LEARNS).training().run()
    assert guarded.weights == alone.weights
    assert guarded.state.changes == []


def broken_at(training: Training, bench: Bench, samples: int) -> None:
    """Once, at so many samples, just before a look, its weights are spoilt, as by a rate or a batch that was too much for it."""
    left = [samples]

    def spoil(*_: object) -> None:
        if left and training.state.samples >= left[0]:
            left.clear()
            for weight in (*training.learner.net.parameters(), *training.learner.average.parameters()):
                weight.data.mul_(-3.0)

    bench.step_s = lambda: spoil() or 0.0


def test_one_that_gets_worse_goes_back_to_where_it_was_good_and_ends_well(tmp_path: Path) -> None:
    rails = Guardrails(skill=SkillFloor(min=0.25, after_epochs=3, action="roll-back"))
    bench = Bench(tmp_path, settings=LEARNS, guardrails=rails)
    training = bench.training()
    broken_at(training, bench, 1330)
    trained = training.run()
    backs = [change for change in trained.state.changes if change.lever == "guardrail"]
    assert 1 <= len(backs) <= MAX_ROLLBACKS
    assert backs[0].after == "weights at 1,200 samples, learning rate times 0.5"
    assert "action: roll-back" in backs[0].reason
    assert trained.state.samples == 8 * 300
    assert trained.val_loss is not None
    assert skill_score(trained.val_loss, prior_loss(encoding_of(bench.train))) >= 0.25


def test_one_that_keeps_getting_worse_goes_back_so_often_and_is_then_stopped_also_across_starts(
    tmp_path: Path,
) -> None:
    """Each start goes on from a checkpoint that knows how often it has gone back, and to where."""
    rails = Guardrails(skill=SkillFloor(min=0.25, after_epochs=3, action="roll-back"))
    bench = Bench(tmp_path, settings=LEARNS.model_copy(update={"max_epochs": 30}), guardrails=rails)
    backs, going = 0, list[Training]()
    # A start is told to stop once it has gone back.
    bench.should_stop = lambda: going[-1].state.rollbacks > len(going) - 1
    for start in range(MAX_ROLLBACKS + 1):
        going.append(training := bench.training())
        assert training.state.rollbacks == backs
        broken_at(training, bench, training.state.samples + 580 if start else 1330)
        with pytest.raises(StageStopped) as stopped:
            training.run()
        backs = training.state.rollbacks
    assert backs == MAX_ROLLBACKS
    assert training.state.rate_factor == 0.25
    assert stopped.value.cause == "guardrail"


def dear(folder: Path, action: str, **also: float) -> Bench:
    """A tenth of a second a step, ten steps an epoch, at $0.001 a second; an epoch may cost half of that."""
    rails = Guardrails(usd_per_epoch=EpochCap(max_usd=Decimal("0.0005"), action=action))
    settings = LEARNS.model_copy(update={"max_epochs": 16})
    bench = Bench(
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
    bench = dear(tmp_path, action)
    with pytest.raises(
        StageStopped,
        match=r"guardrail usd_per_epoch: an epoch costs \$0\.00\d+, above the maximum of \$0\.0005",
    ) as stopped:
        bench.training().run()
    assert stopped.value.cause == ("stop-requested" if action == "pause" else "guardrail")
    assert [change.samples for change in bench.changes] == [640]


def test_rebalance_changes_one_thing_after_the_other_gentlest_first_inside_the_bounds_and_then_stops(
    tmp_path: Path,
) -> None:
    bench = dear(tmp_path, "rebalance", min_validation_share=0.5, max_batch_factor=2.0)
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


def test_a_larger_batch_that_makes_an_epoch_cheap_enough_is_all_that_is_done(tmp_path: Path) -> None:
    bench = dear(tmp_path, "rebalance")
    bench.guardrails = Guardrails(usd_per_epoch=EpochCap(max_usd=Decimal("0.002"), action="rebalance"))
    trained = bench.training().run()
    batches = [change for change in trained.state.changes if change.lever == "batch"]
    assert [change.after for change in batches] == ["40 rows"]
    assert trained.state.samples == 16 * 640


@pytest.mark.parametrize(
    ("given", "said"),
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
def test_what_makes_no_sense_is_refused_with_a_sentence(given: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Guardrails.model_validate(given)


def test_what_is_guarded_is_told_in_sentences() -> None:
    rails = Guardrails.model_validate(
        {
            "joules": {"max": 600},
            "usd_per_epoch": {"max_usd": "0.05", "action": "rebalance"},
            "skill": {"min": 0.1, "after_epochs": 2, "after_share": 0.5, "action": "roll-back"},
        }
    )
    assert rails.sentences(trains=True) == (
        "guardrail joules: at most 600 J, else stop",
        "guardrail usd_per_epoch: at most $0.050000, else rebalance",
        "guardrail skill: at least 0.1 after 2 epochs, or 50% of the budget, else roll-back",
    )
    assert rails.sentences(trains=False) == ("guardrail joules: at most 600 J, else stop",)
