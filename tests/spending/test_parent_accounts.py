"""A run in a campaign has two parents, its month and its campaign: both reserve its cap, or neither."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from approved_caps import approve, approved
from clocks import NOON, StillClock
from faulty_stores import MONTH, DyingStore, fast_folder, writes_of
from hypothesis import given
from hypothesis import strategies as st
from test_ledger_laws import laws

from shoestring.backends.folder_store import FolderStore
from shoestring.backends.memory import MemoryStore
from shoestring.core import store_layout
from shoestring.core.errors import BudgetExceeded, LedgerConflict, LedgerCorrupt, StoreError
from shoestring.core.money import from_microusd
from shoestring.core.record import record_bytes
from shoestring.spending.audit.verify import verify
from shoestring.spending.ledger.chain_writer import ChainWriter
from shoestring.spending.ledger.entry import hash_entry, read_entry
from shoestring.spending.ledger.ledger import Ledger
from shoestring.spending.ledger.parent_accounts import (
    LEASE_S,
    ParentAccounts,
    campaign_account,
    is_root_account,
)

SPRING = campaign_account("spring")


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    return FolderStore(tmp_path / "store")


@pytest.fixture
def ledger(store: FolderStore, clock: StillClock) -> Ledger:
    ledger = Ledger(store, clock)
    ledger.open(MONTH, Decimal("3"))
    ledger.open(SPRING, Decimal("2"))
    return ledger


def held(ledger: Ledger) -> tuple[Decimal, Decimal]:
    return ledger.state(MONTH).held_usd, ledger.state(SPRING).held_usd


def test_months_and_campaigns_are_root_accounts_and_runs_are_not():
    assert [is_root_account(name) for name in (MONTH, SPRING, "spring", "spring.2", "spring.campaign.2")] == [
        True,
        True,
        False,
        False,
        False,
    ]


def test_a_run_in_a_campaign_is_reserved_settled_and_released_in_both_parents(store, ledger):
    approve(store)
    ledger.open("run", Decimal("1"), campaign=SPRING)
    assert held(ledger) == (Decimal("1"), Decimal("1"))
    ledger.set_cap("run", Decimal("1.5"), approved())
    assert held(ledger) == (Decimal("1.5"), Decimal("1.5"))
    ledger.reserve("run", "train-1", "train", 1, Decimal("1.2"))
    ledger.settle("run", "train-1", Decimal("0.7"))
    ledger.close("run")
    for account in (MONTH, SPRING):
        state = ledger.state(account)
        assert (state.spent_usd, state.held_usd, state.released_usd) == (Decimal("0.7"), 0, Decimal("0.8"))
    found = verify(store, {})
    assert (found.spent_usd, found.unfinished) == (Decimal("0.7"), ())


@pytest.mark.parametrize(("cap_usd", "parent"), [("2.5", SPRING), ("3.5", MONTH)])
def test_a_run_that_one_parent_cannot_afford_is_reserved_in_neither(store, ledger, cap_usd, parent):
    left = {SPRING: "2.000000", MONTH: "3.000000"}[parent]
    with pytest.raises(
        BudgetExceeded,
        match=rf"reserve run of {parent}: \${cap_usd}00000 requested, \${left} left of \${left}",
    ):
        ledger.open("run", Decimal(cap_usd), campaign=SPRING)
    assert held(ledger) == (0, 0)
    assert verify(store, {}).unfinished == ()
    ledger.open("run.2", Decimal("1"), campaign=SPRING)


def test_a_higher_cap_that_one_parent_cannot_afford_is_reserved_in_neither(store, ledger):
    approve(store)
    ledger.open("run", Decimal("1"), campaign=SPRING)
    ledger.open("other", Decimal("1.5"))
    with pytest.raises(BudgetExceeded, match="extend run of 2026-11"):
        ledger.set_cap("run", Decimal("1.8"), approved())
    ledger.close("other")
    with pytest.raises(BudgetExceeded, match=r"extend run of spring\.campaign"):
        ledger.set_cap("run", Decimal("2.5"), approved())
    assert held(ledger) == (Decimal("1"), Decimal("1"))


def test_a_campaign_spans_months_and_keeps_its_cap(store):
    clock = StillClock(datetime(2026, 11, 30, 23, 59, tzinfo=UTC))
    ledger = Ledger(store, clock)
    ledger.open(SPRING, Decimal("2"))
    ledger.open("november", Decimal("1.5"), campaign=SPRING)
    clock.sleep(120)
    with pytest.raises(
        BudgetExceeded,
        match=r"reserve december of spring\.campaign: \$1\.000000 requested, \$0\.500000 left of \$2",
    ):
        ledger.open("december", Decimal("1"), campaign=SPRING)
    ledger.reserve("november", "train-1", "train", 1, Decimal("1"))
    ledger.settle("november", "train-1", Decimal("0.9"))
    ledger.close("november")
    ledger.open("december.2", Decimal("1.1"), campaign=SPRING)
    assert [ledger.state(month).spent_usd for month in ("2026-11", "2026-12")] == [Decimal("0.9"), 0]
    assert ledger.state(SPRING).left_usd == 0
    assert verify(store, {}).unfinished == ()


def test_a_campaign_that_was_never_opened_reserves_nothing(ledger):
    with pytest.raises(LedgerConflict, match="has not been opened"):
        ledger.open("run", Decimal("1"), campaign=campaign_account("nobodys"))
    assert held(ledger) == (0, 0)


def a_whole_run(ledger: Ledger) -> None:
    ledger.open(SPRING, Decimal("5"))
    ledger.open("run", Decimal("1"), campaign=SPRING)
    ledger.reserve("run", "train-1", "train", 1, Decimal("0.5"))
    ledger.set_cap("run", Decimal("2"), approved())
    ledger.settle("run", "train-1", Decimal("0.4"))
    ledger.close("run")


@pytest.mark.parametrize("wrote", [False, True], ids=["before", "after"])
def test_a_repeated_request_completes_a_writer_that_died_at_any_write(wrote: bool):
    for at in range(1, writes_of(a_whole_run) + 1):
        with fast_folder() as folder:
            store, clock = FolderStore(folder), StillClock()
            approve(store)
            with suppress(StoreError):
                a_whole_run(Ledger(DyingStore(folder, at, wrote=wrote), clock))
            verify(store, {})
            again = Ledger(store, clock)
            a_whole_run(again)
            found = verify(store, {})
            assert (found.spent_usd, found.held_usd, found.unfinished) == (Decimal("0.4"), 0, ())
            assert [again.state(name).spent_usd for name in ("run", SPRING, MONTH)] == [Decimal("0.4")] * 3


@pytest.mark.parametrize("wrote", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("order", [(MONTH, SPRING), (SPRING, MONTH)], ids=["month first", "campaign first"])
def test_repair_settles_what_a_dead_writer_left_in_either_parent(wrote: bool, order: tuple[str, str]):
    for at in range(1, writes_of(a_whole_run) + 1):
        with fast_folder() as folder:
            store, clock = FolderStore(folder), StillClock()
            approve(store)
            with suppress(StoreError):
                a_whole_run(Ledger(DyingStore(folder, at, wrote=wrote), clock))
            repairer = Ledger(store, clock)
            clock.sleep(LEASE_S)
            existing = [name for name in order if any(store.list(f"ledger/{name}/"))]
            for name in existing:
                repairer.repair_parent(name)
            found = verify(store, {})
            assert found.unfinished == ()
            run = next((state for state in found.accounts if state.account == "run"), None)
            for name in existing:
                state = repairer.state(name)
                assert set(state.reservations) == ({"run"} if run and not run.closed else set())
                assert state.spent_usd == (run.spent_usd if run and run.closed else 0)


asks = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 4), st.integers(0, 60), st.booleans()), max_size=15
)


@laws
@given(asks, st.integers(0, 150), st.integers(0, 150))
def test_neither_parent_exceeds_its_cap_and_both_agree(asking, month_cap, campaign_cap):
    store, clock = MemoryStore(), StillClock()
    approve(store, *(f"run-{run}" for run in range(5)))
    writers = [Ledger(store, clock) for _ in range(2)]
    writers[0].open(MONTH, from_microusd(month_cap))
    writers[0].open(SPRING, from_microusd(campaign_cap))
    inside = set()
    for writer, run, amount, is_inside in asking:
        name, ledger = f"run-{run}", writers[writer]
        with suppress(BudgetExceeded, LedgerConflict):
            ledger.open(name, from_microusd(amount), campaign=SPRING if is_inside else None)
            inside |= {name} if ledger.state(name).campaign else set()
            ledger.set_cap(name, from_microusd(amount + 5), approved(name))
            ledger.reserve(name, "train-1", "train", 1, from_microusd(amount // 2))
            ledger.settle(name, "train-1", from_microusd(amount // 3))
            if amount % 2:
                ledger.close(name)
        month, campaign = ledger.state(MONTH), ledger.state(SPRING)
        for state in (month, campaign):
            assert state.spent_usd + state.held_usd <= state.cap_usd
        for name in inside:
            amounts = [
                state.reservations[name].amount_usd if name in state.reservations else state.settled_usd[name]
                for state in (month, campaign)
            ]
            assert (amounts[0] == amounts[1]) or name in month.reservations
    found = verify(store, {})
    assert found.unfinished == ()
    assert set(campaign_holds(found)) <= inside


def campaign_holds(found) -> list[str]:
    state = next(state for state in found.accounts if state.account == SPRING)
    return [name for name, amount in state.settled_usd.items() if amount] + list(state.reservations)


@pytest.mark.parametrize(
    ("number", "change", "reason"),
    [
        (
            1,
            {"campaign_hash": "0" * 64},
            r"names entry 000000000000\.\.\. of spring\.campaign, which is missing",
        ),
        (1, {"campaign": "autumn.campaign"}, r"is inside autumn\.campaign, which is missing"),
        (1, {"cap_microusd": 2_500_000}, r"is not what entry .* reserved"),
        (1, {"parent": None, "parent_hash": None}, "must be inside a month as well"),
    ],
)
def test_verify_reports_an_account_whose_campaign_did_not_reserve_its_cap(
    store, ledger, number, change, reason
):
    ledger.open("run", Decimal("1"), campaign=SPRING)
    hashed = read_entry(store, "run", number)
    (store.root / "ledger/run/head.json").unlink()
    store.put(
        store_layout.ledger_entry("run", number),
        record_bytes(hash_entry(hashed.entry.model_copy(update=change))),
    )
    with pytest.raises(LedgerCorrupt, match=reason):
        verify(store, {})


def test_entries_without_a_campaign_leave_the_campaign_fields_out(store, ledger):
    ledger.open("run", Decimal("1"))
    data = store.fetch(store_layout.ledger_entry("run", 1)).read_bytes()
    assert not {b"campaign", b"campaign_hash", b"approval"} & set(data.replace(b'"', b" ").split())


def die_between_accounts(store: FolderStore, clock: StillClock) -> None:
    with pytest.raises(StoreError):
        Ledger(DyingStore(store.root, 3, wrote=False), clock).open(
            "late", Decimal("0.5"), MONTH, campaign=SPRING
        )


def test_a_reservation_made_by_a_clock_years_ahead_is_released(store, ledger, clock):
    die_between_accounts(store, StillClock(NOON + timedelta(days=1000)))
    clock.sleep(LEASE_S)
    assert ledger.repair_parent(MONTH) == []
    # No later entry shows how old it is.
    ledger.open("other", Decimal("0.1"))
    assert ledger.repair_parent(MONTH) == []
    clock.sleep(LEASE_S)
    assert ledger.repair_parent(MONTH) == ["late in 2026-11: $0.500000 held, settled at $0.000000"]
    verify(store, {})


def test_a_clock_that_goes_back_changes_neither_order_nor_caps(store, ledger, clock):
    for hours in (0, -5000, 3, -1):
        clock.sleep(hours * 3600)
        ledger.open(f"run-{hours}", Decimal("0.25"), parent=MONTH, campaign=SPRING)
    state = Ledger(store, clock).state(MONTH)
    assert (list(state.reservations), state.entries) == (sorted(["run-0", "run--5000", "run-3", "run--1"]), 5)
    verify(store, {})


def test_an_account_that_opens_during_a_repair_is_not_closed_by_it(store, clock, ledger):
    """The repair reads no account, and the account is opened before the repair writes its entry."""
    ledger.open("run", Decimal("1"), campaign=SPRING)
    hashed = read_entry(store, MONTH, 2)
    with pytest.raises(LedgerConflict, match="is already open"):
        writer = ChainWriter(store, clock)
        writer.append(
            ParentAccounts(writer, clock, "").draft(
                "run", kind="close", id="close", parent=MONTH, parent_hash=hashed.sha256
            )
        )
    assert not ledger.state("run").closed
