"""Verification finds every change of a ledger, and never reports a valid one."""

from __future__ import annotations

import functools
import json
import shutil
from decimal import Decimal

import pytest
from approved_caps import approved
from clocks import NOON, StillClock
from example_ledger import check, copy_example, cut
from examples import examples
from faulty_stores import MONTH, BusyStore, DyingStore, fast_folder
from hypothesis import given
from hypothesis import strategies as st
from tampering import tamper

from shoestring.backends.folder_store import FolderStore
from shoestring.core import store_layout
from shoestring.core.errors import DataError, LedgerCorrupt, StoreError
from shoestring.core.record import record_bytes
from shoestring.spending.audit.verify import load_anchors, verify
from shoestring.spending.ledger.chain import AccountChain
from shoestring.spending.ledger.entry import Entry, hash_entry, read_entry
from shoestring.spending.ledger.ledger import Ledger


@pytest.fixture
def store(tmp_path) -> FolderStore:
    return copy_example(tmp_path)


def test_a_valid_ledger_is_summed_with_every_dollar_once(store):
    found = verify(store, load_anchors(store))
    assert [state.account for state in found.accounts] == [MONTH, "run-1", "run-2"]
    assert (found.cap_usd, found.spent_usd, found.held_usd) == (
        Decimal("2.5"),
        Decimal("0.79"),
        Decimal("0.1"),
    )
    assert (found.released_usd, found.entries, found.unfinished) == (Decimal("0.4"), 5 + 7 + 7, ())
    assert (
        found.as_text()
        .splitlines()[-1]
        .startswith("every hash, sequence and balance holds: 19 entries, $2.500000 in caps")
    )


@examples(150)
@given(st.data())
def test_any_change_of_any_file_is_found(data):
    with fast_folder() as folder:
        store = copy_example(folder)
        tamper(data, sorted((folder / "ledger").rglob("*.json")))
        with pytest.raises(LedgerCorrupt):
            check(store)


def test_the_first_wrong_entry_is_named(store):
    path = store.root / store_layout.ledger_entry("run-2", 4)
    path.write_text(path.read_text().replace("300000", "100000"))
    with pytest.raises(
        LedgerCorrupt, match=r"ledger/run-2/00000004\.json: its content does not match its stored hash"
    ):
        check(store)


def rewrite(store: FolderStore, account: str, number: int, **changes: object) -> None:
    """Change an entry, and update its hash, the hashes of all later entries, and the head hint."""
    head, last = "", number
    for at in range(number, 99):
        hashed = read_entry(store, account, at)
        if hashed is None:
            break
        update = changes if at == number else {"prev": head}
        new = hash_entry(Entry.model_validate(hashed.entry.model_dump() | update))
        store.put(store_layout.ledger_entry(account, at), record_bytes(new))
        head, last = new.sha256, at
    (store.root / f"ledger/{account}/head.json").write_text(
        json.dumps({"number": last, "sha256": head}, indent=1) + "\n"
    )


@pytest.mark.parametrize(
    ("account", "number", "changes"),
    [
        ("run-1", 3, {"amount_microusd": 100_000}),
        ("run-2", 3, {"amount_microusd": 100_000}),
        (MONTH, 2, {"amount_microusd": 1_000_001}),
    ],
    ids=["a run that is over", "a run that goes on", "the month"],
)
def test_a_chain_rewritten_with_all_its_hashes_is_found(store, account, number, changes):
    rewrite(store, account, number, **changes)
    with pytest.raises(LedgerCorrupt):
        check(store)


CHILD = {"kind": "settle", "id": "settle/x", "reservation": "run-2", "child": "run-2", "amount_microusd": 0}


