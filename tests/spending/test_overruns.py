"""Costs beyond what an account has left: booked up to the cap, and the rest recorded as an overrun."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path

import pytest
from clocks import StillClock
from examples import examples
from faulty_stores import MONTH
from hypothesis import given
from hypothesis import strategies as st

from shoestring.backends.folder_store import FolderStore
from shoestring.backends.memory import MemoryStore
from shoestring.core.errors import BudgetExceeded, LedgerConflict
from shoestring.runtime.settlement.running_pods import left_for
from shoestring.spending.audit.verify import verify
from shoestring.spending.ledger.ledger import Ledger
from shoestring.spending.ledger.settlement import absorb_overruns, book_cost

ONE = Decimal("1.000000")
amounts = st.integers(0, 1_500_000).map(lambda micro: Decimal(micro).scaleb(-6))


def opened(store: FolderStore | MemoryStore, stage_caps: Mapping[str, Decimal] | None = None) -> Ledger:
    ledger = Ledger(store, StillClock(), "host.1.2")
    ledger.open("run", ONE, stage_caps=stage_caps)
    return ledger


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return opened(FolderStore(tmp_path))


def test_a_cost_beyond_the_cap_takes_the_whole_cap_and_nothing_goes_back(ledger: Ledger) -> None:
    ledger.reserve("run", "train-1", "train", 1, Decimal("0.30"))
    ledger.settle("run", "train-1", Decimal("0.30"))
    assert book_cost(ledger, "run", "train-1", Decimal("4.20"), "the price rose") == Decimal("3.200000")
    state = ledger.state("run")
    assert (state.spent_usd, state.left_usd) == (ONE, Decimal(0))
    assert state.overruns_usd == {"train-1": Decimal("3.200000")}
    ledger.close("run")
    assert ledger.state(MONTH).spent_usd == ONE


def above_stage_cap(folder: Path) -> Ledger:
    """A training that cost $0.020 of $0.031, where its stage may cost $0.008."""
    ledger = Ledger(FolderStore(folder), StillClock(), "host.1.2")
    ledger.open("run", Decimal("0.031"), stage_caps={"train": Decimal("0.008")})
    ledger.reserve("run", "train-1", "train", 1, Decimal("0.008"))
    ledger.settle("run", "train-1", Decimal("0.008"))
    book_cost(ledger, "run", "train-1", Decimal("0.020"), "a slow exit")
    return ledger


def test_what_a_stage_cost_beyond_its_own_cap_cannot_be_spent_again(tmp_path: Path) -> None:
    store, ledger = FolderStore(tmp_path), above_stage_cap(tmp_path)
    assert ledger.state("run").overruns_usd == {"train-1": Decimal("0.012000")}
    state = ledger.state("run")
    assert (state.spent_usd, state.left_usd) == (Decimal("0.008000"), Decimal("0.011000"))
    assert state.used_usd == Decimal("0.020000")
    with pytest.raises(BudgetExceeded, match=r"\$0.012000 overrun\): \$0.011001 requested, \$0.011000 left"):
        ledger.reserve("run", "evaluate-1", "evaluate", 1, Decimal("0.011001"))
    ledger.reserve("run", "evaluate-1", "evaluate", 1, Decimal("0.011"))
    with pytest.raises(BudgetExceeded, match=r"\$0.000001 requested, \$0.000000 left"):
        ledger.extend("run", "evaluate-1", Decimal("0.000001"))
    ledger.settle("run", "evaluate-1", Decimal("0.011"))
    absorb_overruns(ledger, "run")
    ledger.close("run")
    assert ledger.state("run").overruns_usd == {}
    assert ledger.state(MONTH).spent_usd == Decimal("0.031000")
    verify(store, {})


def test_only_what_was_spent_may_exceed_the_cap_of_its_stage(tmp_path: Path) -> None:
    ledger = above_stage_cap(tmp_path)
    with pytest.raises(BudgetExceeded, match=r"of stage train in run: \$0.000001 requested, \$0.000000 left"):
        ledger.adjust("run", "train-1", Decimal("0.000001"), "more", overrun_usd=Decimal("0.000001"))
    with pytest.raises(LedgerConflict, match="has an overrun of"):
        ledger.adjust("run", "train-1", Decimal("0.013"), "more", overrun_usd=Decimal("-0.013"))
    absorb_overruns(ledger, "run")
    with pytest.raises(BudgetExceeded, match=r"of stage train in run: \$0.001000 requested, \$0.000000 left"):
        ledger.reserve("run", "train-2", "train", 2, Decimal("0.001"))
    assert ledger.state("run").stages["train"].spent_usd == Decimal("0.020000")


def test_money_that_is_released_later_pays_for_the_overrun(ledger: Ledger) -> None:
    for stage in ("train", "other"):
        ledger.reserve("run", f"{stage}-1", stage, 1, Decimal("0.50"))
    ledger.settle("run", "train-1", Decimal("0.50"))
    assert book_cost(ledger, "run", "train-1", Decimal("0.80"), "slow exit") == Decimal("0.300000")
    ledger.settle("run", "other-1", Decimal("0.10"))
    absorb_overruns(ledger, "run")
    state = ledger.state("run")
    assert (state.spent_usd, state.overruns_usd) == (Decimal("0.900000"), {})


def test_a_cost_that_is_corrected_downwards_takes_the_overrun_back_first(ledger: Ledger) -> None:
    ledger.reserve("run", "train-1", "train", 1, ONE)
    ledger.settle("run", "train-1", ONE)
    book_cost(ledger, "run", "train-1", Decimal("1.50"), "by its own clock")
    assert book_cost(ledger, "run", "train-1", Decimal("1.20"), "by its pod's times") == Decimal("0.200000")
    assert ledger.state("run").spent_usd == ONE
    assert book_cost(ledger, "run", "train-1", Decimal("0.70"), "by its pod's times") == 0
    assert ledger.state("run").spent_usd == Decimal("0.700000")


def test_an_overrun_cannot_be_taken_back_twice(ledger: Ledger) -> None:
    ledger.reserve("run", "train-1", "train", 1, ONE)
    ledger.settle("run", "train-1", ONE)
    with pytest.raises(LedgerConflict, match=r"has an overrun of \$0\.000000 for train-1"):
        ledger.adjust("run", "train-1", Decimal(0), "a mistake", overrun_usd=Decimal("-0.10"))


@given(
    st.lists(st.tuples(amounts, amounts), min_size=1, max_size=6),
    st.lists(amounts, max_size=6),
    amounts,
)
@examples(40)
def test_books_stay_below_the_cap_and_hold_every_cost(
    attempts: list[tuple[Decimal, Decimal]], corrections: list[Decimal], train_cap_usd: Decimal
) -> None:
    store = MemoryStore()
    ledger, costs = opened(store, {"train": train_cap_usd}), dict[str, Decimal]()
    for number, (wanted_usd, cost_usd) in enumerate(attempts, 1):
        left_usd = left_for(ledger.state("run"), "train")
        assert left_usd is not None
        name, reserved_usd = f"train-{number}", min(wanted_usd, left_usd)
        ledger.reserve("run", name, "train", number, reserved_usd)
        ledger.settle("run", name, min(reserved_usd, cost_usd))
        costs[name] = cost_usd
        book_cost(ledger, "run", name, cost_usd, "its true cost", id=name)
    for (name, _), cost_usd in zip(list(costs.items()), corrections, strict=False):
        costs[name] = cost_usd
        book_cost(ledger, "run", name, cost_usd, "its pod's times")
    absorb_overruns(ledger, "run")
    state = ledger.state("run")
    assert state.spent_usd == min(ONE, sum(costs.values()))
    assert state.spent_usd + state.overrun_usd == sum(costs.values())
    ledger.close("run")
    assert ledger.state(MONTH).spent_usd == state.spent_usd
    verify(store, {})
