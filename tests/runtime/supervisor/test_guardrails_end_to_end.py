"""End to end, in real processes: a training obeys the policy's guardrails, and its receipt reports it."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_drift_end_to_end import start_training

from shoestring.core.receipt import Receipt
from shoestring.data.run_records import read_record
from shoestring.routing.pages.explain import as_text
from shoestring.runtime.supervisor.attempt import Attempt
from shoestring.runtime.supervisor.child import ChildResult
from shoestring.runtime.supervisor.run_stage import settle_and_record
from shoestring.runtime.supervisor.supervisor import supervise
from shoestring.spending.ends import FINAL_CAUSES
from shoestring.spending.ledger.ledger import Ledger


def train_to_end(folder: Path, guardrails: str, policy: str = "") -> tuple[Attempt, ChildResult, Receipt]:
    row = "{pool: cpu-1, market: spot, usd_per_hour: '0.80', as_of: 2026-11-01, source: a test}"
    pool = "{name: cpu-1, cores: 1, memory_gb: 4, markets: {spot: {}}}"
    world_file = folder / "world.yaml"
    world_file.write_text(
        f"name: one\nstore: {folder / 'store'}\npools: [{pool}]\nprices: [{row}]\n"
        f"policy: {{guardrails: {guardrails}{policy}}}\n"
    )
    attempt = start_training(folder, world_file)
    ending = supervise(attempt, str(world_file))
    settle_and_record(attempt, ending)
    return attempt, ending, read_record(attempt.world.store, "runs/r/receipts/train-1.json", Receipt)


@pytest.mark.parametrize(
    ("guardrails", "name", "cause"),
    [
        ("{skill: {min: 0.9, after_epochs: 1, action: stop}}", "skill", "guardrail"),
        ("{usd_per_epoch: {max_usd: 0.000001, action: pause}}", "usd_per_epoch", "stop-requested"),
    ],
)
def test_a_training_that_breaks_a_guardrail_is_stopped_and_the_rest_of_its_money_released(
    tmp_path: Path, guardrails: str, name: str, cause: str
) -> None:
    attempt, ending, receipt = train_to_end(tmp_path, guardrails)
    assert (ending.status, receipt.cause) == ("stopped", cause)
    assert (receipt.cause in FINAL_CAUSES) == (name == "skill")
    assert f"guardrail {name}: " in receipt.reason
    assert [change.lever for change in receipt.changes] == ["guardrail"]
    assert receipt.changes[0].reason in receipt.reason
    assert any(f"guardrail {name}: at " in note for note in attempt.decision.question.notes)
    assert f"guardrail {name}: at " in as_text(attempt.decision)
    state = Ledger(attempt.world.store, attempt.world.clock).state(attempt.run.start.account)
    assert str(attempt.id) not in state.reservations
    assert receipt.spent_usd < receipt.budget_usd / 2


@pytest.mark.parametrize(
    ("migration", "levers"),
    [("", ["guardrail"]), (", migration: {check_every_s: 3600}", ["pool", "guardrail"])],
)
def test_a_training_asks_for_another_pool_only_where_it_can_get_one(
    tmp_path: Path, migration: str, levers: list[str]
) -> None:
    limits = ", adaptation_limits: {min_validation_share: 1, max_batch_factor: 1}"
    _, _, receipt = train_to_end(
        tmp_path, "{usd_per_epoch: {max_usd: 0.000001, action: rebalance}}", limits + migration
    )
    assert [change.lever for change in receipt.changes] == levers
    assert "no further saving is possible" in receipt.reason
