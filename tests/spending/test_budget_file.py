"""The file of a meter, and a script that reads its budget from it."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest
from clocks import NOON, StillClock

from shoestring.budget import Budget
from shoestring.core.errors import DataError, UsageError
from shoestring.core.record import record_bytes
from shoestring.spending.budget_file import BudgetFile, read_budget_file

FIELDS = (
    "run_id attempt usd_left usd_per_hour seconds_left share_gone should_stop stop_reason grace_s written_at"
)


def budget_file(seconds_left: float, share_gone: float, stop_reason: str = "") -> BudgetFile:
    return BudgetFile(
        run_id="one",
        attempt=1,
        usd_left=Decimal("0.25"),
        usd_per_hour=Decimal("0.08"),
        seconds_left=seconds_left,
        share_gone=share_gone,
        should_stop=bool(stop_reason),
        stop_reason=stop_reason,
        grace_s=30.0,
        written_at=NOON,
    )


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHOESTRING_BUDGET", str(tmp_path / "budget.json"))
    return tmp_path / "budget.json"


def write(path: Path, content: bytes) -> None:
    """Replace a file as the meter does: another file each time."""
    new = path.with_suffix(".new")
    new.write_bytes(content)
    new.replace(path)


def test_a_budget_file_is_read_as_it_was_written(path: Path) -> None:
    write(path, record_bytes(budget_file(900, 0.5)))
    assert read_budget_file(path) == budget_file(900, 0.5)
    content = json.loads(path.read_text())
    assert set(content) == set(FIELDS.split())
    assert content["usd_left"] == "0.250000"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'{"run_id": "one"}', b"null"])
def test_a_damaged_file_is_refused_with_its_name(content: bytes, path: Path) -> None:
    write(path, content)
    with pytest.raises(DataError, match=r"budget\.json is damaged"):
        read_budget_file(path)
    with pytest.raises(UsageError, match=r"\$SHOESTRING_BUDGET: the budget file .* is damaged"):
        Budget.here()


def test_a_file_that_was_never_there_is_refused(path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        Budget.here()


def test_without_the_variable_the_error_names_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHOESTRING_BUDGET", raising=False)
    with pytest.raises(UsageError, match=r"shoestring exec .* Budget\(seconds=600\), or Budget\(usd="):
        Budget.here()
    assert Budget.here(seconds=60).seconds_left <= 60


@pytest.mark.filterwarnings("ignore:.* has not changed for 60 s")
def test_between_two_writes_the_share_rises_linearly_to_one(path: Path) -> None:
    clock = StillClock()
    write(path, record_bytes(budget_file(100, 0.5)))
    budget = Budget.here(seconds=5, monotonic_s=clock.monotonic_s)
    found = list[float]()
    for at_s in (0, 20, 50, 100, 150):
        clock.at_s = at_s
        found += [budget.share_gone, budget.seconds_left]
    assert found == pytest.approx([0.5, 100, 0.6, 80, 0.75, 50, 1, 0, 1, 0])


def test_a_new_file_counts_at_once_and_a_damaged_or_lost_one_does_not(path: Path) -> None:
    clock = StillClock()
    write(path, record_bytes(budget_file(100, 0.5)))
    budget = Budget.here(monotonic_s=clock.monotonic_s)
    clock.at_s = 10
    write(path, record_bytes(budget_file(40, 0.6)))
    assert (budget.share_gone, budget.seconds_left) == pytest.approx((0.6, 40))
    clock.at_s = 20
    write(path, b"{")
    assert budget.seconds_left == pytest.approx(30)
    path.unlink()
    assert budget.seconds_left == pytest.approx(30)
    write(path, record_bytes(budget_file(10, 0.9)))
    assert budget.seconds_left == pytest.approx(10)


def test_a_file_that_asks_to_stop_stops(path: Path) -> None:
    write(path, record_bytes(budget_file(20, 0.95, "the budget ends")))
    assert Budget.here().should_stop


def test_a_file_that_nothing_replaces_is_extrapolated_which_is_said_once(path: Path) -> None:
    clock = StillClock()
    write(path, record_bytes(budget_file(1000, 0.0)))
    budget = Budget.here(monotonic_s=clock.monotonic_s)
    clock.at_s = 61
    with pytest.warns(UserWarning, match="has not changed for 60 s") as found:
        assert budget.share_gone == pytest.approx(0.061)
        assert budget.share_gone == pytest.approx(0.061)
    assert len(found) == 1
