"""What was paid, attempt by attempt: the ledger's settled holds, with the records of what they were for.

The ledger is walked from a month down through whatever accounts lie in it, so sums of charges are the ledger's own, to the micro-dollar.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from functools import cached_property

from shoestring.core.interfaces import Store
from shoestring.core.money import microusd
from shoestring.core.receipt import Receipt
from shoestring.core.types import Market, Pool
from shoestring.data.run_records import RunRecord, RunStart, read_records
from shoestring.routing.decision import Decision
from shoestring.routing.pages.decision_view import expected_cost
from shoestring.spending.ledger.chain import AccountChain
from shoestring.spending.ledger.entry import Entry, HashedEntry
from shoestring.spending.ledger.ledger import account_names
from shoestring.spending.ledger.parent_accounts import MONTH_ACCOUNT, campaign_account
from shoestring.spending.meter import cost_between_usd, cost_usd

OVERHEAD = "overhead"
CAMPAIGN_SUFFIX = campaign_account("")
PRICE = Decimal("1e-12")
"""A mean price is given to this."""


@dataclass(frozen=True, slots=True)
class ChargeParts:
    """A charge in whole micro-dollars, by what the money bought. `computing` is what is left of it; the others are idle.

    `startup`: paid outside the attempt's own seconds, from when a node took its pod. `cores`: cores that did nothing in them; known of
    pools without a GPU. `lost`: all of an attempt that did not end as done, and whose stage keeps no checkpoint. `moved` and `stored`: for
    its data, not for time.
    """

    computing: int = 0
    startup: int = 0
    cores: int = 0
    lost: int = 0
    moved: int = 0
    stored: int = 0
    overhead: int = 0

    @property
    def idle(self) -> int:
        return self.startup + self.cores + self.lost

    @property
    def fees(self) -> int:
        return self.moved + self.stored


# Not slotted: a cached property wants a place to lie in.
@dataclass(frozen=True)
class Charge:
    """One settled hold of an account in a month. `campaign`: the one that the account belongs to; empty when it is in none.

    Its records are None where nothing was written down, or not by this version. Overhead has a `run` and `start`, an attempt the others.
    """

    month: str
    campaign: str
    settled: HashedEntry
    reserved_microusd: int
    adjustments: tuple[HashedEntry, ...] = ()
    run: RunRecord | None = None
    start: RunStart | None = None
    decision: Decision | None = None
    receipt: Receipt | None = None

    @property
    def entry(self) -> Entry:
        return self.settled.entry

    @property
    def run_id(self) -> str:
        return self.run.run_id if self.run else self.entry.account

    @property
    def paid_microusd(self) -> int:
        """What stands in the ledger: as it was settled, and what that was adjusted by."""
        return self.entry.amount_microusd + sum(sealed.entry.amount_microusd for sealed in self.adjustments)

    @property
    def pool(self) -> Pool | None:
        choice = self.decision.choice if self.decision else None
        pools = self.decision.question.pools if self.decision else ()
        return next((pool for pool in pools if choice and pool.name == choice.pool), None)

    @property
    def market(self) -> Market:
        """Overhead is priced as a machine that nobody takes away."""
        choice = self.decision.choice if self.decision else None
        return choice.market if choice else Market.ON_DEMAND

    @property
    def usd_per_hour(self) -> Decimal | None:
        """What it was metered by, and on the mean, where the price moved; None where that was not written down."""
        if self.entry.stage == OVERHEAD:
            return self.start.overhead_usd_per_hour or None if self.start else None
        choice, receipt = self.decision.choice if self.decision else None, self.receipt
        if receipt is None or not receipt.prices or receipt.seconds <= 0:
            return choice.usd_per_hour if choice else None
        return (
            metered_usd(receipt, receipt.prices[0].usd_per_hour) * 3600 / Decimal(str(receipt.seconds))
        ).quantize(PRICE)

    @property
    def expected(self) -> tuple[int, int] | None:
        """Micro-dollars and milliseconds that the decision expected of the work that was done; None of one that was not done."""
        if (
            self.decision is None
            or self.receipt is None
            or self.receipt.status != "done"
            or self.receipt.outcome is None
        ):
            return None
        return expected_cost(self.decision, self.receipt.outcome.samples)

    @property
    def use(self) -> float | None:
        """Share of its core-seconds in which the attempt computed; None where nobody measured."""
        if self.receipt is None or self.pool is None or not self.receipt.cpu_s or not self.receipt.seconds:
            return None
        return min(1.0, self.receipt.cpu_s / (self.receipt.seconds * self.pool.cores))

    @cached_property
    def parts(self) -> ChargeParts:
        return split(self)


def split(charge: Charge) -> ChargeParts:
    """The parts sum to what was paid, whatever the records say."""
    paid = charge.paid_microusd
    if charge.entry.stage == OVERHEAD:
        return ChargeParts(overhead=paid)
    receipt, choice = charge.receipt, charge.decision.choice if charge.decision else None
    if receipt is None or choice is None or charge.decision is None:
        return ChargeParts(computing=paid)
    if receipt.status in ("failed", "lost") and not charge.decision.question.needs[0].checkpoint_s:
        return ChargeParts(lost=paid)
    fees = min(paid, microusd(receipt.fees_usd))
    stored = min(fees, microusd(choice.storage_usd)) if receipt.status == "done" else 0
    timed = paid - fees
    inside = min(timed, microusd(metered_usd(receipt, choice.usd_per_hour)))
    known = charge.use is not None and charge.pool is not None and not charge.pool.gpu_count
    cores = inside * round((1 - (charge.use or 0.0)) * 1_000_000) // 1_000_000 if known else 0
    return ChargeParts(
        computing=inside - cores, startup=timed - inside, cores=cores, moved=fees - stored, stored=stored
    )


def metered_usd(receipt: Receipt, usd_per_hour: Decimal) -> Decimal:
    """What an attempt's own seconds cost, by the prices that were in force."""
    if receipt.prices:
        return cost_between_usd(receipt.prices, receipt.started_at, receipt.finished_at)
    return cost_usd(usd_per_hour, receipt.seconds)


