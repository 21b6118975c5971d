"""Hours that are paid for are claimed once each, whoever ends when; what is not claimed is paid."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from runtime_world import Began, SetClock, begin, small_world, wish

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
def test_claims_are_given_in_turn_and_never_come_to_more_than_there_is(asked_ms: list[int]) -> None:
    store, given_ms = MemoryStore(), 0
    for number, ms in enumerate(asked_ms):
        mine = claim_ms(store, ONE_HOUR, AttemptId("r", "train", number), POD, ms)
        assert mine == min(ms, HOUR_MS - given_ms)
        given_ms += mine
        assert with_used_hours(store, [ONE_HOUR])[0].left_ms == pytest.approx(HOUR_MS - given_ms, abs=1)


def test_of_many_that_end_at_once_none_is_given_anothers_hour(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    with ThreadPoolExecutor(8) as pods:
        found = list(
            pods.map(
                lambda number: claim_ms(store, ONE_HOUR, AttemptId("r", "train", number), POD, HOUR_MS // 20),
                range(32),
            )
        )
    assert sum(found) == HOUR_MS and found.count(HOUR_MS // 20) == 20


def test_a_month_begins_anew() -> None:
    store = MemoryStore()
    claim_ms(store, ONE_HOUR, AttemptId("r", "train", 1), POD, HOUR_MS)
    december = ONE_HOUR.model_copy(update={"month": "2026-12"})
    assert [each.left_ms for each in with_used_hours(store, [ONE_HOUR, december])] == [0, HOUR_MS]


def test_claims_that_cannot_be_read_leave_nothing_free() -> None:
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


def began_in(world_file: Path, folder: Path, recipe: Path, run_id: str) -> Began:
    return begin(small_world(world_file, folder, SetClock()), wish(recipe, run_id))


def ended(began: Began, seconds: float) -> Receipt:
    """The attempt takes so long, and is settled."""
    attempt = began.attempt
    attempt.reserved_usd = attempt.choice.p95_usd
    attempt.started_s = began.world.clock.monotonic_s() - seconds + began.world.policy.pod_exit_s
    settle_and_record(attempt, ChildResult(status="done", outcome=StageOutcome(key="blobs/1", rows=1)))
    return read_record(began.world.store, store_layout.receipt(attempt.run.run_id, attempt.id), Receipt)


def test_a_pool_that_is_paid_for_is_taken_reserved_at_its_price_and_settled_at_what_was_not_covered(
    world_file: Path, flights_slice: Path, tmp_path: Path
) -> None:
    first = began_in(world_file, tmp_path, flights_slice, "first")
    choice = first.attempt.choice
    assert choice.pool == "cpu-2" and choice.p95_usd > choice.est_usd
    assert "hours of deed are left" in as_markdown(first.attempt.decision)
    assert first.ledger.state(first.account).reservations["ingest-1"].amount_usd == choice.p95_usd
    receipt = ended(first, 0.002 * 3600)
    assert receipt.spent_usd == 0 and receipt.committed_usd == pytest.approx(
        Decimal("0.00016"), abs=Decimal("0.000002")
    )
    assert first.ledger.state(first.account).settled_usd["ingest-1"] == 0
    second = began_in(world_file, tmp_path, flights_slice, "second")
    assert second.attempt.decision.question.commitments[0].used_hours == pytest.approx(0.002, abs=1e-5)
    receipt = ended(second, 0.024 * 3600)
    assert receipt.spent_usd == pytest.approx(Decimal("0.00048"), abs=Decimal("0.000002"))
    assert receipt.spent_usd + receipt.committed_usd == pytest.approx(
        Decimal("0.00192"), abs=Decimal("0.000002")
    )
    third = began_in(world_file, tmp_path, flights_slice, "third")
    assert third.attempt.decision.question.commitments[0].left_ms == 0
    assert third.attempt.choice.est_usd > 0, "what is used up costs its price again"


def test_a_store_that_is_away_covers_nothing(world_file: Path, flights_slice: Path, tmp_path: Path) -> None:
    class Away(MemoryStore):
        def list(self, prefix: str):  # type: ignore[no-untyped-def]
            raise StoreError("away")

    began = began_in(world_file, tmp_path, flights_slice, "r")
    assert committed_usd(Away(), began.attempt.decision, POD, Decimal("0.01"), 10) == 0
