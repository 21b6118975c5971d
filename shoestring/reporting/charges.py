"""Charges: the settled reservations of the ledger, each with the records of the attempt that it paid for.

The ledger is walked from a month down through the accounts below it, so sums of charges equal the ledger to
the micro-dollar.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from functools import cached_property

from shoestring.core import store_layout
from shoestring.core.attempt_id import AttemptId
from shoestring.core.interfaces import Store
from shoestring.core.money import microusd
from shoestring.core.receipt import Receipt
from shoestring.core.types import Market, Pool
from shoestring.data.run_records import RunRecord, RunStart, commands_of_starts, read_records
from shoestring.routing.decision import Decision
from shoestring.routing.pages.decision_view import expected_cost
from shoestring.spending.ledger.chain import AccountChain
from shoestring.spending.ledger.entry import Entry, HashedEntry
from shoestring.spending.ledger.ledger import account_names
from shoestring.spending.ledger.parent_accounts import MONTH_ACCOUNT, campaign_account
from shoestring.spending.meter import cost_between_usd, cost_usd

OVERHEAD = "overhead"
CAMPAIGN_SUFFIX = campaign_account("")
PRICE_QUANTUM = Decimal("1e-12")
"""The precision of a mean price, in dollars."""


@dataclass(frozen=True, slots=True)
class ChargeParts:
    """A charge in whole micro-dollars, by what the money bought.

    `startup`: time outside the attempt's own seconds, from when a node took its pod. `idle_cores`: cores that
    did nothing during the attempt, on pools without a GPU; `idle_gpus`: GPUs on which no kernel ran. `lost`:
    an attempt that did not end as done, of a stage without checkpoints. `transfer` and `storage`: for its
    data, not for time. `compute`: the rest.
    """

    compute_microusd: int = 0
    startup_microusd: int = 0
    idle_cores_microusd: int = 0
    idle_gpus_microusd: int = 0
    lost_microusd: int = 0
    transfer_microusd: int = 0
    storage_microusd: int = 0
    overhead_microusd: int = 0

    @property
    def idle_microusd(self) -> int:
        unused = self.idle_cores_microusd + self.idle_gpus_microusd
        return self.startup_microusd + unused + self.lost_microusd

    @property
    def fees_microusd(self) -> int:
        return self.transfer_microusd + self.storage_microusd


# Without slots, since cached_property stores its value in __dict__.
@dataclass(frozen=True)
class Charge:
    """One settled reservation of an account in a month. `campaign`: the campaign of the account; empty if it
    has none.

    Records are None if they do not exist or another version wrote them. Overhead has a `run` and a `start`;
    an attempt has a `run`, a `decision` and a `receipt`.
    """

    month: str
    campaign: str
    settlement: HashedEntry
    reserved_microusd: int
    adjustments: tuple[HashedEntry, ...] = ()
    run: RunRecord | None = None
    start: RunStart | None = None
    decision: Decision | None = None
    receipt: Receipt | None = None

    @property
    def entry(self) -> Entry:
        return self.settlement.entry

    @property
    def run_id(self) -> str:
        return self.run.run_id if self.run else self.entry.account

    @property
    def paid_microusd(self) -> int:
        """The amount in the ledger: as settled, plus adjustments."""
        return self.entry.amount_microusd + sum(sealed.entry.amount_microusd for sealed in self.adjustments)

    @property
    def overrun_microusd(self) -> int:
        """The cost above the money left in its account; not in `paid_microusd`."""
        return sum(sealed.entry.overrun_microusd for sealed in self.adjustments)

    @property
    def pool(self) -> Pool | None:
        if self.decision is None or self.decision.choice is None:
            return None
        return self.decision.question.pool(self.decision.choice.pool)

    @property
    def market(self) -> Market:
        """The market of the choice; overhead counts as on-demand."""
        choice = self.decision.choice if self.decision else None
        return choice.market if choice else Market.ON_DEMAND

    @property
    def usd_per_hour(self) -> Decimal | None:
        """The metered price, averaged if it changed; None if it was not recorded."""
        if self.entry.stage == OVERHEAD:
            return self.start.overhead_usd_per_hour or None if self.start else None
        choice, receipt = self.decision.choice if self.decision else None, self.receipt
        if receipt is None or not receipt.prices or receipt.seconds <= 0:
            return choice.usd_per_hour if choice else None
        return (
            metered_usd(receipt, receipt.prices[0].usd_per_hour) * 3600 / Decimal(str(receipt.seconds))
        ).quantize(PRICE_QUANTUM)

    @property
    def expected(self) -> tuple[int, int] | None:
        """The micro-dollars and milliseconds expected for the work done; None unless the attempt is done."""
        if (
            self.decision is None
            or self.receipt is None
            or self.receipt.status != "done"
            or self.receipt.outcome is None
            or self.decision.question.needs[0].by_time
        ):
            return None
        return expected_cost(self.decision, self.receipt.outcome.samples)

    @property
    def core_utilization(self) -> float | None:
        """The share of its core-seconds in which the attempt computed, 0 to 1; None if unmeasured."""
        if self.receipt is None or self.pool is None or not self.receipt.cpu_s or not self.receipt.seconds:
            return None
        return min(1.0, self.receipt.cpu_s / (self.receipt.seconds * self.pool.cores))

    @cached_property
    def parts(self) -> ChargeParts:
        return split_charge(self)


def split_charge(charge: Charge) -> ChargeParts:
    """Return the parts of a charge. They sum to the paid amount, whatever the records contain."""
    paid = charge.paid_microusd
    if charge.entry.stage == OVERHEAD:
        return ChargeParts(overhead_microusd=paid)
    receipt, choice = charge.receipt, charge.decision.choice if charge.decision else None
    if receipt is None or choice is None or charge.decision is None:
        return ChargeParts(compute_microusd=paid)
    if receipt.status in ("failed", "lost") and not charge.decision.question.needs[0].checkpoint_s:
        return ChargeParts(lost_microusd=paid)
    fees = min(paid, microusd(receipt.fees_usd))
    storage = min(fees, microusd(choice.storage_usd)) if receipt.status == "done" else 0
    timed = paid - fees
    metered = min(timed, microusd(metered_usd(receipt, choice.usd_per_hour)))
    has_gpus = charge.pool is not None and charge.pool.gpu_count > 0
    used = (receipt.gpu.busy if receipt.gpu else None) if has_gpus else charge.core_utilization
    idle = 0 if used is None else metered * round((1 - used) * 1_000_000) // 1_000_000
    return ChargeParts(
        compute_microusd=metered - idle,
        startup_microusd=timed - metered,
        idle_cores_microusd=0 if has_gpus else idle,
        idle_gpus_microusd=idle if has_gpus else 0,
        transfer_microusd=fees - storage,
        storage_microusd=storage,
    )


def metered_usd(receipt: Receipt, usd_per_hour: Decimal) -> Decimal:
    """Return the cost of an attempt's own seconds, at the prices in force."""
    if receipt.prices:
        return cost_between_usd(receipt.prices, receipt.started_at, receipt.finished_at)
    return cost_usd(usd_per_hour, receipt.seconds)


