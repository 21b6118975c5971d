"""The ledger is equal on every store, also on one that times out, loses responses or returns stale lists."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from approved_caps import approve, approved
from store_locations import StoreLocation

from shoestring.backends.local import WallClock
from shoestring.core.errors import BudgetExceeded, LedgerConflict, StoreError
from shoestring.core.interfaces import Store
from shoestring.spending.audit.records import Anchor
from shoestring.spending.audit.verification import Verification
from shoestring.spending.audit.verify import verify
from shoestring.spending.ledger.ledger import Ledger
from shoestring.spending.ledger.parent_accounts import campaign_account

MONTH, SPRING = "2026-11", campaign_account("spring")
CENT = Decimal("0.01")


class FaultyStore:
    """A store that fails at a third of its writes: before or after the write, or with a wrong "exists
    already".
    """

    def __init__(self, store: Store, seed: int) -> None:
        self._store, self._dice = store, random.Random(seed)
        self.fetch, self.faults = store.fetch, 0

    def put(
        self, key: str, data: bytes | Path, *, if_absent: bool = False, storage_class: str = "standard"
    ) -> bool:
        fault = self._dice.choice(["before", "after", "no answer", *["none"] * 6])
        self.faults += fault != "none"
        if fault == "before":
            raise StoreError(f"{key}: no answer after 9 tries")
        wrote = self._store.put(key, data, if_absent=if_absent, storage_class=storage_class)
        if fault == "after":
            raise StoreError(f"{key}: no answer after 9 tries")
        return wrote and not (fault == "no answer" and if_absent)

    def list(self, prefix: str) -> Iterator[str]:
        """Return a stale list, without the newest half."""
        keys = list(self._store.list(prefix))
        return iter(keys[: len(keys) // 2])


class JumpingClock(WallClock):
    """A wall clock that jumps by up to a quarter of a year at each reading. Its monotonic clock does not
    jump.
    """

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)

    def now(self) -> datetime:
        return super().now() + timedelta(days=self._dice.uniform(-90, 90))


def with_retries(ask: Any, *given: Any, **also: Any) -> None:
    """Repeat a request, as callers do after the store failed."""
    for _ in range(50):
        with suppress(StoreError):
            ask(*given, **also)
            return
    raise AssertionError("the store never answered")


def a_month(ledger: Ledger) -> None:
    with_retries(ledger.open, MONTH, Decimal(3))
    with_retries(ledger.open, SPRING, Decimal(2))
    for run in ("one", "two"):
        with_retries(ledger.open, run, Decimal("0.5"), MONTH, campaign=SPRING)
        for stage in ("ingest", "train"):
            with_retries(ledger.reserve, run, f"{stage}-1", stage, 1, Decimal("0.2"))
            with_retries(ledger.extend, run, f"{stage}-1", CENT, id="first")
            with_retries(ledger.settle, run, f"{stage}-1", Decimal("0.15"))
            with_retries(ledger.adjust, run, f"{stage}-1", -CENT, "true times", id="exit")
        with_retries(ledger.set_cap, run, Decimal("0.75"), approved(run))
        with_retries(ledger.close, run)


def amounts_of(found: Verification) -> dict[str, tuple[Decimal, Decimal, int]]:
    return {state.account: (state.spent_usd, state.held_usd, state.entries) for state in found.accounts}


def test_a_month_of_runs_is_equal_on_every_store(location: StoreLocation) -> None:
    approve(location.open(), "one", "two")
    a_month(Ledger(location.open(), WallClock()))
    found = verify(location.open(), {})
    once = (Decimal("0.28"), Decimal(0))
    assert amounts_of(found) == {
        MONTH: (Decimal("0.56"), 0, 7),
        SPRING: (Decimal("0.56"), 0, 7),
        "one": (*once, 11),
        "two": (*once, 11),
    }
    assert (found.spent_usd, found.unfinished) == (Decimal("0.56"), ())


@pytest.mark.parametrize("seed", range(5))
def test_a_store_that_fails_and_loses_responses_has_every_entry_once(
    location: StoreLocation, seed: int
) -> None:
    faulty = FaultyStore(location.open(), seed)
    approve(location.open(), "one", "two")
    a_month(Ledger(faulty, WallClock()))
    assert faulty.faults > 10
    found = verify(location.open(), {})
    assert {state.account: state.entries for state in found.accounts} == {
        MONTH: 7,
        SPRING: 7,
        "one": 11,
        "two": 11,
    }
    assert (found.spent_usd, found.held_usd, found.unfinished) == (Decimal("0.56"), 0, ())


def test_a_stale_list_hides_no_account_from_writers_and_verification(location: StoreLocation) -> None:
    approve(location.open(), "one", "two")
    a_month(Ledger(location.open(), WallClock()))
    behind = FaultyStore(location.open(), 0)
    assert len({key.split("/")[1] for key in behind.list("ledger/")}) < 4
    assert amounts_of(verify(behind, {})) == amounts_of(verify(location.open(), {}))
    assert Ledger(behind, WallClock()).state("two").closed


def test_racing_writers_share_the_rest_of_a_campaigns_cap(location: StoreLocation) -> None:
    Ledger(location.open(), WallClock()).open(MONTH, CENT * 100)
    Ledger(location.open(), WallClock()).open(SPRING, CENT * 10)

    def ask(me: int) -> int:
        ledger, granted = Ledger(location.open(), WallClock(), f"pod-{me}"), 0
        for number in range(4):
            with suppress(BudgetExceeded, LedgerConflict):
                ledger.open(f"run-{me}-{number}", CENT, MONTH, campaign=SPRING)
                granted += 1
        return granted

    with ThreadPoolExecutor(4) as writers:
        granted = sum(writers.map(ask, range(4)))
    month, campaign = (Ledger(location.open(), WallClock()).state(name) for name in (MONTH, SPRING))
    assert (granted, campaign.left_usd, month.held_usd, campaign.held_usd) == (10, 0, CENT * 10, CENT * 10)
    assert verify(location.open(), {}).unfinished == ()


@pytest.mark.parametrize("seed", range(2))
def test_jumping_clocks_change_no_amount_and_hide_no_entry(location: StoreLocation, seed: int) -> None:
    approve(location.open(), "one", "two")
    a_month(Ledger(FaultyStore(location.open(), seed), JumpingClock(seed)))
    ledger = Ledger(location.open(), JumpingClock(seed + 10))
    ledger.open("three", CENT, MONTH, campaign=SPRING)
    ledger.reserve("three", "train-1", "train", 1, CENT)
    for number in range(3):
        Ledger(location.open(), JumpingClock(seed + 20 + number)).repair_parent(MONTH)
    found = verify(location.open(), {})
    assert {state.account: state.entries for state in found.accounts} == {
        MONTH: 8,
        SPRING: 8,
        "one": 11,
        "two": 11,
        "three": 2,
    }
    assert (found.spent_usd, found.held_usd) == (Decimal("0.56"), CENT)
    assert {
        state.account: state.held_usd for state in found.accounts if state.account in (MONTH, SPRING)
    } == {MONTH: CENT, SPRING: CENT}


@pytest.mark.parametrize("seed", range(2))
def test_many_writers_on_faulty_stores_write_each_entry_once(location: StoreLocation, seed: int) -> None:
    Ledger(location.open(), WallClock()).open("run", CENT * 14)

    def ask(me: int) -> int:
        ledger, granted = (
            Ledger(FaultyStore(location.open(), 10 * seed + me), JumpingClock(me), f"pod-{me}"),
            0,
        )
        for number in range(5):
            with suppress(BudgetExceeded):
                with_retries(ledger.reserve, "run", f"work-{me}-{number}", "work", number, CENT)
                granted += 1
        return granted

    with ThreadPoolExecutor(4) as writers:
        granted = sum(writers.map(ask, range(4)))
    state = Ledger(location.open(), WallClock()).state("run")
    assert (granted, state.held_usd, state.entries) == (14, CENT * 14, 15)
    verify(location.open(), {"run": (Anchor(state.head_hash),)})
