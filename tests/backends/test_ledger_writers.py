"""Group commit of many writers of one account, on every store: no entry is lost or doubled and no cap
exceeded, even when writers die.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

import pytest
from pending_entries import contended_ledger, pending_entry, write_pending
from store_locations import StoreLocation

from shoestring.backends.folder_store import FolderStore
from shoestring.backends.local import WallClock
from shoestring.core import store_layout
from shoestring.core.errors import BudgetExceeded, LedgerConflict, LedgerCorrupt, StoreError
from shoestring.core.interfaces import Store
from shoestring.core.record import record_bytes
from shoestring.spending.audit.export import LedgerFolderStore, export_accounts
from shoestring.spending.audit.verify import verify
from shoestring.spending.ledger.chain_writer import ChainWriter
from shoestring.spending.ledger.entry import StoredObject, read_entry, read_object
from shoestring.spending.ledger.ledger import Ledger

CENT = Decimal("0.01")
WRITERS, ASKS_EACH = 5, 6


def test_one_writer_commits_the_pending_entries_of_all(location: StoreLocation) -> None:
    store = location.open()
    ledger = contended_ledger(store)
    write_pending(store, 3, *(pending_entry("run", f"theirs-{number}") for number in range(20)))
    ledger.reserve("run", "mine", "work", 1, CENT)
    written = read_object(store, "run", 3)
    assert written and written.contended
    holds = [sealed.entry.reservation for sealed in written.entries]
    assert holds[0] == "mine" and sorted(holds[1:]) == sorted(f"theirs-{number}" for number in range(20))
    assert {sealed.entry.reservation: sealed.entry.writer for sealed in written.entries} == {
        hold: hold for hold in holds
    } | {"mine": "me"}
    assert verify(location.open(), {}).accounts[1].entries == 23
    assert all(read_entry(store, "run", number) == written.entries[number - 3] for number in range(3, 24))
    assert (
        Ledger(location.open(), WallClock()).reserve("run", "theirs-7", "work", 1, CENT).entry.writer
        == "theirs-7"
    )


def test_a_pending_entry_above_the_cap_is_left_out_and_refused(location: StoreLocation) -> None:
    store = location.open()
    ledger = contended_ledger(store, CENT * 3)
    write_pending(
        store,
        3,
        pending_entry("run", "a", 20_000, keep=1),
        pending_entry("run", "b"),
        pending_entry("run", "c"),
        pending_entry("run", "d"),
    )
    ledger.reserve("run", "mine", "work", 1, CENT)
    state = Ledger(location.open(), WallClock()).state("run")
    assert (state.left_usd, len(state.reservations), "a" in state.reservations) == (0, 4, False)
    with pytest.raises(BudgetExceeded):
        ledger.reserve("run", "a", "work", 1, CENT * 2)


def test_a_pending_entry_for_a_taken_number_is_never_committed_later(location: StoreLocation) -> None:
    store = location.open()
    ledger = contended_ledger(store)
    unaware = Ledger(store, WallClock())
    unaware._chains._accounts["run"] = ChainWriter(store, WallClock()).latest("run")
    write_pending(store, 3, pending_entry("run", "gave-up"))
    unaware.reserve("run", "alone", "work", 1, CENT)
    write_pending(store, 2, pending_entry("run", "late"))
    write_pending(store, 5, pending_entry("run", "early"))
    ledger.reserve("run", "mine", "work", 1, CENT)
    assert set(Ledger(location.open(), WallClock()).state("run").reservations) == {"first", "alone", "mine"}


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{}",
        b"not JSON",
        record_bytes(pending_entry("another", "x")),
        record_bytes(pending_entry("run", "first", 5)),
        record_bytes(pending_entry("run", "mine", 7)),
    ],
    ids=[
        "empty",
        "no wish",
        "no JSON",
        "of another account",
        "of a request that was made",
        "of the request that is made",
    ],
)
def test_a_malformed_pending_entry_is_ignored(location: StoreLocation, damage: bytes) -> None:
    store = location.open()
    ledger = contended_ledger(store)
    store.put(f"{store_layout.pending_entries('run', 3)}damage.json", damage)
    write_pending(store, 3, pending_entry("run", "theirs"))
    assert ledger.reserve("run", "mine", "work", 1, CENT).entry.amount_microusd == 10_000
    assert set(Ledger(location.open(), WallClock()).state("run").reservations) == {"first", "mine", "theirs"}
    verify(location.open(), {})


def test_group_commit_ends_when_no_writer_joins(location: StoreLocation) -> None:
    ledger = contended_ledger(location.open())
    for number in range(3):
        ledger.reserve("run", f"mine-{number}", "work", 1, CENT)
    assert not [key for key in location.open().list("pending/") if "/00000004/" in key]
    written = read_object(location.open(), "run", 5)
    assert written and not written.contended


NEVER = 10**9


class DyingStore:
    """A store with 1 ms latency whose process dies just before or just after its n-th write."""

    def __init__(self, store: Store, at: int, wrote: bool) -> None:
        self._store, self._left, self._wrote = store, at, wrote
        self.fetch = store.fetch

    def put(
        self, key: str, data: bytes | Path, *, if_absent: bool = False, storage_class: str = "standard"
    ) -> bool:
        time.sleep(0.001)
        self._left -= 1
        if self._left == 0 and self._wrote:
            self._store.put(key, data, if_absent=if_absent, storage_class=storage_class)
        if self._left <= 0:
            raise StoreError(f"the writer of {key} died")
        return self._store.put(key, data, if_absent=if_absent, storage_class=storage_class)

    def list(self, prefix: str) -> Iterator[str]:
        return self._store.list(prefix)


@pytest.mark.parametrize("seed", range(3))
def test_writers_that_die_lose_no_confirmed_entry_and_double_none(location: StoreLocation, seed: int) -> None:
    dice, gate = random.Random(seed), threading.Barrier(WRITERS)
    deaths = [(dice.randrange(2, 20), dice.random() < 0.5) for _ in range(2)]
    contended_ledger(location.open(), CENT * (WRITERS * ASKS_EACH - 6))

    def ask(me: int) -> tuple[set[str], set[str]]:
        at, wrote = deaths[me] if me < len(deaths) else (NEVER, False)
        ledger = Ledger(DyingStore(location.open(), at, wrote), WallClock(), f"pod-{me}")
        granted, refused = set[str](), set[str]()
        gate.wait()
        for number in range(ASKS_EACH):
            with suppress(StoreError):
                try:
                    ledger.reserve("run", f"work-{me}-{number}", "work", number, CENT)
                    granted.add(f"work-{me}-{number}")
                except BudgetExceeded:
                    refused.add(f"work-{me}-{number}")
        return granted, refused

    with ThreadPoolExecutor(WRITERS) as writers:
        answers = list(writers.map(ask, range(WRITERS)))
    granted, refused = (
        set[str]().union(*granted_or_refused) for granted_or_refused in zip(*answers, strict=True)
    )
    store = location.open()
    found = verify(store, {})
    holds = set(found.accounts[1].reservations) - {"first"}
    assert granted <= holds and not refused & holds
    assert found.accounts[1].held_usd == CENT * len(holds) <= CENT * (WRITERS * ASKS_EACH - 6)
    alive = {f"work-{me}-{number}" for me in range(len(deaths), WRITERS) for number in range(ASKS_EACH)}
    assert alive <= granted | refused


def test_equal_requests_get_the_same_entry_and_a_different_one_is_refused(
    location: StoreLocation,
) -> None:
    contended_ledger(location.open())

    def ask(me: int) -> str:
        try:
            return (
                Ledger(location.open(), WallClock())
                .reserve("run", "one", "work", 1, CENT * (1 + me // 3))
                .sha256
            )
        except LedgerConflict as error:
            return str(error)

    with ThreadPoolExecutor(4) as writers:
        answers = list(writers.map(ask, range(4)))
    hashes = {answer for answer in answers if len(answer) == 64}
    assert len(hashes) == 1 and (answers.count(*hashes) == 3 or answers.count(*hashes) == 1)
    assert all("other content" in answer for answer in answers if answer not in hashes)


@pytest.fixture
def grouped_store(tmp_path: Path) -> FolderStore:
    """A store in which entries 3 to 12 of `run` are in one object."""
    store = FolderStore(tmp_path / "store")
    ledger = contended_ledger(store)
    write_pending(store, 3, *(pending_entry("run", f"theirs-{number}") for number in range(9)))
    ledger.reserve("run", "mine", "work", 1, CENT)
    return store


@pytest.mark.parametrize("change", ["a byte", "one less", "one twice", "last two", "its form"])
def test_a_change_inside_a_group_of_entries_is_found(grouped_store: FolderStore, change: str) -> None:
    path = grouped_store.root / store_layout.ledger_entry("run", 3)
    written = read_object(grouped_store, "run", 3)
    assert written
    entries = written.entries
    changed = {
        "a byte": path.read_bytes().replace(b'"amount_microusd": 10000', b'"amount_microusd": 10001', 1),
        "one less": StoredObject(entries[:4] + entries[5:], contended=True).data,
        "one twice": StoredObject((*entries, entries[-1]), contended=True).data,
        "last two": StoredObject((*entries[:-2], entries[-1], entries[-2]), contended=True).data,
        "its form": path.read_bytes().replace(b"\n", b"\n\n", 1),
    }
    path.write_bytes(changed[change])
    with pytest.raises(LedgerCorrupt, match="ledger/run/"):
        verify(grouped_store, {})


def test_a_stray_entry_next_to_a_group_is_found(grouped_store: FolderStore) -> None:
    (grouped_store.root / store_layout.ledger_entry("run", 5)).write_bytes(
        (grouped_store.root / store_layout.ledger_entry("run", 2)).read_bytes()
    )
    with pytest.raises(LedgerCorrupt, match=r"00000005\.json: has the number of an entry that is in a batch"):
        verify(grouped_store, {})


def test_a_group_of_entries_is_exported_and_counted_entry_by_entry(
    grouped_store: FolderStore, tmp_path: Path
) -> None:
    export_accounts(grouped_store, tmp_path / "copy", "run")
    copied, whole = verify(LedgerFolderStore(tmp_path / "copy"), {}), verify(grouped_store, {})
    assert copied.accounts == whole.accounts
    assert len(list((tmp_path / "copy/run").glob("0*.json"))) == whole.accounts[1].entries == 12