@pytest.mark.parametrize(
    ("account", "forged"),
    [
        ("run-2", {"kind": "reserve", "id": "x", "reservation": "x", "amount_microusd": 10_000_000}),
        (
            "run-2",
            {"kind": "reserve", "id": "x", "reservation": "x", "stage": "train", "amount_microusd": 600_001},
        ),
        ("run-2", {"kind": "reserve", "id": "x", "reservation": "x", "amount_microusd": -1}),
        ("run-2", {"kind": "reserve", "id": "x", "reservation": "train-1", "amount_microusd": 1}),
        ("run-2", {"kind": "reserve", "id": "x", "reservation": "evaluate-1", "amount_microusd": 1}),
        ("run-2", {"kind": "reserve", "id": "x", "reservation": "", "amount_microusd": 1}),
        ("run-2", {"kind": "settle", "id": "x", "reservation": "evaluate-1", "amount_microusd": 100_001}),
        ("run-2", {"kind": "settle", "id": "x", "reservation": "evaluate-1", "amount_microusd": -1}),
        ("run-2", {"kind": "settle", "id": "x", "reservation": "train-1", "amount_microusd": 1}),
        (
            "run-2",
            {"kind": "settle", "id": "settle/train-1", "reservation": "evaluate-1", "amount_microusd": 1},
        ),
        ("run-2", {"kind": "adjust", "id": "x", "reservation": "train-1", "amount_microusd": -200_001}),
        ("run-2", {"kind": "open", "id": "x", "cap_microusd": 9_000_000}),
        ("run-2", {"kind": "cap", "id": "x", "cap_microusd": 9_000_000}),
        (
            "run-2",
            {"kind": "cap", "id": "x", "cap_microusd": 9_000_000, "parent": MONTH, "parent_hash": "a" * 64},
        ),
        ("run-2", {"kind": "close", "id": "x"}),
        ("run-1", {"kind": "reserve", "id": "x", "reservation": "x", "amount_microusd": 1}),
        (MONTH, {"kind": "cap", "id": "x", "cap_microusd": 1}),
        (MONTH, {"kind": "reserve", "id": "x", "reservation": "x", "child": "run-3", "amount_microusd": 1}),
        (MONTH, CHILD),
        (MONTH, CHILD | {"child_hash": "a" * 64}),
        (MONTH, CHILD | {"child": None}),
        (MONTH, CHILD | {"child": "run-1", "child_hash": "a" * 64}),
        (
            MONTH,
            {"kind": "adjust", "id": "x", "reservation": "run-1", "child": "run-1", "amount_microusd": -1},
        ),
    ],
    ids=str,
)
def test_an_entry_with_valid_hashes_that_breaks_a_rule_is_found(store, account, forged):
    state = Ledger(store, StillClock()).state(account)
    entry = Entry(account=account, number=state.entries + 1, prev=state.head_hash, at=NOON, **forged)
    store.put(store_layout.ledger_entry(account, entry.number), record_bytes(hash_entry(entry)))
    with pytest.raises(LedgerCorrupt, match=rf"{account}/{entry.number:08d}\.json"):
        check(store)


def test_a_settlement_by_an_entry_that_did_not_close_the_child_is_found(store):
    state, first = Ledger(store, StillClock()).state(MONTH), read_entry(store, "run-2", 1)
    entry = Entry(
        account=MONTH,
        number=state.entries + 1,
        prev=state.head_hash,
        at=NOON,
        **CHILD,
        child_hash=first.sha256,
    )
    store.put(store_layout.ledger_entry(MONTH, entry.number), record_bytes(hash_entry(entry)))
    with pytest.raises(LedgerCorrupt, match="settles run-2 by entry 1, which did not close it"):
        check(store)


@pytest.mark.parametrize("reserved_for", ["run-2", "run-3"])
def test_a_cap_that_its_own_reservation_does_not_cover_is_found(store, reserved_for):
    ledger = Ledger(store, StillClock())
    ledger.open("run-3", Decimal("5"))
    state, month = ledger.state("run-2"), AccountChain(store, MONTH)
    proof = [sha256 for sha256, (child, _) in month.child_reservations.items() if child == reserved_for][-1]
    forged = {"kind": "cap", "id": "x", "cap_microusd": 2_000_000, "parent": MONTH, "parent_hash": proof}
    forged["approval"] = approved("run-2")
    entry = Entry(account="run-2", number=state.entries + 1, prev=state.head_hash, at=NOON, **forged)
    store.put(store_layout.ledger_entry("run-2", entry.number), record_bytes(hash_entry(entry)))
    with pytest.raises(
        LedgerCorrupt, match=r"run-2/00000008\.json: is not what entry .* of 2026-11 reserved"
    ):
        check(store)


