"""A candidate policy on trial, from the world file to the receipts, the comparison and the rollback."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import yaml
from commands import shoestring
from runtime_world import INGEST, begin, run_request, small_world

from shoestring.config.policy import Policy
from shoestring.config.preferences import CandidatePolicy, Preferences
from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.record import record_bytes
from shoestring.routing.decision import Decision
from shoestring.runtime.records.policy_trial import policy_trials, rollback_of
from shoestring.runtime.records.receipts import AttemptResult, make_receipt

POLICY = Preferences(name="hasty", version=2, delay_usd_per_hour=Decimal(9))


def on_trial(world: World, share: float) -> World:
    return replace(world, policy=Policy(candidate=CandidatePolicy(policy=POLICY, share=share, min_runs=2)))


def ran(world: World, recipe: Path, run_id: str, times: Decimal) -> Decision:
    """Route a run, and write a receipt of `times` its expected cost."""
    began = begin(world, run_request(recipe, run_id, INGEST, Decimal("0.5")))
    decision, now = began.attempt.decision, world.clock.now()
    result = AttemptResult(
        decision_key=began.attempt.decision_key,
        pod=None,
        status="done",
        started_at=now,
        finished_at=now,
        spent_usd=began.attempt.choice.est_usd * times,
        ledger_head="",
    )
    receipt = make_receipt(decision, result)
    world.store.put(store_layout.receipt(run_id, decision.question.attempt_id), record_bytes(receipt))
    # It is over, so the next run does not wait for its result.
    began.ledger.settle(began.account, "ingest-1", Decimal(0))
    return decision


def test_a_candidate_that_overspends_is_rolled_back_for_good_by_the_next_router(
    flights_slice: Path, laptop: Path, tmp_path: Path
) -> None:
    world = on_trial(small_world(laptop, tmp_path), share=1.0)
    for run_id in ("a", "b"):
        obeyed = ran(world, flights_slice, run_id, Decimal(2)).applied_policy
        assert obeyed is not None and (obeyed.name, obeyed.arm, obeyed.propensity) == (
            "hasty",
            "candidate",
            1.0,
        )
    after = ran(world, flights_slice, "c", Decimal(1))
    assert after.applied_policy is not None and (after.applied_policy.name, after.applied_policy.arm) == (
        "default",
        "live",
    )
    assert after.shadow is not None and after.shadow.name == "hasty"
    assert after.question.rollback_reason.startswith("2 runs with policy hasty 2 spent $")
    for run_id in ("d", "e", "f"):
        ran(world, flights_slice, run_id, Decimal("0.5"))
    assert world.policy.candidate is not None
    over = rollback_of(world.store, world.policy.candidate)
    assert over is not None and over.reason == after.question.rollback_reason, (
        "what later runs cost does not bring it back"
    )
    newer = CandidatePolicy(policy=POLICY.model_copy(update={"version": 3}), share=1.0)
    assert rollback_of(world.store, newer) is None


def test_shadow_choices_are_compared(flights_slice: Path, laptop: Path, tmp_path: Path) -> None:
    world = on_trial(small_world(laptop, tmp_path), share=0.0)
    for run_id in ("a", "b", "c", "d", "e"):
        assert ran(world, flights_slice, run_id, Decimal(1)).shadow is not None
    (trial,), notes = policy_trials(world.store)
    assert (trial.policy, trial.sha256, trial.rollback, notes) == ("hasty 2", POLICY.sha256, None, ())
    assert trial.comparison is not None and (trial.comparison.runs, trial.comparison.candidate_runs) == (5, 0)


def test_the_policy_is_shown_and_compared_on_the_command_line(
    flights_slice: Path, laptop: Path, tmp_path: Path
) -> None:
    content = yaml.safe_load(laptop.read_text())
    tiers = {"data": {"hardware": "cpu", "markets": ["on-demand"]}}
    candidate = {"policy": {"name": "hasty", "version": 2, "delay_usd_per_hour": 9}, "share": 0.25}
    content["policy"] = {"name": "house", "version": 3, "workload_classes": tiers, "candidate": candidate}
    (tmp_path / "world.yaml").write_text(yaml.safe_dump(content))
    given = ("--world", tmp_path / "world.yaml", "--store", tmp_path / "store")
    shown = shoestring("policy", "show", *given)
    assert shown.code == 0, shown.err
    assert "policy house 3 (" in shown.out and "data-heavy work: markets on-demand; hardware cpu" in shown.out
    assert "candidate hasty 2 (" in shown.out and "followed by 25% of the runs" in shown.out
    output = shoestring("policy", "show", *given, "--json").json
    assert output["policy"]["candidate"]["share"] == 0.25 and output["rollback"] is None
    assert (
        "no decision in this store was made while a candidate policy was on trial"
        in shoestring("policy", "compare", *given).out
    )
    world = on_trial(small_world(laptop, tmp_path), share=0.5)
    for run_id in ("a", "b", "c", "d", "e", "f"):
        ran(world, flights_slice, run_id, Decimal(1))
    result = shoestring("policy", "compare", *given)
    assert result.code == 0 and "candidate difference $" in result.out and "6 runs" in result.out, result.out
    (trial,) = shoestring("policy", "compare", *given, "--json").json
    assert trial["comparison"]["runs"] == 6 and trial["comparison"]["difference"]["low_usd"] is not None
    content["policy"]["candidate"]["share"] = 2
    (tmp_path / "world.yaml").write_text(yaml.safe_dump(content))
    refused = shoestring("policy", "show", *given)
    assert (
        refused.code == 2 and "policy.candidate.share: Input should be less than or equal to 1" in refused.err
    )
