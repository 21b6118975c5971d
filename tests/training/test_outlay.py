"""What is kept back for leaving follows what looks and checkpoints really take."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shoestring.training.control.step_costs import LEAVING_S, LOOK_TIMES, RING, SAVE_TIMES, Outlay

seconds = st.floats(0, 100)


def test_the_first_real_look_replaces_the_estimate() -> None:
    outlay = Outlay(look_s=9.0)
    outlay.looked(1.0)
    assert outlay.exit_s == LEAVING_S + LOOK_TIMES * 1.0


@given(st.lists(seconds, min_size=1, max_size=20))
def test_the_slowest_of_the_recent_looks_stands_for_the_next(looks: list[float]) -> None:
    outlay = Outlay(look_s=0.0)
    for look_s in looks:
        outlay.looked(look_s)
    assert outlay.look_s == max(looks[-RING:])


@given(st.lists(seconds, max_size=9), st.lists(seconds, max_size=9), st.floats(0, 1), st.booleans())
def test_after_the_slowest_look_or_save_leaving_still_fits(
    looks: list[float], saves: list[float], share: float, looking: bool
) -> None:
    """What has to be left beforehand covers the look or save itself and what `exit_s` has become by it."""
    outlay = Outlay(look_s=1.0)
    for look_s in looks:
        outlay.looked(look_s)
    for save_s in saves:
        outlay.saved(save_s)
    left_s = outlay.exit_s + (outlay.look_more_s if looking else outlay.save_more_s)
    if looking:
        took_s = share * LOOK_TIMES * outlay.look_s
        outlay.looked(took_s)
    else:
        took_s = share * SAVE_TIMES * outlay.save_s
        outlay.saved(took_s)
    assert took_s + outlay.exit_s <= left_s + 1e-9