def read_charges(
    store: Store,
    months: Sequence[str] | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> tuple[list[Charge], tuple[str, ...]]:
    """Return the charges of these months that were settled in [since, until), in ledger order, and notes on
    unreadable records.

    `months`: None for all months.

    Raises:
        LedgerCorrupt: a chain is broken.
    """
    found: list[Charge] = []
    for month in (
        [name for name in account_names(store) if MONTH_ACCOUNT.fullmatch(name)] if months is None else months
    ):
        found += (
            charge
            for charge in _charges_below(store, month, month, since)
            if (since is None or charge.entry.at >= since) and (until is None or charge.entry.at < until)
        )
    return _with_records(store, found)


def _charges_below(store: Store, month: str, account: str, since: datetime | None) -> Iterator[Charge]:
    """Yield all charges of an account and of the accounts below it, skipping accounts that were closed before
    `since`.
    """
    chain = AccountChain(store, account)
    yield from settled_charges(chain, month)
    children = {
        sealed.entry.child: sealed.entry for sealed in chain.entries if sealed.entry.child is not None
    }
    for child, last in children.items():
        if since is None or last.kind != "settle" or last.at >= since:
            yield from _charges_below(store, month, child, since)


def settled_charges(chain: AccountChain, month: str = "") -> Iterable[Charge]:
    """Return the charges of one account itself, without their records, in the order in which they were
    settled.
    """
    campaign = (chain.account.campaign or "").removesuffix(CAMPAIGN_SUFFIX)
    reserved: dict[str, int] = {}
    found: dict[str, Charge] = {}
    for sealed in chain.entries:
        entry = sealed.entry
        if entry.child is not None:
            continue
        if entry.kind in ("reserve", "extend"):
            reserved[entry.reservation] = reserved.get(entry.reservation, 0) + entry.amount_microusd
        elif entry.kind == "settle":
            found[entry.reservation] = Charge(month, campaign, sealed, reserved[entry.reservation])
        elif entry.kind == "adjust":
            charge = found[entry.reservation]
            found[entry.reservation] = replace(charge, adjustments=(*charge.adjustments, sealed))
    return found.values()


def _with_records(store: Store, found: list[Charge]) -> tuple[list[Charge], tuple[str, ...]]:
    """Return each charge with the records of its run.

    The account of a start is named after its run, with a number from the second start on.
    """
    names = sorted({name for charge in found for name in _possible_run_ids(charge)})
    records, unread_runs = read_records(store, [store_layout.run_record(name) for name in names], RunRecord)
    runs = {run.run_id: run for run in records}
    with_runs = [
        (charge, next((runs[name] for name in _possible_run_ids(charge) if name in runs), None))
        for charge in found
    ]
    entries = [(run.run_id, charge.entry) for charge, run in with_runs if run]
    attempts = [(run_id, entry.reservation) for run_id, entry in entries if entry.stage != OVERHEAD]
    starts, unread_starts = read_records(store, sorted(_start_keys(entries, runs)), RunStart)
    started, commands = {start.account: start for start in starts}, commands_of_starts(runs, starts)
    decision_keys = [store_layout.decision(*attempt) for attempt in attempts]
    receipt_keys = [store_layout.receipt(*attempt) for attempt in attempts]
    read_decisions, unread_decisions = read_records(store, decision_keys, Decision)
    read_receipts, unread_receipts = read_records(store, receipt_keys, Receipt)
    decisions = {(each.question.run_id, str(each.question.attempt_id)): each for each in read_decisions}
    receipts = {
        (each.run_id, str(AttemptId(each.run_id, each.stage, each.attempt))): each for each in read_receipts
    }
    complete = [
        replace(
            charge,
            run=run and run.model_copy(update={"command": commands.get(charge.entry.account, run.command)}),
            start=started.get(charge.entry.account) if charge.entry.stage == OVERHEAD else None,
            decision=decisions.get((run.run_id, charge.entry.reservation)) if run else None,
            receipt=receipts.get((run.run_id, charge.entry.reservation)) if run else None,
        )
        for charge, run in with_runs
    ]
    return complete, unread_runs + unread_starts + unread_decisions + unread_receipts


def _start_keys(charged: Iterable[tuple[str, Entry]], runs: Mapping[str, RunRecord]) -> set[str]:
    """Return the keys of the starts that have charges of overhead; of a command also all starts before."""
    last = [(run_id, entry.attempt) for run_id, entry in charged if entry.stage == OVERHEAD]
    return {
        store_layout.start(run_id, number)
        for run_id, until in last
        for number in range(1 if runs[run_id].command else until, until + 1)
    }


def _possible_run_ids(charge: Charge) -> tuple[str, ...]:
    account = charge.entry.account
    return tuple(name for name in (account, account.rpartition(".")[0]) if name)
