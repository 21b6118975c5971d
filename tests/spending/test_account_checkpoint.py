"""A checkpoint saves a new writer from reading a long chain, equals the account of the entries, and is
checked by verify.
"""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import pytest
from clocks import StillClock
from faulty_stores import MONTH, fast_folder
from hypothesis import given
from hypothesis import strategies as st
from test_ledger_laws import amounts, do, laws, request_strategy

from shoestring.backends.folder_store import FolderStore
from shoestring.backends.memory import MemoryStore
from shoestring.core import store_layout
from shoestring.core.errors import BudgetExceeded, LedgerConflict, LedgerCorrupt
from shoestring.core.record import digest, record_bytes
from shoestring.spending.audit.verify import verify
from shoestring.spending.ledger.account import Account
from shoestring.spending.ledger.account_checkpoint import (
    MIN_INTERVAL,
    AccountCheckpoint,
    HashedCheckpoint,
    checkpoint_is_due,
    load_checkpoint,
    make_checkpoint,
    same_account,
    write_checkpoint,
)
from shoestring.spending.ledger.chain_writer import ChainWriter
from shoestring.spending.ledger.entry import read_entry
from shoestring.spending.ledger.ledger import Ledger

LONG = 3 * MIN_INTERVAL + 10


class CountingStore(FolderStore):
    """Counts its fetches."""

    fetches = 0

    def fetch(self, key: str) -> Path:
        self.fetches += 1
        return super().fetch(key)


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture(scope="module")
def long_chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a store with a long chain, in which every second reservation is settled."""
    folder = tmp_path_factory.mktemp("long_chain")
    ledger = Ledger(FolderStore(folder), StillClock())
    ledger.open("run", Decimal("10.00"), stage_caps={"work": Decimal("9.00")})
    for number in range(2, LONG + 1, 2):
        ledger.reserve("run", f"work-{number}", "work", number, Decimal("0.002"), decision_key="for a test")
        if number % 4 == 0:
            ledger.settle("run", f"work-{number}", Decimal("0.001"))
        else:
            ledger.extend("run", f"work-{number}", Decimal("0.001"))
    return folder


@pytest.fixture
def store(tmp_path: Path, long_chain: Path) -> FolderStore:
    """A copy of the long chain, to change."""
    shutil.copytree(long_chain, tmp_path, dirs_exist_ok=True)
    return FolderStore(tmp_path)


@laws
@given(requests=st.lists(request_strategy, max_size=12), cap_usd=amounts)
def test_an_account_restored_from_a_checkpoint_continues_like_the_original(requests, cap_usd):
    store, clock = MemoryStore(), StillClock()
    ledger, restored = Ledger(store, clock), []
    ledger.open("run", cap_usd, stage_caps={"train": cap_usd})
    for request in requests:
        with suppress(BudgetExceeded, LedgerConflict):
            do(ledger, *request)
        true = ChainWriter(store, clock).latest("run")
        write_checkpoint(store, make_checkpoint(true, true.number + 1))
        saved = load_checkpoint(store, "run").account
        assert same_account(saved, true)
        restored.append(saved)
        for account in restored:
            while hashed := read_entry(store, "run", account.number + 1):
                account.apply(hashed)
            assert same_account(account, true)


def test_a_new_writer_reads_only_the_entries_after_the_last_checkpoint(store, clock):
    counting = CountingStore(store.root)
    ledger = Ledger(counting, clock)
    ledger.reserve("run", "one-more", "work", 1, Decimal("0.001"))
    assert counting.fetches < LONG % MIN_INTERVAL + 10
    whole = Account("run")
    for number in range(1, LONG + 4):
        if hashed := read_entry(store, "run", number):
            whole.apply(hashed)
    assert ledger.state("run") == whole.state() == Ledger(store, clock).state("run")


def test_requests_from_before_a_checkpoint_stay_idempotent(store, clock):
    again, before = Ledger(store, clock), Ledger(store, clock).state("run").entries
    assert (
        again.reserve("run", "work-2", "work", 2, Decimal("0.002"), decision_key="for a test").entry.number
        == 2
    )
    assert again.settle("run", "work-4", Decimal("0.001")).entry.kind == "settle"
    with pytest.raises(LedgerConflict, match="with other content"):
        again.reserve("run", "work-2", "work", 2, Decimal("0.003"))
    with pytest.raises(LedgerConflict, match="already settled work-4 at"):
        again.extend("run", "work-4", Decimal("0.001"))
    again.adjust("run", "work-4", Decimal("-0.0005"), "true times")
    assert again.state("run").entries == before + 1
    assert verify(store, {}).accounts[1].settled_usd["work-4"] == Decimal("0.0005")


@pytest.mark.parametrize("where", ["gone", "of an older entry"])
def test_a_missing_or_old_checkpoint_changes_nothing(store, clock, where):
    state = Ledger(store, clock).state("run")
    path = store.root / store_layout.ledger_checkpoint("run")
    path.unlink()
    if where != "gone":
        early = Account("run")
        for number in range(1, MIN_INTERVAL):
            early.apply(read_entry(store, "run", number))
        write_checkpoint(store, make_checkpoint(early, MIN_INTERVAL))
    assert Ledger(store, clock).state("run") == state
    verify(store, {})


def test_a_damaged_checkpoint_is_reported(store, clock):
    path = store.root / store_layout.ledger_checkpoint("run")
    path.write_bytes(path.read_bytes().replace(b'"spent_microusd": ', b'"spent_microusd": 1', 1))
    for read in (lambda: Ledger(store, clock).state("run"), lambda: verify(store, {})):
        with pytest.raises(
            LedgerCorrupt, match=r"checkpoint\.json was changed: verify the entries, then delete it"
        ):
            read()


def with_changes(saved: HashedCheckpoint, **changes: object) -> HashedCheckpoint:
    """Return a checkpoint with other content and the hash of it."""
    changed = AccountCheckpoint.model_validate(saved.checkpoint.model_dump() | changes)
    return HashedCheckpoint(checkpoint=changed, sha256=digest(record_bytes(changed)))


def write_wrong_checkpoint(store: FolderStore, **changes: object) -> None:
    """Write a checkpoint with a valid hash and wrong content."""
    path = store.root / store_layout.ledger_checkpoint("run")
    write_checkpoint(store, with_changes(HashedCheckpoint.model_validate_json(path.read_bytes()), **changes))


@pytest.mark.parametrize(
    "changes", [{"spent_microusd": 0, "held_microusd": 0}, {"cap_microusd": 90_000_000}, {"closed": True}]
)
def test_a_checkpoint_that_no_entry_names_never_changes_what_a_writer_may_spend(store, clock, changes):
    path = store.root / store_layout.ledger_checkpoint("run")
    true, data = Ledger(store, clock).state("run"), path.read_bytes()
    write_wrong_checkpoint(store, **changes)
    with pytest.raises(LedgerCorrupt, match=r"00000384\.json: does not name checkpoint\.json"):
        Ledger(store, clock).reserve("run", "more", "other", 1, Decimal("0.001"))
    with pytest.raises(LedgerCorrupt, match=r"does not give the state that checkpoint\.json has"):
        verify(store, {})
    path.write_bytes(data)
    assert Ledger(store, clock).state("run") == true


def test_a_checkpoint_that_verify_could_not_tell_from_the_true_one_must_be_named(store):
    path = store.root / store_layout.ledger_checkpoint("run")
    saved = HashedCheckpoint.model_validate_json(path.read_bytes())
    write_checkpoint(
        store, with_changes(saved, settled=(*saved.checkpoint.settled, *saved.checkpoint.settled))
    )
    with pytest.raises(LedgerCorrupt, match=r"00000384\.json: does not name checkpoint\.json"):
        verify(store, {})


@pytest.mark.parametrize(
    "changes",
    [
        {"spent_microusd": 0},
        {"cap_microusd": 20_000_000},
        {"reservations": {}},
        {"requests": ""},
        {"settled": ()},
        {"cap_entry": 7},
    ],
)
def test_verify_finds_a_checkpoint_that_differs_from_the_entries(store, changes):
    verify(store, {})
    write_wrong_checkpoint(store, **changes)
    with pytest.raises(LedgerCorrupt, match=r"does not give the state that checkpoint\.json has"):
        verify(store, {})


def test_a_chain_cut_off_before_its_checkpoint_is_reported_to_every_reader(store, clock):
    at = json.loads((store.root / store_layout.ledger_checkpoint("run")).read_bytes())["checkpoint"]["number"]
    for number in range(at + 1, LONG + 2):
        (store.root / store_layout.ledger_entry("run", number)).unlink(missing_ok=True)
    for read in (lambda: Ledger(store, clock).state("run"), lambda: verify(store, {})):
        with pytest.raises(LedgerCorrupt, match=rf"{at + 1:08d}\.json: (is|does not name checkpoint)"):
            read()
    (store.root / "ledger/run/head.json").unlink()
    with pytest.raises(LedgerCorrupt, match=rf"{at + 1:08d}\.json: is missing"):
        verify(store, {})


def test_the_interval_between_checkpoints_grows_with_the_chain():
    due = [number for number in range(1, 200_001) if checkpoint_is_due(number)]
    apart = [after - before for before, after in pairwise(due)]
    assert due[0] == MIN_INTERVAL == apart[0]
    assert all(gap <= max(MIN_INTERVAL, number / 256) for gap, number in zip(apart, due[1:], strict=True))
    assert all(number / 512 <= gap for gap, number in zip(apart, due[1:], strict=True))


def test_ensuring_a_cap_reads_no_more_of_a_longer_chain():
    with fast_folder() as folder:
        check_cap_costs(CountingStore(folder), StillClock())


def check_cap_costs(store, clock):
    read = dict[int, int]()
    writer = Ledger(store, clock)
    writer.ensure_cap(MONTH, Decimal(100))
    for length in (300, 1200):
        for number in range(writer.state(MONTH).entries // 2, length // 2):
            writer.reserve(MONTH, f"work-{number}", "work", number, Decimal("0.01"))
            writer.settle(MONTH, f"work-{number}", Decimal("0.01"))
        before = store.fetches
        Ledger(store, clock).ensure_cap(MONTH, Decimal(100))
        read[length] = store.fetches - before
    assert read[1200] <= MIN_INTERVAL + 4 and writer.state(MONTH).entries == 1201
    Ledger(store, clock).ensure_cap(MONTH, Decimal(90))
    assert Ledger(store, clock).state(MONTH).cap_usd == 90
    with pytest.raises(LedgerConflict, match="so its cap cannot be"):
        writer.ensure_cap(MONTH, Decimal(1))
