"""Prepaid hours: each is claimed once, also by concurrent attempts; hours beyond them are paid."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from runtime_world import SetClock, StartedAttempt, begin, run_request, small_world

from shoestring.backends.folder_store import FolderStore
from shoestring.backends.memory import MemoryStore
from shoestring.config.world import CommittedHours
from shoestring.core import store_layout
from shoestring.core.attempt_id import AttemptId
from shoestring.core.errors import StoreError
from shoestring.core.pod_ref import PodRef
from shoestring.core.receipt import Receipt
from shoestring.core.types import Market, StageOutcome
from shoestring.data.run_records import read_record
from shoestring.routing.pages.explain import as_markdown
from shoestring.runtime.records.commitments import claim_ms, committed_usd, with_used_hours
from shoestring.runtime.supervisor.child import ChildResult
from shoestring.runtime.supervisor.run_stage import settle_and_record

HOUR_MS = 3_600_000
POD = PodRef.parse("ns.0.pod")
ONE_HOUR = CommittedHours(name="deed", pool="cpu-1", market=Market.ON_DEMAND, month="2026-11", max_hours=1)


@given(st.lists(st.integers(1, HOUR_MS), max_size=12))
def test_claims_never_exceed_the_committed_hours(asked_ms: list[int]) -> None:
    store, given_ms = MemoryStore(), 0
    for number, ms in enumerate(asked_ms):
        claimed_ms = claim_ms(store, ONE_HOUR, AttemptId("r", "train", number), POD, ms)
        assert claimed_ms == min(ms, HOUR_MS - given_ms)
        given_ms += claimed_ms
        assert with_used_hours(store, [ONE_HOUR])[0].left_ms == pytest.approx(HOUR_MS - given_ms, abs=1)


def test_concurrent_attempts_never_claim_the_same_hour(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    with ThreadPoolExecutor(8) as pods:
        found = list(
            pods.map(
                lambda number: claim_ms(store, ONE_HOUR, AttemptId("r", "train", number), POD, HOUR_MS // 20),
                range(32),
            )
        )
    assert sum(found) == HOUR_MS and found.count(HOUR_MS // 20) == 20


def test_each_month_starts_with_all_its_hours() -> None:
    store = MemoryStore()
    claim_ms(store, ONE_HOUR, AttemptId("r", "train", 1), POD, HOUR_MS)
    december = ONE_HOUR.model_copy(update={"month": "2026-12"})
    assert [each.left_ms for each in with_used_hours(store, [ONE_HOUR, december])] == [0, HOUR_MS]


def test_unreadable_claims_count_as_all_hours() -> None:
    store = MemoryStore()
    store.put(store_layout.commitment_claim("deed", "2026-11", 1), b"?")
    assert with_used_hours(store, [ONE_HOUR])[0].left_ms == 0


@pytest.fixture
def world_file(laptop: Path, tmp_path: Path) -> Path:
    content = yaml.safe_load(laptop.read_text())
    content["commitments"] = [{"name": "deed", "pool": "cpu-2", "hours_per_month": 0.02, "source": "a deed"}]
    path = tmp_path / "world.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def began_in(world_file: Path, folder: Path, recipe: Path, run_id: str) -> StartedAttempt:
    return begin(small_world(world_file, folder, SetClock()), run_request(recipe, run_id))


def settle_after(began: StartedAttempt, seconds: float) -> Receipt:
    """Settle the attempt after this many seconds."""
    attempt = began.attempt
    attempt.reserved_usd = attempt.choice.p95_usd
    attempt.started_s = began.world.clock.monotonic_s() - seconds + began.world.policy.pod_exit_s
    settle_and_record(attempt, ChildResult(status="done", outcome=StageOutcome(key="blobs/1", rows=1)))
    return read_record(began.world.store, store_layout.receipt(attempt.run.run_id, attempt.id), Receipt)


def test_a_prepaid_pool_is_chosen_reserved_at_its_price_and_settled_without_the_claimed_hours(
    world_file: Path, flights_slice: Path, tmp_path: Path
) -> None:
    first = began_in(world_file, tmp_path, flights_slice, "first")
    choice = first.attempt.choice
    assert choice.pool == "cpu-2" and choice.p95_usd > choice.est_usd
    assert "hours of deed are left" in as_markdown(first.attempt.decision)
    assert first.ledger.state(first.account).reservations["ingest-1"].amount_usd == choice.p95_usd
    receipt = settle_after(first, 0.002 * 3600)
    assert receipt.spent_usd == 0 and receipt.committed_usd == pytest.approx(
        Decimal("0.00016"), abs=Decimal("0.000002")
    )
    assert first.ledger.state(first.account).settled_usd["ingest-1"] == 0
    second = began_in(world_file, tmp_path, flights_slice, "second")
    assert second.attempt.decision.question.commitments[0].used_hours == pytest.approx(0.002, abs=1e-5)
    receipt = settle_after(second, 0.024 * 3600)
    assert receipt.spent_usd == pytest.approx(Decimal("0.00048"), abs=Decimal("0.000002"))
    assert receipt.spent_usd + receipt.committed_usd == pytest.approx(
        Decimal("0.00192"), abs=Decimal("0.000002")
    )
    third = began_in(world_file, tmp_path, flights_slice, "third")
    assert third.attempt.decision.question.commitments[0].left_ms == 0
    assert third.attempt.choice.est_usd > 0, "what is used up costs its price again"


def test_an_unreachable_store_covers_nothing(world_file: Path, flights_slice: Path, tmp_path: Path) -> None:
    class UnreachableListStore(MemoryStore):
        def list(self, prefix: str):  # type: ignore[no-untyped-def]
            raise StoreError("away")

    began = began_in(world_file, tmp_path, flights_slice, "r")
    assert committed_usd(UnreachableListStore(), began.attempt.decision, POD, Decimal("0.01"), 10) == 0
