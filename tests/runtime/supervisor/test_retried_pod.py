"""A pod that its engine creates again after the run has ended, as Kubeflow's Retry does: it begins the run's
next start.
"""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from runtime_world import StartedAttempt
from second_pods import (
    FIRST,
    SECOND,
    THIRD,
    end_first_pod,
    first_attempt,
    in_pod,
    lifetimes_of,
    lose_first_pod,
    run_first_pod,
    second_pod,
)

from shoestring.config.world import World
from shoestring.core.errors import BudgetTooSmall, Refused
from shoestring.core.interfaces import PodLifetime
from shoestring.data.run_records import open_run
from shoestring.runtime.records.overhead import overhead_reservation, overhead_times
from shoestring.runtime.settlement.settle import exit_step
from shoestring.runtime.supervisor.attempt_lock import lock_attempt, lock_second_attempt
from shoestring.runtime.supervisor.run_stage import open_locked
from shoestring.spending.audit.verify import load_anchors, verify


@pytest.fixture
def began(laptop: Path, flights_slice: Path, tmp_path: Path) -> StartedAttempt:
    return first_attempt(laptop, flights_slice, tmp_path, deadline_s=900.0)


def end_run(began: StartedAttempt) -> None:
    exit_step(in_pod(began, "ns.9.settle"), began.run)


def now_in(world: World, minutes: float) -> None:
    world.clock.sleep(60 * minutes)


@pytest.mark.parametrize("cause", ["code", "money"])
def test_a_pod_that_is_made_again_after_the_run_has_ended_begins_its_next_start(
    began: StartedAttempt, cause: str
) -> None:
    end_first_pod(began, "failed", cause)
    end_run(began)
    assert began.ledger.state("r").closed
    now_in(began.world, 30)
    decision = second_pod(began)
    run, first = open_run(began.world.store, "r"), began.run.start
    assert [each.account for each in run.starts] == ["r", "r.2"]
    assert run.start.started_at - first.started_at > timedelta(minutes=30)
    assert run.start.deadline_at == run.start.started_at + timedelta(seconds=900)
    assert run.start.overhead_usd_per_hour == first.overhead_usd_per_hour
    account = began.ledger.state("r.2")
    assert account.cap_usd == first.budget_usd - began.ledger.state("r").spent_usd
    assert account.reservations.keys() == {"ingest-2", overhead_reservation(run.start)}
    question = decision.question
    assert (question.attempt, question.existing_pod and question.existing_pod.pool) == (
        2,
        began.attempt.choice.pool,
    )
    assert question.deadline_left_s == 900
    verify(began.world.store, load_anchors(began.world.store))


def test_a_pod_of_an_exit_step_that_left_the_account_open_begins_a_start_too(began: StartedAttempt) -> None:
    run_first_pod(began)
    lifetimes_of(began)[FIRST] = PodLifetime(alive=True)
    end_run(began)
    assert not began.ledger.state("r").closed
    assert second_pod(began).question.attempt == 2
    assert open_run(began.world.store, "r").start.account == "r.2"


def test_two_pods_that_come_at_once_share_the_start(began: StartedAttempt) -> None:
    end_first_pod(began, "failed", "code")
    end_run(began)
    assert second_pod(began, SECOND).question.attempt == 2
    lifetimes_of(began)[SECOND] = PodLifetime(alive=True)
    with pytest.raises(Refused, match="while an earlier pod still runs: ingest-2"):
        second_pod(began, THIRD)
    assert len(open_run(began.world.store, "r").starts) == 2
    assert [each.name for each in overhead_times(began.world, began.run, began.run.start)] == ["settle"]


def test_the_first_pod_of_a_decision_that_comes_after_the_end_of_the_run_begins_a_start(
    began: StartedAttempt,
) -> None:
    """No node had accepted it before."""
    end_run(began)
    attempt, world = began.attempt, in_pod(began, SECOND)
    given = (world, attempt.decision, attempt.choice, attempt.decision_key)
    assert open_locked(world, "r", lock_attempt(*given), {}, None) is None
    locked = lock_second_attempt(*given)
    assert isinstance(locked, tuple) and locked[0].question.attempt == 2
    assert open_run(began.world.store, "r").start.account == "r.2"


def test_a_pod_without_money_names_the_command_that_continues_the_run_and_is_booked(
    began: StartedAttempt,
) -> None:
    lose_first_pod(began)
    began.reserve_all_but(Decimal(0))
    for name, held in began.ledger.state("r").reservations.items():
        if name != overhead_reservation(began.run.start):
            began.ledger.settle("r", name, held.amount_usd, "all of it")
    end_run(began)
    lifetimes_of(began)[SECOND] = PodLifetime(alive=True, started_at=began.world.clock.now())
    now_in(began.world, 0.1)
    with pytest.raises(BudgetTooSmall, match=r"(?s)too small.*upload --run --run-id r --budget USD"):
        second_pod(began)
    run = open_run(began.world.store, "r")
    assert [each.name for each in overhead_times(began.world, run, run.start)] == ["second-ingest-1"]
    exit_step(in_pod(began, "ns.10.settle"), run)
    assert began.ledger.state("r.2").closed and began.ledger.state("r.2").spent_usd > 0


def test_a_second_pod_of_a_run_that_goes_on_begins_no_start(began: StartedAttempt) -> None:
    lose_first_pod(began, PodLifetime(alive=False, finished_at=began.world.clock.now()))
    assert second_pod(began).question.attempt == 2
    assert [each.account for each in open_run(began.world.store, "r").starts] == ["r"]