def test_an_account_copied_under_another_name_is_found(store):
    shutil.copytree(store.root / "ledger/run-1", store.root / "ledger/run-3")
    with pytest.raises(LedgerCorrupt, match=r"run-3/00000001\.json: is entry 1 of run-1: it was moved here"):
        check(store)


@pytest.mark.parametrize(
    ("account", "keep", "message"),
    [
        ("run-1", 6, "2026-11/00000005.json: names entry .* of run-1, which is missing"),
        ("run-2", 3, "run-2: the receipt of train-1 names its entry"),
        (
            MONTH,
            1,
            "run-1/00000001.json: names entry .* of 2026-11, which is missing: "
            "the end of its chain was removed",
        ),
        (MONTH, 3, "run-2/00000006.json: names entry .* of 2026-11, which is missing"),
        ("run-1", 0, "2026-11/00000005.json: settles run-1, which is missing"),
        ("run-2", 0, "run-2: the receipt of ingest-1 names its entry"),
        (MONTH, 0, "run-1/00000001.json: is inside 2026-11, which is missing"),
    ],
)
def test_a_removed_chain_end_is_found_through_accounts_that_name_its_entries(store, account, keep, message):
    cut(store, account, keep)
    with pytest.raises(LedgerCorrupt, match=message):
        check(store)


def test_a_parent_that_settled_another_amount_than_was_spent_is_found(store):
    cut(store, MONTH, 4)
    closing, last = read_entry(store, "run-1", 7), read_entry(store, MONTH, 4)
    content = {
        "kind": "settle",
        "id": "settle/run-1",
        "reservation": "run-1",
        "child": "run-1",
        "child_hash": closing.sha256,
    }
    entry = Entry(account=MONTH, number=5, prev=last.sha256, at=NOON, amount_microusd=380_000, **content)
    store.put(store_layout.ledger_entry(MONTH, 5), record_bytes(hash_entry(entry)))
    with pytest.raises(LedgerCorrupt, match=r"settles run-1 at \$0\.380000, but it spent \$0\.390000"):
        check(store)


@pytest.mark.parametrize(
    ("at", "message"),
    [
        (5, "run-3 has $1.000000 reserved in 2026-11, and is not opened yet"),
        (9, "run-3 is closed and not settled in 2026-11 yet"),
    ],
)
def test_a_crash_between_two_accounts_is_reported_as_unfinished_and_not_as_corrupt(store, at, message):
    dying = Ledger(DyingStore(store.root, at - 2, wrote=False), StillClock())
    with pytest.raises(StoreError):
        dying.open("run-3", Decimal("1"))
        dying.close("run-3")
    found = verify(store, load_anchors(store))
    assert [sentence.startswith(message) for sentence in found.unfinished] == [True]
    assert message in found.as_text()


def test_a_ledger_that_grows_during_verification_is_valid(store):
    ledger = Ledger(store, StillClock())
    meanwhile = functools.partial(ledger.set_cap, "run-2", Decimal("2"), approved("run-2"))
    busy = BusyStore(store.root, store_layout.ledger_entry("run-1", 1), meanwhile)
    assert verify(busy, load_anchors(store)).cap_usd == Decimal("3")


def test_an_unreadable_receipt_is_reported(store):
    store.put("runs/run-1/receipts/train-1.json", b"{}")
    with pytest.raises(DataError, match=r"runs/run-1/receipts/train-1\.json is not a receipt"):
        load_anchors(store)
