"""What is kept back for leaving follows what looks and checkpoints really take."""

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


def test_the_first_real_look_replaces_the_estimate() -> None:
    costs = StepCosts(validation_s=9.0)
    costs.record_validation(1.0)
    assert costs.exit_s == SHUTDOWN_S + VALIDATION_MARGIN * 1.0


@given(st.lists(seconds, min_size=1, max_size=20))
def test_the_slowest_of_the_recent_looks_stands_for_the_next(looks: list[float]) -> None:
    costs = StepCosts(validation_s=0.0)
    for look_s in looks:
        costs.record_validation(look_s)
    assert costs.validation_s == max(looks[-REMEMBERED:])


@given(st.lists(seconds, max_size=9), st.lists(seconds, max_size=9), st.floats(0, 1), st.booleans())
def test_after_the_slowest_look_or_save_leaving_still_fits(
    looks: list[float], saves: list[float], share: float, looking: bool
) -> None:
    """What has to be left beforehand covers the look or save itself and what `exit_s` has become by it."""
    costs = StepCosts(validation_s=1.0)
    for look_s in looks:
        costs.record_validation(look_s)
    for save_s in saves:
        costs.record_checkpoint(save_s)
    left_s = costs.exit_s + (costs.validation_reserve_s if looking else costs.checkpoint_reserve_s)
    if looking:
        took_s = share * VALIDATION_MARGIN * costs.validation_s
        costs.record_validation(took_s)
    else:
        took_s = share * CHECKPOINT_MARGIN * costs.checkpoint_s
        costs.record_checkpoint(took_s)
    assert took_s + costs.exit_s <= left_s + 1e-9
