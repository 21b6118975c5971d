"""Which trainings other runs can use: those that more money and time would not have changed."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from training_bench import TINY, TrainingBench, same_weights

from shoestring.config.adaptation import AdaptationLimits
from shoestring.core.receipt import AdaptationChange
from shoestring.spending.meter import Meter
from shoestring.training.task import TrainedModel
from shoestring.training.training_state import depends_on_limits

SETTINGS = TINY.model_copy(update={"max_epochs": 12, "learning_rate": 0.05})


def trained(
    budget_s: float, step_s: float, patience: int, limits: AdaptationLimits | None = None
) -> TrainedModel:
    """Train with a deadline after `budget_s` seconds on a clock that only steps move."""
    with TemporaryDirectory() as folder:
        bench = TrainingBench(Path(folder), settings=SETTINGS.model_copy(update={"patience": patience}))
        now_s = bench.clock.monotonic_s()
        bench = replace(
            bench,
            meter=Meter(Decimal("0.04"), now_s, Decimal(1), now_s + budget_s),
            step_s=lambda: step_s,
            limits=limits or AdaptationLimits(),
        )
        return bench.training().run()


@examples(24)
@given(
    budget_s=st.floats(1.0, 40.0),
    step_s=st.floats(0.01, 0.3),
    patience=st.sampled_from([1, 2, 99]),
    length=st.booleans(),
)
def test_a_training_that_does_not_depend_on_limits_is_the_same_with_more_time(
    budget_s: float, step_s: float, patience: int, length: bool
) -> None:
    limits = AdaptationLimits(length=length, min_validation_share=1.0, max_batch_factor=1.0)
    found = trained(budget_s, step_s, patience, limits)
    if depends_on_limits(found.state):
        return
    richer = trained(10 * budget_s, step_s, patience, limits)
    assert same_weights(found.weights, richer.weights)
    assert (found.val_loss, found.stop_reason) == (richer.val_loss, richer.stop_reason)


@pytest.mark.parametrize("patience", [1, 99])
def test_a_training_with_time_enough_does_not_depend_on_limits(patience: int) -> None:
    found = trained(1000.0, 0.01, patience)
    assert not depends_on_limits(found.state)
    assert ("stopped improving" if patience == 1 else "all 12 epochs") in found.stop_reason


def test_a_training_that_saved_time_on_the_way_and_ended_by_itself_does_not_depend_on_limits() -> None:
    found = trained(1000.0, 0.01, 1)
    change = AdaptationChange(
        at=datetime(2026, 1, 1, tzinfo=UTC), samples=1, lever="batch", before="1", after="2", reason=""
    )
    last = found.state.windows[-1]
    found.state.windows.append(last.model_copy(update={"changes": (change,)}))
    assert not depends_on_limits(found.state)
    guardrail = change.model_copy(update={"lever": "guardrail"})
    found.state.windows.append(last.model_copy(update={"changes": (guardrail,)}))
    assert depends_on_limits(found.state)


def test_a_training_that_time_ended_depends_on_limits() -> None:
    assert depends_on_limits(trained(2.0, 0.1, 99).state)