def read_charges(
    store: Store,
    months: Sequence[str] | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> tuple[list[Charge], tuple[str, ...]]:
    """The charges of these months (None: of all) that were settled in [since, until), in the ledger's order; and a note on records
    that could not be read.

    Raises:
        LedgerCorrupt: a chain does not hold.
    """
    found: list[Charge] = []
    for month in [name for name in account_names(store) if MONTH_ACCOUNT.fullmatch(name)] if months is None else months:
        found += (
            charge
            for charge in _inside(store, month, month, since)
            if (since is None or charge.entry.at >= since) and (until is None or charge.entry.at < until)
        )
    return _with_records(store, found)


def _inside(store: Store, month: str, account: str, since: datetime | None) -> Iterator[Charge]:
    """All charges in an account and in those inside it. An account that was closed before `since` is not read."""
    chain = AccountChain(store, account)
    yield from settled(chain, month)
    children = {
        sealed.entry.child: sealed.entry for sealed in chain.entries if sealed.entry.child is not None
    }
    for child, last in children.items():
        if since is None or last.kind != "settle" or last.at >= since:
            yield from _inside(store, month, child, since)


def settled(chain: AccountChain, month: str = "") -> Iterable[Charge]:
    """The charges of one account itself, without their records, in the order in which they were settled."""
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
    """Each charge with what its run wrote down. A start's account has its run's name, or that and a number."""
    names = sorted({name for charge in found for name in _names(charge)})
    records, unread = read_records(store, [f"runs/{name}/run.json" for name in names], RunRecord)
    runs = {run.run_id: run for run in records}
    owned = [
        (charge, next((runs[name] for name in _names(charge) if name in runs), None)) for charge in found
    ]
    holds = [
        f"{run.run_id}/{{}}/{charge.entry.reservation}.json"
        for charge, run in owned
        if run and charge.entry.stage != OVERHEAD
    ]
    begun = [
        f"runs/{run.run_id}/starts/{charge.entry.attempt}.json"
        for charge, run in owned
        if run and charge.entry.stage == OVERHEAD
    ]
    starts, unstarted = read_records(store, begun, RunStart)
    started = {start.account: start for start in starts}
    decided, undecided = read_records(store, [f"runs/{hold.format('decisions')}" for hold in holds], Decision)
    received, unreceived = read_records(store, [f"runs/{hold.format('receipts')}" for hold in holds], Receipt)
    decisions = {(each.question.run_id, str(each.question.attempt_id)): each for each in decided}
    receipts = {(each.run_id, f"{each.stage}-{each.attempt}"): each for each in received}
    whole = [
        replace(
            charge,
            run=run,
            start=started.get(charge.entry.account) if charge.entry.stage == OVERHEAD else None,
            decision=decisions.get((run.run_id, charge.entry.reservation)) if run else None,
            receipt=receipts.get((run.run_id, charge.entry.reservation)) if run else None,
        )
        for charge, run in owned
    ]
    return whole, unread + unstarted + undecided + unreceived


def _names(charge: Charge) -> tuple[str, ...]:
    account = charge.entry.account
    return tuple(name for name in (account, account.rpartition(".")[0]) if name)
