"""Estimate against actual: compared attempts, idle money, and parts that sum to the ledger."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded_run import NOON, RUN_ID, Recording
from run_stories import STORIES, Story, done, failed, resumed

from shoestring.core.money import from_microusd, usd
from shoestring.core.receipt import PricePoint, Receipt
from shoestring.core.record import digest
from shoestring.core.types import Pool
from shoestring.reporting.actuals import compute_actuals
from shoestring.reporting.charges import OVERHEAD, Charge, read_charges, split_charge
from shoestring.reporting.terminal_text import actuals_text
from shoestring.spending.ledger.entry import Entry, HashedEntry
from shoestring.spending.ledger.ledger import Ledger

EVERY = pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)


def charges(run: Recording) -> list[Charge]:
    found, notes = read_charges(run.store)
    assert notes == ()
    return found


@EVERY
def test_groups_sum_to_the_ledger_and_parts_to_the_paid_amount(story: Story, tmp_path: Path) -> None:
    run = story(tmp_path)
    names = [name for name in (RUN_ID, f"{RUN_ID}.2") if any(run.store.list(f"ledger/{name}/"))]
    spent_usd = sum((run.ledger.state(name).spent_usd for name in names), Decimal(0))
    found = compute_actuals(charges(run), ("stage", "gpu"))
    assert found.total.paid_usd == spent_usd
    for name in (
        "paid_usd",
        "compute_usd",
        "overhead_usd",
        "reserved_usd",
        "est_usd",
        "actual_usd",
        "attempts",
        "compared",
    ):
        assert sum(getattr(group, name) for group in found.groups) == getattr(found.total, name)
    for each in (*found.groups, found.total):
        idle = each.idle
        assert (
            each.compute_usd + each.overhead_usd + idle.startup_usd + idle.idle_cores_usd + idle.lost_usd
            == each.paid_usd
        )


def charge_of(run: Recording, hold: str) -> Charge:
    return next(charge for charge in charges(run) if charge.entry.reservation == hold)


def with_receipt(charge: Charge, **changes: object) -> Charge:
    assert charge.receipt is not None
    return replace(charge, receipt=charge.receipt.model_copy(update=changes))


@given(
    seconds=st.floats(0, 1e5),
    cpu_s=st.floats(0, 1e6),
    paid=st.integers(0, 10**12),
    adjusted=st.integers(-(10**12), 10**12),
)
def test_parts_sum_to_the_paid_amount_for_any_records(
    seconds: float, cpu_s: float, paid: int, adjusted: int, ended: Ended
) -> None:
    for charge in ended.charges.values():
        first, then = (
            _sealed(charge.entry.model_copy(update={"amount_microusd": amount}))
            for amount in (paid, max(adjusted, -paid))
        )
        changed = replace(
            with_receipt(charge, seconds=seconds, cpu_s=cpu_s), settlement=first, adjustments=(then,)
        )
        parts = split_charge(changed)
        assert (
            parts.compute_microusd
            + parts.startup_microusd
            + parts.idle_cores_microusd
            + parts.lost_microusd
            + parts.overhead_microusd
            == changed.paid_microusd
        )
        assert (
            min(
                parts.compute_microusd, parts.startup_microusd, parts.idle_cores_microusd, parts.lost_microusd
            )
            >= 0
        )


def _sealed(entry: Entry) -> HashedEntry:
    return HashedEntry(entry=entry, sha256=digest(b"any"))


class Ended:
    """Charges, wrapped so that hypothesis does not print them."""

    def __init__(self, charges: dict[str, Charge]) -> None:
        self.charges = charges


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """Return charges of runs that ended in different ways."""
    runs = {
        name: STORIES[name](tmp_path_factory.mktemp(name))
        for name in ("done", "failed", "resumed", "in_the_cloud")
    }
    return Ended(
        {
            f"{name}/{charge.entry.reservation}": charge
            for name, run in runs.items()
            for charge in charges(run)
            if charge.receipt
        }
    )


def test_a_training_that_stopped_early_is_compared_with_the_estimate_for_as_many_samples(
    tmp_path: Path,
) -> None:
    charge = charge_of(done(tmp_path), "train-1")
    assert charge.decision and charge.decision.choice and charge.receipt and charge.receipt.outcome
    whole, samples = charge.decision.choice, charge.receipt.outcome.samples
    assert charge.expected is not None
    microusd, ms = charge.expected
    assert samples < whole.samples
    assert from_microusd(microusd) < whole.est_usd
    # Start-up apart, time and money grow with the samples.
    assert ms / 1000 == pytest.approx(whole.est_s * samples / whole.samples, rel=0.1)


def test_idle_cores_count_as_idle_money_and_utilization_is_reported(tmp_path: Path) -> None:
    charge = charge_of(done(tmp_path), "train-1")
    assert charge.receipt is not None and charge.pool is not None
    half = with_receipt(charge, cpu_s=charge.receipt.seconds * charge.pool.cores / 2)
    assert half.core_utilization == pytest.approx(0.5)
    assert split_charge(half).idle_cores_microusd == pytest.approx(charge.paid_microusd / 2, abs=1)
    found = compute_actuals(
        [half, with_receipt(charge, cpu_s=charge.receipt.seconds * charge.pool.cores)], ()
    )
    assert (found.total.core_utilization, found.total.core_utilization_variance) == (
        pytest.approx(0.75),
        pytest.approx(0.0625),
    )


def test_idle_cores_of_a_gpu_pool_are_not_idle_money(tmp_path: Path) -> None:
    gpu = Pool(name="g2", cores=8, memory_gb=32, gpu="L4", gpu_count=1, gpu_memory_gb=24, gpu_tflops=120)
    run = Recording(tmp_path, "4", (gpu,))
    run.start()
    run.route("ingest")
    run.end(6.1, rows=1)
    charge = with_receipt(charge_of(run, "ingest-1"), cpu_s=3.0)
    assert split_charge(charge).idle_cores_microusd == 0
    assert [group.group for group in compute_actuals([charge], ("gpu",)).groups] == [{"gpu": "L4"}]


def test_an_adjustment_to_the_pods_own_times_counts_as_start_up(tmp_path: Path) -> None:
    run = Recording(tmp_path)
    run.start()
    run.route("ingest")
    run.end(1.0, rows=1)
    before = charge_of(run, "ingest-1")
    run.ledger.adjust(run.account, "ingest-1", usd("0.000100"), "its pod's own times", id="true-times")
    after = charge_of(run, "ingest-1")
    assert after.paid_microusd == before.paid_microusd + 100
    assert after.parts.startup_microusd == before.parts.startup_microusd + 100


def test_a_failed_attempt_is_lost_money(tmp_path: Path) -> None:
    found = compute_actuals(charges(failed(tmp_path)), ("stage",))
    by_stage = {group.group["stage"]: group for group in found.groups}
    assert by_stage["preprocess"].idle.lost_usd == by_stage["preprocess"].paid_usd > 0
    assert by_stage["preprocess"].compared == 0
    assert by_stage["preprocess"].median_cost_ratio is None
    assert by_stage["ingest"].idle.lost_usd == 0


def test_a_lost_training_with_a_checkpoint_is_not_lost_money(tmp_path: Path) -> None:
    found = compute_actuals(charges(resumed(tmp_path)), ("stage",))
    trained = next(group for group in found.groups if group.group["stage"] == "train")
    assert (trained.attempts, trained.compared, trained.idle.lost_usd) == (2, 1, 0)


def test_only_charges_settled_in_the_period_count(tmp_path: Path) -> None:
    run = resumed(tmp_path)
    later = NOON + timedelta(minutes=30)
    whole, first, second = (
        read_charges(run.store, None, *window)[0] for window in ((None, None), (None, later), (later, None))
    )
    assert [charge.entry.id for charge in first + second] == [charge.entry.id for charge in whole]
    assert {charge.entry.account for charge in second} == {f"{RUN_ID}.2"}


def test_money_of_a_campaign_is_counted_once_under_its_name(tmp_path: Path) -> None:
    run = Recording(tmp_path)
    run.ledger.open("spring.campaign", usd("1"))
    ledger = Ledger(run.store, run.clock)
    ledger.open("some-run", usd("0.5"), campaign="spring.campaign")
    ledger.reserve("some-run", "ingest-1", "ingest", 1, usd("0.2"))
    ledger.settle("some-run", "ingest-1", usd("0.15"))
    found = compute_actuals(charges(run), ("campaign",))
    assert [(group.group["campaign"], group.paid_usd) for group in found.groups] == [("spring", usd("0.15"))]
    # There is no run record, but the money is still counted.
    assert charges(run)[0].run is None


def test_an_unreadable_record_is_noted_and_its_money_still_counted(tmp_path: Path) -> None:
    run = done(tmp_path)
    paid_usd = compute_actuals(charges(run), ()).total.paid_usd
    run.store.put(f"runs/{RUN_ID}/receipts/train-1.json", b"{}")
    found, notes = read_charges(run.store)
    assert compute_actuals(found, ()).total.paid_usd == paid_usd
    assert "train-1.json" in notes[0]
    assert notes[0] in actuals_text(compute_actuals(found, (), notes=notes))


def test_overhead_is_neither_idle_nor_compute(tmp_path: Path) -> None:
    charge = charge_of(done(tmp_path), "overhead-1")
    assert charge.entry.stage == OVERHEAD
    assert charge.parts.overhead_microusd == charge.paid_microusd > 0
    assert charge.parts.idle_microusd == charge.parts.compute_microusd == 0


def test_a_store_without_settlements_is_reported_as_such(tmp_path: Path) -> None:
    run = Recording(tmp_path)
    assert actuals_text(compute_actuals(charges(run), ("stage",))) == "nothing was settled in this period"


def test_a_changed_price_is_metered_over_time(tmp_path: Path) -> None:
    charge = charge_of(done(tmp_path), "train-1")
    receipt = charge.receipt
    assert receipt is not None
    half = receipt.started_at + (receipt.finished_at - receipt.started_at) / 2
    prices = (
        PricePoint(at=receipt.started_at, usd_per_hour=usd("0.04")),
        PricePoint(at=half, usd_per_hour=usd("0.08")),
    )
    repriced = with_receipt(charge, prices=prices)
    assert repriced.usd_per_hour == pytest.approx(Decimal("0.06"), rel=Decimal("0.01"))
    paid = replace(
        repriced,
        settlement=_sealed(
            charge.entry.model_copy(update={"amount_microusd": charge.paid_microusd * 3 // 2})
        ),
    )
    assert paid.parts.startup_microusd <= 1
    assert replace(paid, receipt=receipt).parts.startup_microusd > 100


def test_share_over_p95_counts_attempts_above_their_reservation(tmp_path: Path) -> None:
    run = Recording(tmp_path)
    run.start()
    for stage, more in (("ingest", "0.001000"), ("preprocess", "0.000000")):
        run.route(stage)
        run.end(1.0, rows=1)
        if usd(more):
            run.ledger.adjust(run.account, f"{stage}-1", usd(more), "slow", id="x")
    assert compute_actuals(charges(run), ()).total.share_over_p95 == 0.5
    assert isinstance(charges(run)[0].receipt, Receipt)
