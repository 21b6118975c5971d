"""The time reserved for the exit follows the measured validations and checkpoints."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shoestring.training.control.step_costs import (
    CHECKPOINT_MARGIN,
    REMEMBERED,
    SHUTDOWN_S,
    VALIDATION_MARGIN,
    StepCosts,
)

seconds = st.floats(0, 100)


def test_the_first_validation_replaces_the_estimate() -> None:
    costs = StepCosts(validation_s=9.0)
    costs.record_validation(1.0)
    assert costs.exit_s == SHUTDOWN_S + VALIDATION_MARGIN * 1.0


@given(st.lists(seconds, min_size=1, max_size=20))
def test_the_slowest_recent_validation_predicts_the_next(validations: list[float]) -> None:
    costs = StepCosts(validation_s=0.0)
    for validation_s in validations:
        costs.record_validation(validation_s)
    assert costs.validation_s == max(validations[-REMEMBERED:])


@given(st.lists(seconds, max_size=9), st.lists(seconds, max_size=9), st.floats(0, 1), st.booleans())
def test_the_exit_still_fits_after_the_slowest_validation_or_checkpoint(
    validations: list[float], checkpoints: list[float], share: float, validating: bool
) -> None:
    """The reserve covers the validation or checkpoint itself, and the `exit_s` after it."""
    costs = StepCosts(validation_s=1.0)
    for validation_s in validations:
        costs.record_validation(validation_s)
    for checkpoint_s in checkpoints:
        costs.record_checkpoint(checkpoint_s)
    left_s = costs.exit_s + (costs.validation_reserve_s if validating else costs.checkpoint_reserve_s)
    if validating:
        elapsed_s = share * VALIDATION_MARGIN * costs.validation_s
        costs.record_validation(elapsed_s)
    else:
        elapsed_s = share * CHECKPOINT_MARGIN * costs.checkpoint_s
        costs.record_checkpoint(elapsed_s)
    assert elapsed_s + costs.exit_s <= left_s + 1e-9
