"""Egress usage: the month's transfers count in the next question, so a free tier is used once."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from runtime_world import SetClock, StartedAttempt, begin, run_request, small_world, world_in_other_region

from shoestring.backends.memory import MemoryStore
from shoestring.config.tariffs import Tariffs
from shoestring.core.errors import StoreError
from shoestring.routing.offers.egress import transferred_gb_by_route
from shoestring.runtime.records.egress_usage import record_egress, with_egress_usage

TIERS = [{"up_to_gb": 100, "usd_per_gb": "0"}, {"usd_per_gb": "0.09"}]
ROUTES = {"away->here": TIERS, "here->away": "0.01"}


@pytest.fixture
def began(laptop: Path, flights_slice: Path, tmp_path: Path) -> StartedAttempt:
    """A run whose only pool is in another region than its store."""
    path = world_in_other_region(laptop, tmp_path, {"egress_usd_per_gb": ROUTES})
    return begin(small_world(path, tmp_path, SetClock()), run_request(flights_slice))


def test_a_stage_that_begins_counts_in_its_own_month_only(began: StartedAttempt) -> None:
    store, decision, now = began.world.store, began.attempt.decision, began.world.clock.now()
    transferred_gb = transferred_gb_by_route(decision.question, began.attempt.choice)
    assert set(transferred_gb) <= set(ROUTES) and transferred_gb["away->here"] > 0
    record_egress(store, decision, now)
    record_egress(store, decision, now)
    after = with_egress_usage(store, decision.question.tariffs, now)
    assert after.transferred_gb["away->here"] == pytest.approx(transferred_gb["away->here"], abs=0.0005)
    again = with_egress_usage(
        store, decision.question.tariffs.model_copy(update={"transferred_gb": {"away->here": 7.0}}), now
    )
    assert again.transferred_gb["away->here"] == pytest.approx(7 + transferred_gb["away->here"], abs=0.0005)
    assert with_egress_usage(store, decision.question.tariffs, now + timedelta(days=32)).transferred_gb == {}


def test_without_tiered_prices_nothing_is_written_or_read(began: StartedAttempt) -> None:
    question = began.attempt.decision.question
    flat = Tariffs(egress_usd_per_gb={"away->here": Decimal("0.09")}, store_region="here")
    decision = began.attempt.decision.model_copy(
        update={"question": question.model_copy(update={"tariffs": flat})}
    )
    store = MemoryStore()
    record_egress(store, decision, began.world.clock.now())
    assert (
        list(store.list("")) == []
        and with_egress_usage(began.world.store, flat, began.world.clock.now()) is flat
    )


def test_a_failing_store_loses_the_record_and_not_the_stage(began: StartedAttempt) -> None:
    class UnwritableStore(MemoryStore):
        def put(self, key, data, *, if_absent=False):  # type: ignore[no-untyped-def]
            raise StoreError("away")

    record_egress(UnwritableStore(), began.attempt.decision, began.world.clock.now())
