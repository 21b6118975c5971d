"""Group commit: one writer claims to collect the proposals, and the others wait for its object."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from random import Random

import pytest
from clocks import StillClock

from shoestring.backends.memory import MemoryStore
from shoestring.core import store_layout
from shoestring.core.record import record_bytes
from shoestring.core.types import STANDARD_CLASS
from shoestring.spending.ledger.account import Account
from shoestring.spending.ledger.chain_writer import ChainWriter
from shoestring.spending.ledger.entry import NO_ENTRY, Entry
from shoestring.spending.ledger.group_commit import POLLS, GroupCommit, PendingEntry
from shoestring.spending.ledger.ledger import Ledger


class SlowStore(MemoryStore):
    """A store whose writes take 10 ms of the clock."""

    def __init__(self, clock: StillClock) -> None:
        super().__init__()
        self.clock = clock

    def put(
        self,
        key: str,
        data: bytes | Path,
        *,
        if_absent: bool = False,
        storage_class: str = STANDARD_CLASS,
    ) -> bool:
        self.clock.sleep(0.01)
        return super().put(key, data, if_absent=if_absent, storage_class=storage_class)


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture
def store(clock: StillClock) -> SlowStore:
    return SlowStore(clock)


@pytest.fixture
def account(store: SlowStore, clock: StillClock) -> Account:
    Ledger(store, clock).open("run", Decimal(1))
    return ChainWriter(store, clock).latest("run")


def proposal(name: str) -> PendingEntry:
    draft = Entry.model_validate(
        {
            "account": "run",
            "number": 1,
            "prev": NO_ENTRY,
            "at": datetime(2026, 11, 21, tzinfo=UTC),
            "writer": name,
            "kind": "reserve",
            "id": f"reserve/{name}",
            "reservation": name,
            "stage": "work",
            "attempt": 1,
            "amount_microusd": 10,
        }
    )
    return PendingEntry(draft=draft)


class Look:
    """Counts how often a writer looks for the object, and finds it after some looks."""

    def __init__(self, taken_after: int = 10**9) -> None:
        self.count, self.taken_after = 0, taken_after

    def __call__(self) -> bool:
        self.count += 1
        return self.count > self.taken_after


def claim_key(account: Account) -> str:
    return f"{store_layout.pending_entries('run', account.number + 1)}claimed-by"


def test_the_first_writer_claims_and_collects_at_once(
    store: SlowStore, clock: StillClock, account: Account
) -> None:
    look = Look()
    store.put(
        f"{store_layout.pending_entries('run', account.number + 1)}theirs.json", record_bytes(proposal("b"))
    )
    prepared = GroupCommit(store, clock, Random(1)).prepare(account, proposal("a"), look)
    assert prepared is not None and look.count == 0
    batch = prepared.stored
    assert [each.entry.reservation for each in batch.entries] == ["a", "b"] and batch.contended
    assert any(store.list(claim_key(account)))


def test_a_writer_waits_while_another_has_claimed_and_collects_itself_if_that_one_died(
    store: SlowStore, clock: StillClock, account: Account
) -> None:
    store.put(claim_key(account), b"another", if_absent=True)
    look = Look()
    batch = GroupCommit(store, clock, Random(1)).prepare(account, proposal("a"), look)
    assert batch is not None and look.count == POLLS
    assert store.fetch(claim_key(account)).read_bytes() == b"another"


@pytest.mark.parametrize("looks", [0, 3])
def test_a_waiting_writer_returns_once_the_object_is_written(
    store: SlowStore, clock: StillClock, account: Account, looks: int
) -> None:
    store.put(claim_key(account), b"another", if_absent=True)
    look = Look(taken_after=looks)
    assert GroupCommit(store, clock, Random(1)).prepare(account, proposal("a"), look) is None
    assert look.count == looks + 1
