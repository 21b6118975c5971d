"""How long a second pod waits for the first, which may still run although its cluster has lost it."""

from __future__ import annotations

from pathlib import Path

import pytest
from runtime_world import (
    StartedAttempt,
    attempt_in_pod,
)
from second_pods import (
    FIRST,
    RECEIPT,
    clock_of,
    first_attempt,
    lose_first_pod,
    run_first_pod,
    second_pod,
)

from shoestring.core.errors import Refused
from shoestring.core.receipt import Receipt
from shoestring.data.run_records import read_record
from shoestring.runtime.route_step.retry import LOST_POD_WAIT_S, SILENT_EXIT_S
from shoestring.runtime.supervisor.child import ChildResult
from shoestring.runtime.supervisor.run_stage import settle_and_record
from shoestring.runtime.supervisor.supervisor import write_heartbeat


@pytest.fixture
def began(laptop: Path, flights_slice: Path, tmp_path: Path) -> StartedAttempt:
    return first_attempt(laptop, flights_slice, tmp_path)


def test_a_first_pod_that_still_beats_is_waited_for_although_its_cluster_lost_it(
    began: StartedAttempt,
) -> None:
    """It was deleted by force, and its containers take 20 s to end."""
    lose_first_pod(began)
    clock, began_s = clock_of(began), began.world.clock.monotonic_s()
    clock.acts_s = began_s + 20
    clock.act = lambda: write_heartbeat(attempt_in_pod(began, FIRST), "stopping")
    assert second_pod(began).question.attempt == 2
    waited_s = clock.monotonic_s() - began_s
    assert 20 + SILENT_EXIT_S <= waited_s <= 20 + SILENT_EXIT_S + began.world.policy.heartbeat_s + 1
    first = read_record(began.world.store, RECEIPT, Receipt)
    assert first.seconds >= 20, "its containers ran, and are paid for"


def test_a_first_pod_that_settles_late_is_waited_for_no_longer(began: StartedAttempt) -> None:
    lose_first_pod(began)
    clock, began_s = clock_of(began), began.world.clock.monotonic_s()
    clock.acts_s = began_s + 1

    def settle() -> None:
        stopped = ChildResult(status="stopped", cause="stop-requested", reason="received SIGTERM")
        settle_and_record(attempt_in_pod(began, FIRST), stopped)

    clock.act = settle
    assert "attempt 1 stopped: received SIGTERM" in second_pod(began).question.notes
    assert clock.monotonic_s() - began_s < 2


def test_a_first_pod_that_goes_on_for_a_minute_keeps_its_reservation(began: StartedAttempt) -> None:
    lose_first_pod(began)
    clock = clock_of(began)
    clock.acts_s = clock.monotonic_s() + 1000
    clock.act = lambda: write_heartbeat(attempt_in_pod(began, FIRST), "running")
    with pytest.raises(Refused, match="while an earlier pod still runs: ingest-1; end that pod first"):
        second_pod(began)
    assert "ingest-1" in began.ledger.state(began.account).reservations


def test_a_first_pod_that_is_alive_keeps_its_reservation(began: StartedAttempt) -> None:
    run_first_pod(began)
    before_s = began.world.clock.monotonic_s()
    with pytest.raises(Refused, match="while an earlier pod still runs: ingest-1"):
        second_pod(began)
    assert began.world.clock.monotonic_s() - before_s >= LOST_POD_WAIT_S
    assert "ingest-1" in began.ledger.state(began.account).reservations
