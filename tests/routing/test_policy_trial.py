"""Policy trials: assignment of runs, the recorded shadow choice, rollbacks and cost estimates."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from routing_cases import EVALUATE, PREPROCESS, laptop_question, questions
from test_policy_rules import PLACES, policies

from shoestring.config.policy import Policy
from shoestring.config.preferences import CandidatePolicy, Preferences
from shoestring.core.receipt import Receipt
from shoestring.core.record import record_bytes
from shoestring.core.types import Market
from shoestring.routing.analysis.off_policy import LoggedChoice, compare_policies
from shoestring.routing.analysis.replay import replay
from shoestring.routing.decide import decide
from shoestring.routing.decision import Decision
from shoestring.routing.policy.policy_trial import find_rollback, trial_fields
from shoestring.routing.question import Question

HASTY = Preferences(name="hasty", version=2, delay_usd_per_hour=Decimal(3))
candidates = st.builds(
    CandidatePolicy,
    policy=policies.map(lambda policy: policy.model_copy(update={"name": "other"})),
    share=st.floats(0, 1),
)


def decision_of(share: float, run_id: str = "r", **more: Any) -> Decision:
    """Decide for a stage that the live policy places on cpu-1, and the candidate policy on cpu-2."""
    candidate = CandidatePolicy(policy=HASTY, share=share)
    return decide(
        laptop_question(
            (PREPROCESS, EVALUATE), "5", **PLACES, run_id=run_id, candidate_policy=candidate, **more
        )
    )


@examples(60)
@given(questions(), policies)
def test_a_shadow_policy_does_not_change_the_decision(question: Question, policy: Preferences) -> None:
    other = policy.model_copy(update={"name": "other"})
    alone, with_shadow = (
        decide(question),
        decide(question.model_copy(update={"candidate_policy": CandidatePolicy(policy=other)})),
    )
    assert with_shadow.shadow is not None and (with_shadow.shadow.sha256, with_shadow.shadow.arm) == (
        other.sha256,
        "candidate",
    )
    assert record_bytes(alone) == record_bytes(
        with_shadow.model_copy(update={"question": question, "shadow": None})
    )


@examples(60)
@given(questions(), candidates)
def test_the_shadow_choice_equals_the_other_policys_own_choice_and_replays(
    question: Question, candidate: CandidatePolicy
) -> None:
    tried_out = decide(question.model_copy(update={"candidate_policy": candidate}))
    shadow = tried_out.shadow
    assert (
        shadow is not None
        and tried_out.applied_policy is not None
        and shadow.arm != tried_out.applied_policy.arm
    )
    preferences = candidate.policy if shadow.arm == "candidate" else question.preferences
    itself = decide(question.model_copy(update={"preferences": preferences})).choice
    found = (shadow.pool, shadow.market, shadow.format, shadow.est_usd, shadow.samples)
    assert found == (
        (itself.pool, itself.market, itself.format, itself.est_usd, itself.samples)
        if itself
        else (None, None, None, 0, 0)
    )
    assert replay(record_bytes(tried_out)).verdict == "same"


@given(st.floats(0, 1), st.booleans())
def test_propensities_sum_to_one_and_a_rolled_back_candidate_has_none(share: float, over: bool) -> None:
    candidate = CandidatePolicy(policy=HASTY, share=share)
    chances = [candidate.propensity(arm, "it overspent" if over else "") for arm in ("live", "candidate")]
    assert sum(chances) == 1.0
    assert chances[1] == (0.0 if over else share)


@given(st.text(min_size=1, max_size=20), st.floats(0, 1), st.floats(0, 1))
def test_raising_the_share_keeps_the_runs_already_assigned(run_id: str, one: float, another: float) -> None:
    arms = [CandidatePolicy(policy=HASTY, share=share).arm_of(run_id) for share in sorted((one, another))]
    assert arms != ["candidate", "live"]


def test_the_assigned_share_is_accurate_and_drawn_again_for_each_version() -> None:
    def runs_with_candidate(policy: Preferences) -> set[int]:
        return {
            run
            for run in range(4000)
            if CandidatePolicy(policy=policy, share=0.3).arm_of(f"flights-{run}") == "candidate"
        }

    first, second = runs_with_candidate(HASTY), runs_with_candidate(HASTY.model_copy(update={"version": 3}))
    assert 1080 <= len(first) <= 1320 and 1080 <= len(second) <= 1320
    assert 250 <= len(first & second) <= 480, "another version draws anew: nine in a hundred are in both"


def test_assigned_runs_use_the_candidate_and_record_its_probability() -> None:
    for run in range(20):
        decision = decision_of(0.4, f"r{run}")
        assert (
            decision.applied_policy is not None
            and decision.shadow is not None
            and decision.choice is not None
        )
        is_candidate = (
            decision.question.candidate_policy is not None
            and decision.question.candidate_policy.arm_of(f"r{run}") == "candidate"
        )
        assert decision.choice.pool == ("cpu-2" if is_candidate else "cpu-1")
        assert decision.applied_policy.propensity == pytest.approx(0.4 if is_candidate else 0.6)
        assert decision.shadow.pool == ("cpu-1" if is_candidate else "cpu-2") and not decision.shadow.same
        replayed = trial_fields(decision)
        assert (
            replayed.candidate_sha256 == HASTY.sha256
            and replayed.policy_sha256 == decision.applied_policy.sha256
        )
        assert replayed.live_policy_est_usd == (
            decision.shadow.est_usd if is_candidate else decision.choice.est_usd
        )


def test_a_rolled_back_candidate_continues_as_a_shadow() -> None:
    decision = decision_of(1.0, rollback_reason="5 runs spent too much")
    assert decision.applied_policy is not None and (
        decision.applied_policy.arm,
        decision.applied_policy.propensity,
    ) == ("live", 1.0)
    assert decision.shadow is not None and decision.shadow.pool == "cpu-2"
    assert not trial_fields(decision).candidate_sha256


def receipt(
    run: int, spent: str, est: str = "1", live_est: str | None = "1", *, obeys: bool = True, **more: Any
) -> Receipt:
    moment = datetime(2026, 11, 1, 12, run, tzinfo=UTC)
    return Receipt.model_validate(
        {
            "run_id": f"r{run}",
            "stage": "train",
            "attempt": 1,
            "pod": None,
            "decision_key": "d",
            "status": "done",
            "pool": "cpu-1",
            "market": Market.ON_DEMAND,
            "format": None,
            "cache_hit": False,
            "budget_usd": "9",
            "est_usd": est,
            "p95_usd": "9",
            "est_s": 1.0,
            "spent_usd": spent,
            "policy_sha256": HASTY.sha256 if obeys else Preferences().sha256,
            "candidate_sha256": HASTY.sha256,
            "live_policy_est_usd": live_est,
            "started_at": moment,
            "finished_at": moment,
            "seconds": 1.0,
            "ledger_head": "",
        }
        | more
    )


CANDIDATE = CandidatePolicy(policy=HASTY, share=0.5, max_overspend=1.25, min_runs=3)


def test_a_candidate_above_its_own_estimates_is_rolled_back_with_the_numbers() -> None:
    over = find_rollback(CANDIDATE, [receipt(1, "1.4"), receipt(2, "1.2"), receipt(3, "1.3")])
    assert over is not None and over.sha256 == HASTY.sha256
    assert over.reason == (
        "3 runs with policy hasty 2 spent $3.900000, 1.30 times the $3.000000 that it estimated; "
        "the limit is 1.25 times"
    )


def test_a_candidate_more_expensive_than_the_live_policy_is_rolled_back() -> None:
    over = find_rollback(CANDIDATE, [receipt(run, "1.4", est="1.4") for run in (1, 2, 3)])
    assert (
        over is not None and "the $3.000000 that the live policy estimated for the same stages" in over.reason
    )


@pytest.mark.parametrize(
    "receipts",
    [
        pytest.param([receipt(1, "9"), receipt(2, "9")], id="two runs are too few"),
        pytest.param(
            [receipt(1, "9"), receipt(1, "9", stage="evaluate"), receipt(2, "9")], id="stages are not runs"
        ),
        pytest.param([receipt(run, "1.25") for run in (1, 2, 3)], id="at the limit"),
        pytest.param([receipt(run, "9", obeys=False) for run in (1, 2, 3)], id="runs of the policy in force"),
        pytest.param(
            [receipt(run, "9", candidate_sha256="another") for run in (1, 2, 3)], id="another trial"
        ),
        pytest.param([receipt(run, "9", cache_hit=True) for run in (1, 2, 3)], id="cached results"),
        pytest.param(
            [receipt(run, "1.4", live_est=None) for run in (1, 2, 3)][:2], id="nothing to compare with"
        ),
        pytest.param(
            [
                *(receipt(run, "2") for run in (1, 2, 3)),
                *(receipt(run, "2", obeys=False) for run in (4, 5, 6)),
            ],
            id="the estimates are wrong, not the candidate",
        ),
    ],
)
def test_a_candidate_is_not_rolled_back_in_these_cases(receipts: list[Receipt]) -> None:
    assert find_rollback(CANDIDATE, receipts) is None


@given(
    st.permutations([receipt(1, "1.4"), receipt(2, "1.2"), receipt(3, "1.3"), receipt(4, "0.9", obeys=False)])
)
def test_a_rollback_does_not_depend_on_the_order_of_receipts(receipts: list[Receipt]) -> None:
    assert find_rollback(CANDIDATE, receipts) == find_rollback(
        CANDIDATE, sorted(receipts, key=lambda each: each.run_id)
    )


def logs(rng: np.random.Generator, runs: int, share: float, model_bias: float) -> list[LoggedChoice]:
    """Simulate runs of two choices, one of which differs: it costs 0.8 under the candidate, else 1."""
    found = []
    for run in range(runs):
        obeys = rng.random() < share
        scale = rng.lognormal(0, 0.4)
        cost = scale * (0.8 if obeys else 1.0) * rng.lognormal(-0.02, 0.2)
        found.append(LoggedChoice(f"r{run}", not obeys, obeys, share, scale, scale * model_bias, cost))
        found.append(LoggedChoice(f"r{run}", True, True, share, 0.5, 0.5, 0.5 * rng.lognormal(-0.02, 0.2)))
    return found


@pytest.mark.parametrize("model_bias", [0.8, 1.3])
def test_the_interval_contains_the_true_difference_despite_biased_estimates(model_bias: float) -> None:
    rng, held, means = np.random.default_rng(5), 0, []
    for _ in range(200):
        found = compare_policies(logs(rng, 80, 0.3, model_bias))
        assert (
            found is not None
            and found.difference.low_usd is not None
            and found.difference.high_usd is not None
        )
        truth = -0.2 * np.exp(0.08)
        held += found.difference.low_usd <= truth <= found.difference.high_usd
        means.append(found.difference.usd_per_run)
    assert held >= 180, f"95% intervals that hold the truth in {held} of 200"
    assert np.mean(means) == pytest.approx(truth, abs=0.02)


def test_a_shadow_is_compared_by_estimates_and_counted_as_unobservable() -> None:
    found = compare_policies([LoggedChoice(f"r{run}", True, False, 0.0, 1.0, 0.5, 2.0) for run in range(6)])
    assert found is not None and (found.unobservable, found.candidate_by_propensity) == (6, None)
    assert (found.live.usd_per_run, found.candidate.usd_per_run) == (2.0, 1.0), (
        "at twice what was expected, like the policy in force"
    )


def test_few_runs_give_no_interval_and_no_runs_no_comparison() -> None:
    found = compare_policies([LoggedChoice("r1", True, True, 0.5, 1.0, 1.0, 1.2)])
    assert found is not None and found.difference.low_usd is None and found.difference.usd_per_run == 0.0
    assert compare_policies([]) is None


def test_a_candidate_with_the_name_of_the_live_policy_is_refused() -> None:
    with pytest.raises(ValidationError, match="the candidate has the same title as the live policy, house 3"):
        Policy.model_validate(
            {"name": "house", "version": 3, "candidate": {"policy": {"name": "house", "version": 3}}}
        )
    with pytest.raises(ValidationError, match="less than or equal to 1"):
        Policy.model_validate({"candidate": {"policy": {"version": 2}, "share": 1.5}})
    with pytest.raises(ValidationError, match="Field required"):
        Policy.model_validate({"candidate": {"share": 0.5}})
