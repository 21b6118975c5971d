"""Laws of the ledger that hold for any requests, by any writers, with any interruption."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal

import pytest
from approved_caps import approve, approved
from clocks import StillClock
from examples import examples
from faulty_stores import MONTH, fast_folder
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from shoestring.backends.folder_store import FolderStore
from shoestring.core.errors import BudgetExceeded, LedgerConflict, ShoestringError
from shoestring.core.money import from_microusd
from shoestring.spending.audit.records import Anchor
from shoestring.spending.audit.verify import verify
from shoestring.spending.ledger.ledger import Ledger

RESERVATIONS = ("train-1", "train-2", "ingest-1")
laws = examples(100, suppress_health_check=[HealthCheck.too_slow])

amounts = st.one_of(st.integers(0, 40), st.integers(0, 1_000_000)).map(from_microusd)
signed = st.integers(-40, 60).map(from_microusd)
request_strategy = st.one_of(
    st.tuples(st.just("reserve"), st.sampled_from(RESERVATIONS), amounts, amounts),
    st.tuples(st.just("extend"), st.sampled_from(RESERVATIONS), amounts, amounts),
    st.tuples(st.just("settle"), st.sampled_from(RESERVATIONS), amounts, st.just(Decimal(0))),
    st.tuples(st.just("adjust"), st.sampled_from(RESERVATIONS), signed, st.just(Decimal(0))),
    st.tuples(st.just("set_cap"), st.just(""), amounts, st.just(Decimal(0))),
    st.tuples(st.just("close"), st.just(""), st.just(Decimal(0)), st.just(Decimal(0))),
)


@dataclass
class BookkeepingModel:
    """A plain model of an account: in dollars, with every rule written out."""

    cap: Decimal
    train_cap: Decimal
    reservations: dict[str, Decimal] = field(default_factory=dict)
    settled: dict[str, Decimal] = field(default_factory=dict)
    reserved: dict[str, Decimal] = field(default_factory=dict)
    first_settled: dict[str, Decimal] = field(default_factory=dict)
    caps: set[Decimal] = field(default_factory=set)
    closed: bool = False

    @property
    def used(self) -> Decimal:
        return sum([*self.reservations.values(), *self.settled.values()], Decimal(0))

    def fits(self, reservation: str, amount: Decimal, min_left: Decimal) -> bool:
        of_train = [
            used
            for name, used in [*self.reservations.items(), *self.settled.items()]
            if name.startswith("train")
        ]
        return self.used + amount + min_left <= self.cap and (
            not reservation.startswith("train") or sum(of_train, amount) <= self.train_cap
        )

    def apply(
        self, verb: str, reservation: str, amount: Decimal, min_left: Decimal
    ) -> type[ShoestringError] | None:
        """Apply a request to the model. Returns the expected error, or None."""
        if self.again(verb, reservation, amount):
            return None
        if self.closed or (verb == "reserve" and reservation in self.reserved):
            return LedgerConflict
        return {
            "reserve": self.reserve,
            "extend": self.extend,
            "settle": self.settle,
            "adjust": self.adjust,
            "set_cap": self.set_cap,
            "close": self.close,
        }[verb](reservation, amount, min_left)

    def again(self, verb: str, reservation: str, amount: Decimal) -> bool:
        match verb:
            case "reserve":
                return self.reserved.get(reservation) == amount
            case "settle":
                return self.first_settled.get(reservation) == amount
            case "set_cap":
                return amount in self.caps
            case "close":
                return self.closed
        return False

    def reserve(self, reservation: str, amount: Decimal, min_left: Decimal) -> type[ShoestringError] | None:
        if not self.fits(reservation, amount, min_left):
            return BudgetExceeded
        self.reservations[reservation] = self.reserved[reservation] = amount
        return None

    def extend(self, reservation: str, amount: Decimal, min_left: Decimal) -> type[ShoestringError] | None:
        if reservation not in self.reservations:
            return LedgerConflict
        if not self.fits(reservation, amount, min_left) and amount:
            return BudgetExceeded
        self.reservations[reservation] += amount
        return None

    def settle(self, reservation: str, amount: Decimal, _min_left: Decimal) -> type[ShoestringError] | None:
        if reservation not in self.reservations:
            return LedgerConflict
        if amount > self.reservations[reservation]:
            return BudgetExceeded
        del self.reservations[reservation]
        self.settled[reservation] = self.first_settled[reservation] = amount
        return None

    def adjust(self, reservation: str, amount: Decimal, _min_left: Decimal) -> type[ShoestringError] | None:
        if reservation not in self.settled or self.settled[reservation] + amount < 0:
            return LedgerConflict
        if amount > 0 and not self.fits(reservation, amount, Decimal(0)):
            return BudgetExceeded
        self.settled[reservation] += amount
        return None

    def set_cap(self, _reservation: str, amount: Decimal, _min_left: Decimal) -> type[ShoestringError] | None:
        if amount <= self.cap:
            return LedgerConflict
        self.cap = amount
        self.caps.add(amount)
        return None

    def close(self, _reservation: str, _amount: Decimal, _min_left: Decimal) -> type[ShoestringError] | None:
        if self.reservations:
            return LedgerConflict
        self.closed = True
        return None


def do(ledger: Ledger, verb: str, reservation: str, amount: Decimal, min_left: Decimal) -> None:
    match verb:
        case "reserve":
            ledger.reserve("run", reservation, reservation.partition("-")[0], 1, amount, min_left)
        case "extend":
            ledger.extend("run", reservation, amount, min_left)
        case "settle":
            ledger.settle("run", reservation, amount)
        case "adjust":
            ledger.adjust("run", reservation, amount, "true times")
        case "set_cap":
            ledger.set_cap("run", amount, approved())
        case "close":
            ledger.close("run")


@laws
@given(st.lists(st.tuples(st.integers(0, 2), request_strategy), max_size=25), amounts, amounts)
def test_every_operation_agrees_with_a_plain_bookkeeping_model(requests, cap_usd, train_cap_usd):
    with fast_folder() as folder:
        store, clock = FolderStore(folder), StillClock()
        writers = [Ledger(store, clock, f"pod-{number}") for number in range(3)]
        approve(store)
        writers[0].open("run", cap_usd, stage_caps={"train": train_cap_usd})
        model = BookkeepingModel(cap_usd, train_cap_usd)
        for writer, request in requests:
            before = writers[writer].state("run")
            due = model.apply(*request)
            if due is None:
                do(writers[writer], *request)
            else:
                with pytest.raises(due):
                    do(writers[writer], *request)
                assert writers[writer].state("run") == before
        states = [ledger.state("run") for ledger in [*writers, Ledger(store, clock)]]
        assert all(state == states[0] for state in states)
        state = states[0]
        assert (state.cap_usd, state.closed) == (model.cap, model.closed)
        assert {
            name: reservation.amount_usd for name, reservation in state.reservations.items()
        } == model.reservations
        assert state.settled_usd == model.settled
        assert state.spent_usd + state.held_usd + state.left_usd == model.cap and state.left_usd >= 0
        total = verify(store, {"run": (Anchor(state.head_hash),)})
        assert (total.spent_usd, total.held_usd) == (state.spent_usd, state.held_usd)
        assert total.unfinished == ()


@laws
@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3), st.integers(0, 60)), max_size=20),
    st.integers(0, 150),
)
def test_child_accounts_never_exceed_their_parents_cap(requests, cap_microusd):
    with fast_folder() as folder:
        store, clock = FolderStore(folder), StillClock()
        writers = [Ledger(store, clock) for _ in range(2)]
        writers[0].open(MONTH, from_microusd(cap_microusd))
        approve(store, *{f"run-{run}" for _, run, _ in requests})
        for writer, run, amount in requests:
            with suppress(BudgetExceeded, LedgerConflict):
                writers[writer].open(f"run-{run}", from_microusd(amount))
                writers[writer].reserve(f"run-{run}", "train-1", "train", 1, from_microusd(amount // 2))
                writers[writer].settle(f"run-{run}", "train-1", from_microusd(amount // 3))
                raised = from_microusd(amount + 7)
                writers[writer].set_cap(f"run-{run}", raised, approved(f"run-{run}"))
                writers[writer].close(f"run-{run}")
            month = Ledger(store, clock).state(MONTH)
            assert month.spent_usd + month.held_usd <= month.cap_usd
        found = verify(store, {})
        assert found.spent_usd <= from_microusd(cap_microusd)
        assert found.accounts[0].spent_usd == sum(
            (run.spent_usd for run in found.accounts[1:] if run.closed), Decimal(0)
        )


@pytest.mark.parametrize(
    "ask",
    [
        lambda ledger: ledger.open("run", Decimal("1")),
        lambda ledger: ledger.reserve("run", "train-2", "train", 2, Decimal("0.1"), Decimal("0.2")),
        lambda ledger: ledger.extend("run", "train-1", Decimal("0.1"), id="pod-1/1"),
        lambda ledger: ledger.settle("run", "train-1", Decimal("0.1"), "done"),
        lambda ledger: ledger.adjust("run", "ingest-1", Decimal("-0.05"), "true times", id="pod-1"),
        lambda ledger: ledger.set_cap("run", Decimal("2"), approved()),
        lambda ledger: (ledger.settle("run", "train-1", Decimal(0)), ledger.close("run"))[1],
    ],
    ids=["open", "reserve", "extend", "settle", "adjust", "set_cap", "close"],
)
def test_a_repeated_request_gives_the_same_entry(tmp_path, ask: Callable):
    store, clock = FolderStore(tmp_path), StillClock()
    approve(store)
    ledger = start_run(Ledger(store, clock, "first"))
    once = ask(ledger)
    entries = ledger.state("run").entries, ledger.state(MONTH).entries
    clock.sleep(100)
    assert ask(Ledger(store, clock, "second")) == once == ask(ledger)
    assert (ledger.state("run").entries, ledger.state(MONTH).entries) == entries


@pytest.mark.parametrize(
    "ask",
    [
        lambda ledger: ledger.open("run", Decimal("1.5")),
        lambda ledger: ledger.reserve("run", "train-1", "train", 1, Decimal("0.4")),
        lambda ledger: ledger.settle("run", "ingest-1", Decimal("0.11")),
        lambda ledger: (
            ledger.extend("run", "train-1", Decimal("0.1"), id="a"),
            ledger.extend("run", "train-1", Decimal("0.2"), id="a"),
        ),
    ],
    ids=["open", "reserve", "settle", "extend"],
)
def test_the_same_id_with_other_content_is_refused(tmp_path, ask: Callable):
    ledger = start_run(Ledger(FolderStore(tmp_path), StillClock()))
    with pytest.raises(LedgerConflict):
        ask(ledger)


def start_run(ledger: Ledger) -> Ledger:
    ledger.open("run", Decimal("1"))
    ledger.reserve("run", "ingest-1", "ingest", 1, Decimal("0.2"))
    ledger.settle("run", "ingest-1", Decimal("0.1"))
    ledger.reserve("run", "train-1", "train", 1, Decimal("0.3"))
    return ledger
