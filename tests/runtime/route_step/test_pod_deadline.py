"""The deadline of a stage's pod: what the most money buys at the lowest plausible price."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from reaper_world import again
from runtime_world import (
    INGEST,
    MONEY,
    FakeCluster,
    StartedAttempt,
    attempt_in_pod,
    begin,
    on_cluster,
    run_request,
    small_world,
)

from shoestring.config.budgets import Campaign
from shoestring.config.world import World
from shoestring.core.errors import Refused
from shoestring.core.interfaces import PodLifetime
from shoestring.core.receipt import Receipt
from shoestring.core.types import Market
from shoestring.data.run_records import read_record
from shoestring.routing.placement import argo_patch
from shoestring.runtime.route_step.pod_deadline import MAX_DEADLINE_S, SPOT_RANGE, pod_deadline_s
from shoestring.runtime.supervisor.child import ChildResult
from shoestring.runtime.supervisor.run_stage import settle_and_record
from shoestring.runtime.supervisor.supervisor import write_heartbeat


@pytest.fixture
def began(laptop: Path, flights_slice: Path, tmp_path: Path) -> StartedAttempt:
    world, _ = on_cluster(small_world(laptop, tmp_path))
    return begin(world, run_request(flights_slice, needs=INGEST))


def with_caps(world: World, run_usd: str | None, month_usd: str | None = None) -> World:
    caps = {"run_usd": run_usd and Decimal(run_usd), "month_usd": month_usd and Decimal(month_usd)}
    return replace(world, budgets=world.budgets.model_copy(update=caps))


def test_the_deadline_is_what_the_most_that_an_approval_allows_buys(began: StartedAttempt) -> None:
    decision, price = began.attempt.decision, began.attempt.choice.usd_per_hour
    hour_s = {usd: int(Decimal(usd) / price * 3600) for usd in ("1", "2")}
    assert pod_deadline_s(with_caps(began.world, "1"), decision, "") == hour_s["1"]
    assert pod_deadline_s(with_caps(began.world, None, "2"), decision, "") == hour_s["2"]
    assert pod_deadline_s(with_caps(began.world, "1", "2"), decision, "") == hour_s["1"]
    assert pod_deadline_s(with_caps(began.world, None), decision, "") is None
    assert pod_deadline_s(with_caps(began.world, "100000000"), decision, "") == MAX_DEADLINE_S


def test_the_caps_of_a_stage_and_of_a_campaign_limit_it_too(began: StartedAttempt) -> None:
    decision, price = began.attempt.decision, began.attempt.choice.usd_per_hour
    hour_s = int(1 / price * 3600)
    capped = decision.question.model_copy(update={"stage_budgets": {"ingest": Decimal(1), "train": MONEY}})
    stage = decision.model_copy(update={"question": capped})
    assert pod_deadline_s(with_caps(began.world, None), stage, "") == hour_s
    assert pod_deadline_s(with_caps(began.world, "2"), stage, "") == hour_s
    assert pod_deadline_s(with_caps(began.world, "0.5"), stage, "") == hour_s // 2
    campaigns = {"spring": Campaign(cap_usd=Decimal(1))}
    world = with_caps(began.world, None)
    shared = replace(world, budgets=world.budgets.model_copy(update={"campaigns": campaigns}))
    assert pod_deadline_s(shared, decision, "spring") == hour_s
    assert pod_deadline_s(shared, decision, "") is None


def test_a_floating_price_may_fall_and_the_deadline_allows_for_it(began: StartedAttempt) -> None:
    world, decision = with_caps(began.world, "1"), began.attempt.decision
    fixed_s = pod_deadline_s(world, decision, "")
    assert fixed_s
    floats = world.policy.model_copy(update={"floating_markets": (Market.ON_DEMAND,)})
    assert pod_deadline_s(replace(world, policy=floats), decision, "") == fixed_s * SPOT_RANGE


def test_the_patch_holds_the_deadline(began: StartedAttempt) -> None:
    decision = began.attempt.decision
    assert json.loads(argo_patch(decision, 77))["activeDeadlineSeconds"] == 77
    assert "activeDeadlineSeconds" not in json.loads(argo_patch(decision))


def test_an_attempt_that_the_deadline_ended_has_spent_its_money_and_is_not_retried(
    began: StartedAttempt, flights_slice: Path
) -> None:
    write_heartbeat(attempt_in_pod(began, "ns.1.ingest"), "running")
    assert isinstance(began.world.cluster, FakeCluster)
    reason = "DeadlineExceeded: Pod was active on the node longer than the specified deadline"
    began.world.cluster.lifetimes["ns.1.ingest"] = PodLifetime(alive=False, reason=reason)
    with pytest.raises(Refused, match="ingest is not tried again"):
        again(began, flights_slice)
    receipt = read_record(began.world.store, "runs/r/receipts/ingest-1.json", Receipt)
    assert (receipt.status, receipt.cause) == ("lost", "money")


def test_a_supervisor_that_the_deadline_told_to_stop_is_not_retried_either(
    began: StartedAttempt, flights_slice: Path
) -> None:
    attempt = attempt_in_pod(began, "ns.1.ingest")
    attempt.stop("told to stop by SIGTERM")
    settle_and_record(attempt, ChildResult(status="stopped", cause="stop-requested", reason="told to stop"))
    assert isinstance(began.world.cluster, FakeCluster)
    lifetimes = began.world.cluster.lifetimes
    lifetimes["ns.1.ingest"] = PodLifetime(alive=False, reason="DeadlineExceeded")
    with pytest.raises(Refused, match="ingest is not tried again"):
        again(began, flights_slice)
    lifetimes["ns.1.ingest"] = PodLifetime(alive=False)
    assert again(began, flights_slice)
