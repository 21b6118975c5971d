"""Start times: wait for a cheaper window, past a peak or behind a queue, within the maximum delay and the
deadline.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from shoestring.config.policy import DAYS, PriceWindow, Priority, StartPolicy
from shoestring.routing.policy.start_time import (
    StartTime,
    choose_start_time,
    mean_price_factor,
    price_factor,
    window_edges,
)

NOON = datetime(2026, 11, 4, 12, tzinfo=UTC)  # a Wednesday
NIGHT = PriceWindow(from_hour=22, to_hour=6, price_factor=0.5)
OFFICE = PriceWindow(
    days=("mon", "tue", "wed", "thu", "fri"), from_hour=8, to_hour=18, price_factor=1.2, peak=True
)
moments = st.integers(0, 365 * 86400).map(
    lambda seconds: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
)


@st.composite
def windows(draw: st.DrawFn) -> PriceWindow:
    first = draw(st.integers(0, 23))
    last = draw(st.integers(0, 24).filter(lambda hour: hour != first))
    days = draw(st.lists(st.sampled_from(DAYS), min_size=1, unique=True))
    return PriceWindow(
        days=tuple(days),
        from_hour=first,
        to_hour=last,
        price_factor=draw(st.floats(0.1, 3)),
        peak=draw(st.booleans()),
    )


start_policies = st.builds(
    StartPolicy,
    max_delay_s=st.floats(0, 172800),
    min_saving=st.floats(0, 1),
    windows=st.lists(windows(), max_size=3).map(tuple),
    yield_to_queue=st.integers(0, 3),
)


Case = tuple[datetime, StartPolicy, Priority, float, float, float | None, int]
"""Time, policy, priority, dollars and seconds expected, seconds to spare, and pending pods."""

priorities: st.SearchStrategy[Priority] = st.sampled_from(["low", "normal", "high"])
cases = st.tuples(
    moments,
    start_policies,
    priorities,
    st.floats(0, 100),
    st.floats(0, 1e5),
    st.none() | st.floats(-10, 1e5),
    st.integers(0, 5),
)


def start_time(case: Case) -> StartTime:
    now, rules, priority, est_usd, est_s, spare_s, queue = case
    return choose_start_time(now, rules, priority, est_usd=est_usd, est_s=est_s, spare_s=spare_s, queue=queue)


@st.composite
def cheap_nights(draw: st.DrawFn) -> Case:
    """Runs for which a cheap window of every day opens within the maximum delay, unless it is open."""
    first, hours = draw(st.integers(0, 23)), draw(st.integers(3, 12))
    factor = draw(st.floats(0.1, 0.8))
    night = PriceWindow(from_hour=first, to_hour=(first + hours) % 24, price_factor=factor)
    rules = StartPolicy(
        max_delay_s=draw(st.floats(86400, 172800)),
        min_saving=draw(st.floats(0, 0.5)),
        windows=(night, *draw(st.lists(windows(), max_size=2))),
    )
    spare_s = draw(st.none() | st.floats(86400, 1e6))
    return (
        draw(moments),
        rules,
        draw(priorities),
        draw(st.floats(0.01, 100)),
        draw(st.floats(60, 9000)),
        spare_s,
        0,
    )


waiting = cheap_nights().filter(lambda case: start_time(case).not_before is not None)
"""Runs that wait: most of those with a cheap night and without high priority."""


EVERY_NIGHT = StartPolicy(
    max_delay_s=86400.0,
    min_saving=0.0,
    windows=(PriceWindow(from_hour=0, to_hour=3, price_factor=0.21875),),
)
EQUAL_TOMORROW: Case = (datetime(2026, 1, 1, tzinfo=UTC), EVERY_NIGHT, "normal", 1.5, 105.41796875, None, 0)
"""Midnight is as cheap tomorrow as today; rounding alone makes one of them cheaper."""


@given(st.one_of(waiting, cases))
@example(EQUAL_TOMORROW)
def test_no_run_waits_beyond_the_maximum_or_the_deadline_and_urgent_runs_never_wait(case: Case) -> None:
    now, rules, priority, _, seconds, spare_s, _ = case
    found = start_time(case)
    if found.not_before is None:
        assert found.sentence == "starts now"
        return
    assert priority != "high" and found.sentence.startswith("not before ")
    wait_s = (found.not_before - now).total_seconds()
    assert 0 < wait_s <= rules.max_delay_s + 1e-5
    assert spare_s is None or wait_s <= spare_s + 1e-5
    if priority == "normal":
        saved = 1 - mean_price_factor(rules.windows, found.not_before, seconds) / mean_price_factor(
            rules.windows, now, seconds
        )
        assert saved > 0 and saved >= rules.min_saving - 1e-9


@given(moments, st.lists(windows(), max_size=3), st.floats(60, 200_000))
def test_the_price_is_constant_between_window_edges(
    now: datetime, found: list[PriceWindow], seconds: float
) -> None:
    edges = [now, *window_edges(found, now, seconds)]
    for first, last in pairwise(edges):
        inside = {price_factor(found, first + (last - first) * share) for share in (0.0, 0.3, 0.7)}
        assert len(inside) == 1


def start_of(priority: Priority = "normal", now: datetime = NOON, **more: Any) -> tuple[datetime | None, str]:
    rules = StartPolicy.model_validate({"max_delay_s": 43200, "windows": (NIGHT,)} | more.pop("rules", {}))
    found = choose_start_time(
        now, rules, priority, **{"est_usd": 10.0, "est_s": 3600.0, "spare_s": None, "queue": 0} | more
    )
    return found.not_before, found.sentence


def test_a_run_waits_for_the_night_and_states_the_saving() -> None:
    until, sentence = start_of()
    assert until == NOON + timedelta(hours=10)
    assert sentence == "not before 2026-11-04T22:00:00.000Z: $5.000000 then, $10.000000 now, 50% less"


def test_a_run_longer_than_the_night_counts_the_hours_after_it() -> None:
    assert mean_price_factor((NIGHT,), NOON + timedelta(hours=10), 16 * 3600) == pytest.approx(0.75)
    assert start_of(est_s=16 * 3600.0, rules={"min_saving": 0.3})[0] is None


@pytest.mark.parametrize(
    ("more", "case"),
    [
        ({"priority": "high"}, "urgent"),
        ({"spare_s": 30_000.0}, "its deadline comes before the night"),
        ({"waited_s": 10_000.0}, "it has waited for some of the ceiling"),
        ({"rules": {"max_delay_s": 0}}, "nobody waits here"),
        ({"rules": {"min_saving": 0.6}}, "too little is saved"),
        ({"delay_usd_per_hour": 0.6}, "waiting is dearer"),
        ({"now": NOON + timedelta(hours=11)}, "it is night"),
        ({"queue": 9, "rules": {"windows": (), "yield_to_queue": 1}}, "only what may wait yields"),
    ],
)
def test_a_run_starts_at_once_in_these_cases(more: dict[str, Any], case: str) -> None:
    assert start_of(**more) == (None, "starts now"), case


def test_low_priority_runs_wait_out_a_peak_and_poll_a_queue() -> None:
    peak = {"windows": (OFFICE,), "min_saving": 0.5}
    assert start_of("low", rules=peak) == (
        NOON + timedelta(hours=6),
        "not before 2026-11-04T18:00:00.000Z: low priority, and a peak window lasts until then",
    )
    assert start_of("normal", rules=peak)[0] is None
    assert start_of("low", NOON + timedelta(days=3), rules=peak)[0] is None, "there is no peak on a Saturday"
    queue = {"windows": (), "yield_to_queue": 2, "poll_s": 120}
    assert start_of("low", queue=3, rules=queue)[0] == NOON + timedelta(seconds=120)
    assert start_of("low", queue=1, rules=queue)[0] is None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"from_hour": 8, "to_hour": 8},
            "it begins and ends at 8: write from_hour 0 and to_hour 24 for a whole day",
        ),
        ({"from_hour": 24, "to_hour": 2}, "less than or equal to 23"),
        ({"from_hour": 1, "to_hour": 2, "price_factor": 0}, "greater than 0"),
        ({"from_hour": 1, "to_hour": 2, "days": ["monday"]}, "Input should be 'mon'"),
    ],
)
def test_an_invalid_window_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        PriceWindow.model_validate(fields)
