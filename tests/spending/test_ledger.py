"""The results and the refusals of each ledger operation."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from approved_caps import approve, approved
from clocks import NOON, StillClock
from faulty_stores import MONTH, DyingStore

from shoestring.backends.folder_store import FolderStore
from shoestring.core import store_layout
from shoestring.core.errors import (
    BudgetExceeded,
    LedgerConflict,
    LedgerCorrupt,
    StoreError,
    UnknownName,
    UsageError,
)
from shoestring.core.record import record_bytes
from shoestring.spending.audit.verify import verify
from shoestring.spending.ledger.entry import hash_entry, read_entry
from shoestring.spending.ledger.ledger import Ledger, account_names
from shoestring.spending.ledger.parent_accounts import LEASE_S


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture
def store(tmp_path) -> FolderStore:
    store = FolderStore(tmp_path)
    approve(store, "run", "run-1")
    return store


@pytest.fixture
def ledger(store, clock) -> Ledger:
    ledger = Ledger(store, clock, "host.1.2")
    ledger.open("run", Decimal("1.00"), stage_caps={"train": Decimal("0.60")})
    return ledger


def test_a_runs_account_is_inside_the_month_in_which_it_was_opened(ledger):
    assert ledger.state("run").parent == MONTH
    month = ledger.state(MONTH)
    assert (month.cap_usd, month.left_usd, month.parent) == (None, None, None)
    assert month.reservations["run"].amount_usd == Decimal("1.00")


def test_closing_returns_unspent_money_to_the_month(ledger):
    ledger.reserve("run", "train-1", "train", 1, Decimal("0.50"))
    ledger.settle("run", "train-1", Decimal("0.123456"))
    ledger.close("run")
    month = ledger.state(MONTH)
    assert (month.spent_usd, month.held_usd, month.released_usd) == (
        Decimal("0.123456"),
        Decimal(0),
        Decimal("0.876544"),
    )
    assert month.settled_usd == {"run": Decimal("0.123456")}


def test_a_reservation_never_exceeds_what_is_left(ledger):
    ledger.reserve("run", "ingest-1", "ingest", 1, Decimal("0.70"))
    with pytest.raises(
        BudgetExceeded,
        match=r"reserve evaluate-1 of run: \$0\.400000 requested, \$0\.300000 left of \$1\.000000",
    ) as refused:
        ledger.reserve("run", "evaluate-1", "evaluate", 1, Decimal("0.40"))
    assert (refused.value.requested_usd, refused.value.left_usd, refused.value.cap_usd) == (
        Decimal("0.4"),
        Decimal("0.3"),
        Decimal("1"),
    )
    ledger.reserve("run", "evaluate-1", "evaluate", 1, Decimal("0.30"))
    assert ledger.state("run").left_usd == 0


def test_money_for_later_stages_stays_free(ledger):
    with pytest.raises(
        BudgetExceeded,
        match=r"\(\$0\.500000 reserved for later stages\): \$0\.600000 requested, \$0\.500000 left",
    ):
        ledger.reserve("run", "ingest-1", "ingest", 1, Decimal("0.60"), min_left_usd=Decimal("0.50"))
    ledger.reserve("run", "ingest-1", "ingest", 1, Decimal("0.50"), min_left_usd=Decimal("0.50"))
    with pytest.raises(BudgetExceeded, match="reserved for later stages"):
        ledger.extend("run", "ingest-1", Decimal("0.000001"), min_left_usd=Decimal("0.50"))
    assert ledger.state("run").held_usd == Decimal("0.50")


@pytest.mark.parametrize("stages", [("train", "train"), ("train.0", "train.1")], ids=["tries", "items"])
def test_a_stage_has_its_own_cap_which_its_items_share(ledger, stages):
    ledger.reserve("run", "first", stages[0], 1, Decimal("0.40"))
    ledger.settle("run", "first", Decimal("0.35"))
    with pytest.raises(
        BudgetExceeded, match=r"of stage train in run: \$0\.300000 requested, \$0\.250000 left of \$0\.600000"
    ):
        ledger.reserve("run", "second", stages[1], 1, Decimal("0.30"))
    ledger.reserve("run", "second", stages[1], 1, Decimal("0.25"))
    money = ledger.state("run").stages["train"]
    assert (money.spent_usd, money.held_usd, money.cap_usd) == (
        Decimal("0.35"),
        Decimal("0.25"),
        Decimal("0.60"),
    )


def test_a_settlement_above_its_reservation_is_refused(ledger):
    ledger.reserve("run", "train-1", "train", 1, Decimal("0.40"))
    with pytest.raises(BudgetExceeded, match=r"\$0\.400001 requested, \$0\.400000 left"):
        ledger.settle("run", "train-1", Decimal("0.400001"))
    ledger.extend("run", "train-1", Decimal("0.000001"))
    ledger.settle("run", "train-1", Decimal("0.400001"))


def test_an_adjustment_stays_between_zero_and_the_cap(ledger):
    ledger.reserve("run", "ingest-1", "ingest", 1, Decimal("0.90"))
    ledger.settle("run", "ingest-1", Decimal("0.90"))
    with pytest.raises(BudgetExceeded):
        ledger.adjust("run", "ingest-1", Decimal("0.100001"), "true times")
    with pytest.raises(
        LedgerConflict, match=r"settled at \$0\.900000, which cannot be adjusted by \$-0\.900001"
    ):
        ledger.adjust("run", "ingest-1", Decimal("-0.900001"), "true times")
    ledger.adjust("run", "ingest-1", Decimal("-0.90"), "it never ran")
    assert ledger.state("run").spent_usd == 0


def test_an_account_with_open_reservations_cannot_be_closed(ledger):
    ledger.reserve("run", "train-1", "train", 1, Decimal("0.40"))
    with pytest.raises(LedgerConflict, match="holds money for train-1"):
        ledger.close("run")


def test_closing_is_final(ledger):
    ledger.close("run")
    for ask in (
        lambda: ledger.reserve("run", "train-1", "train", 1, Decimal("0.1")),
        lambda: ledger.set_cap("run", Decimal(5), approved()),
        lambda: ledger.open("run", Decimal(5)),
    ):
        with pytest.raises(LedgerConflict):
            ask()
    assert ledger.state(MONTH).held_usd == 0


def test_raising_a_runs_cap_reserves_more_in_its_month(ledger):
    with pytest.raises(LedgerConflict, match=r"approval: shoestring approve run --usd 1\.5"):
        ledger.set_cap("run", Decimal("1.50"))
    assert ledger.state(MONTH).held_usd == Decimal("1.00")
    ledger.set_cap("run", Decimal("1.50"), approved())
    assert (
        ledger.state("run").cap_usd == ledger.state(MONTH).reservations["run"].amount_usd == Decimal("1.50")
    )
    with pytest.raises(LedgerConflict, match="can only be raised"):
        ledger.set_cap("run", Decimal("1.20"))


def test_a_months_cap_limits_its_runs(store, clock):
    ledger = Ledger(store, clock)
    ledger.open(MONTH, Decimal("2"))
    ledger.open("run-1", Decimal("1.5"))
    with pytest.raises(
        BudgetExceeded,
        match=r"reserve run-2 of 2026-11: \$1\.000000 requested, \$0\.500000 left of \$2\.000000",
    ):
        ledger.open("run-2", Decimal("1"))
    assert account_names(store) == [MONTH, "run-1"]
    with pytest.raises(BudgetExceeded, match="extend run-1 of 2026-11"):
        ledger.set_cap("run-1", Decimal("2.5"), approved("run-1"))
    assert ledger.state("run-1").cap_usd == Decimal("1.5")


def test_a_months_cap_can_rise_and_fall_but_not_below_what_is_used(store, clock):
    ledger = Ledger(store, clock)
    ledger.open("run-1", Decimal("1.5"))
    assert ledger.state(MONTH).cap_usd is None
    for cap_usd in (Decimal("3"), Decimal("2"), Decimal("3"), Decimal("1.5")):
        assert ledger.set_cap(MONTH, cap_usd) == Ledger(store, clock).set_cap(MONTH, cap_usd)
        assert ledger.state(MONTH).cap_usd == cap_usd
    with pytest.raises(
        LedgerConflict, match=r"has spent and holds \$1\.500000, so its cap cannot be \$1\.400000"
    ):
        ledger.set_cap(MONTH, Decimal("1.4"))
    with pytest.raises(
        BudgetExceeded,
        match=r"reserve run-2 of 2026-11: \$0\.100000 requested, \$0\.000000 left of \$1\.500000",
    ):
        ledger.open("run-2", Decimal("0.1"))
    verify(store, {})


def test_verify_reports_a_cap_below_what_is_used(store, clock):
    ledger = Ledger(store, clock)
    ledger.open("run-1", Decimal("1.5"))
    ledger.set_cap(MONTH, Decimal("2"))
    hashed = read_entry(store, MONTH, 3)
    store.put(
        store_layout.ledger_entry(MONTH, 3),
        record_bytes(hash_entry(hashed.entry.model_copy(update={"cap_microusd": 1_000_000}))),
    )
    with pytest.raises(LedgerCorrupt, match="so its cap cannot be"):
        Ledger(store, clock).state(MONTH)


def test_accounts_can_be_nested_three_deep(store, clock):
    ledger = Ledger(store, clock)
    ledger.open("campaign", Decimal("3"))
    ledger.open("run", Decimal("2"), parent="campaign")
    ledger.reserve("run", "train-1", "train", 1, Decimal("1"))
    ledger.settle("run", "train-1", Decimal("0.5"))
    ledger.close("run")
    ledger.close("campaign")
    assert [ledger.state(name).spent_usd for name in ("run", "campaign", MONTH)] == [Decimal("0.5")] * 3


def test_a_reservation_in_a_parent_is_settled_only_by_closing_the_child(ledger):
    with pytest.raises(LedgerConflict, match="settled when that account closes"):
        ledger.settle(MONTH, "run", Decimal(0))


def die_between_month_and_run(store: FolderStore, clock: StillClock, run: str) -> None:
    """The month's entry and its hint are written; the run's own entry is not."""
    with pytest.raises(StoreError):
        Ledger(DyingStore(store.root, 3, wrote=False), clock).open(run, Decimal("0.50"))


def test_a_reservation_for_an_unopened_account_is_released_after_its_lease(store, clock, ledger):
    die_between_month_and_run(store, clock, "late")
    clock.sleep(LEASE_S - 1)
    assert ledger.repair_parent(MONTH) == []
    assert ledger.state(MONTH).held_usd == Decimal("1.50")
    clock.sleep(1)
    assert Ledger(store, clock).repair_parent(MONTH) == [
        "late in 2026-11: $0.500000 held, settled at $0.000000"
    ]
    assert ledger.state(MONTH).held_usd == Decimal("1.00")
    with pytest.raises(LedgerConflict, match="it was not opened in time"):
        ledger.open("late", Decimal("0.50"))


def test_a_reservation_of_a_writer_that_is_known_to_have_ended_waits_for_no_lease(store, clock, ledger):
    die_between_month_and_run(store, clock, "late")
    assert ledger.repair_parent(MONTH, ended={"another"}) == []
    assert ledger.repair_parent(MONTH, ended={"late"}) == [
        "late in 2026-11: $0.500000 held, settled at $0.000000"
    ]
    assert ledger.state(MONTH).held_usd == Decimal("1.00")


def test_a_reservation_left_in_the_previous_month_is_released_at_once(store):
    clock = StillClock(datetime(2026, 11, 30, 23, 59, 59, tzinfo=UTC))
    ledger = Ledger(store, clock)
    ledger.open("other", Decimal("1"))
    die_between_month_and_run(store, clock, "run")
    clock.sleep(2)
    ledger.open("run", Decimal("0.5"))
    assert ledger.state("run").parent == "2026-12"
    ledger.reserve("run", "train-1", "train", 1, Decimal("0.2"))
    ledger.settle("run", "train-1", Decimal("0.2"))
    assert verify(store, {}).unfinished == (
        "run was opened inside 2026-12 only, and 2026-11 still holds $0.500000 for it",
    )
    assert ledger.repair_parent("2026-11") == ["run in 2026-11: $0.500000 held, settled at $0.000000"]
    assert list(ledger.state("2026-12").reservations) == ["run"]
    assert verify(store, {}).unfinished == ()


def test_entries_name_their_writer_and_time(ledger, clock):
    clock.sleep(5)
    entry = ledger.reserve("run", "train-1", "train", 1, Decimal("0.1")).entry
    assert (entry.writer, entry.at) == ("host.1.2", NOON + timedelta(seconds=5))
    assert (entry.stage, entry.attempt) == ("train", 1)
    settled = ledger.settle("run", "train-1", Decimal(0), "cached").entry
    assert (settled.stage, settled.attempt, settled.reason) == ("train", 1, "cached")


def test_a_float_is_refused_as_money(ledger):
    with pytest.raises(ValueError, match="money must be"):
        ledger.reserve("run", "train-1", "train", 1, 0.1)


@pytest.mark.parametrize("name", ["", "../run", "a/b", ".hidden", "a b", "x" * 129])
def test_an_account_name_that_could_leave_the_ledger_folder_is_refused(ledger, name):
    with pytest.raises(UsageError, match="cannot name an account"):
        ledger.open(name, Decimal(1))


def test_an_unknown_account_is_refused_with_the_known_ones(ledger):
    with pytest.raises(UnknownName, match="there is no account called 'rum'; known: 2026-11, run"):
        ledger.state("rum")
    with pytest.raises(LedgerConflict, match="has not been opened"):
        ledger.reserve("rum", "train-1", "train", 1, Decimal("0.1"))
