"""Compares the records of runs with the ledger: the decisions that money was reserved for, and the dollars of
receipts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

from shoestring.core import store_layout
from shoestring.core.errors import DataError, LedgerCorrupt, NotInStore
from shoestring.core.interfaces import Store
from shoestring.core.money import from_microusd, microusd
from shoestring.core.receipt import Receipt
from shoestring.core.record import digest
from shoestring.spending.ledger.chain import AccountChain
from shoestring.spending.ledger.entry import Entry


@dataclass(frozen=True, slots=True)
class Anchor:
    """What a receipt says about the ledger: a head of a chain, what its attempt was settled at, and what it
    cost beyond that.

    `spent_usd` None: only the head is known.
    """

    ledger_head: str
    attempt: str = ""
    spent_usd: Decimal | None = None
    overrun_usd: Decimal = Decimal(0)


Anchors = Mapping[str, tuple[Anchor, ...]]
"""Run -> what its receipts say about the ledger."""


def read_anchor(key: str, receipt: Receipt) -> Anchor:
    """Return what a receipt says about the ledger. Raises DataError if it is stored as another attempt's."""
    attempt = f"{receipt.stage}-{receipt.attempt}"
    expected = store_layout.receipt(receipt.run_id, attempt)
    if key != expected and (key.startswith(store_layout.RUNS) or not key.endswith(f"/{attempt}.json")):
        raise DataError(f"{key} is the receipt of {attempt} of run {receipt.run_id}: it was moved or changed")
    return Anchor(receipt.ledger_head, attempt, receipt.spent_usd, receipt.overrun_usd)


def reserved_decisions(chains: Iterable[AccountChain]) -> Iterator[tuple[str, str, Entry]]:
    """Yield the store key of each decision that money was reserved for, its digest, and the entry that names
    it.
    """
    for chain in chains:
        for hashed in chain.entries:
            entry = hashed.entry
            if entry.kind == "reserve" and entry.decision_key.startswith(store_layout.BLOBS):
                key = store_layout.decision(run_of_account(entry.account), entry.reservation)
                yield key, entry.decision_key.removeprefix(store_layout.BLOBS), entry


def run_of_account(account: str) -> str:
    """Return the run of a start's account. A run's id has no dot."""
    return account.partition(".")[0]


def changed_decision(data: bytes, sha256: str, entry: Entry) -> str:
    """Return why a recorded decision is not the one that money was reserved for; empty: it is that one."""
    if digest(data) == sha256:
        return ""
    return (
        f"was changed: entry {entry.number} of account {entry.account} reserved "
        f"${from_microusd(entry.amount_microusd)} for a decision with the digest {sha256[:12]}..., "
        f"and this one has {digest(data)[:12]}..."
    )


def check_decisions(store: Store, chains: Iterable[AccountChain], anchors: Anchors) -> None:
    """Check that each decision with a reservation has the digest that its reservation names.

    A reservation may lack a decision, if its router died before it wrote one, but not if it has a receipt.

    Raises:
        LedgerCorrupt: names the entry that made the reservation.
    """
    with_receipt = {(run, each.attempt) for run, found in anchors.items() for each in found}
    is_export = not any(store.list(store_layout.RUNS))
    for key, sha256, entry in reserved_decisions(chains):
        try:
            reason = changed_decision(store.fetch(key).read_bytes(), sha256, entry)
        except NotInStore:
            needed = (run_of_account(entry.account), entry.reservation) in with_receipt and not is_export
            reason = "is missing, but its attempt has a receipt" if needed else ""
        if reason:
            raise LedgerCorrupt(entry.account, entry.number, f"reserves money for {key}, which {reason}")


def check_receipts(chains: Mapping[str, AccountChain], anchors: Anchors) -> None:
    """Check that each receipt has the dollars that its attempt was settled at.

    An attempt may be adjusted after its receipt was written, so each amount that the ledger held is right.

    Raises:
        LedgerCorrupt: names the run, and the amounts.
    """
    amounts: dict[tuple[str, str], list[Settled]] = {}
    for chain in chains.values():
        for name, held in settled_amounts(chain).items():
            amounts.setdefault((run_of_account(chain.account.name), name), []).extend(held)
    for run, found in sorted(anchors.items()):
        for anchor in found:
            held = amounts.get((run, anchor.attempt), [Settled(0, 0)])
            if anchor.spent_usd is None:
                continue
            if Settled(microusd(anchor.spent_usd), microusd(anchor.overrun_usd)) not in held:
                reason = (
                    f"the receipt of {anchor.attempt} says that ${anchor.spent_usd} was spent and "
                    f"${anchor.overrun_usd} overrun, and the ledger holds ${from_microusd(held[-1].amount)} "
                    f"and ${from_microusd(held[-1].overrun)}: the receipt was changed"
                )
                raise LedgerCorrupt(run, 0, reason)


class Settled(NamedTuple):
    """What a reservation was settled at, and its overrun, in micro-dollars."""

    amount: int
    overrun: int


def settled_amounts(chain: AccountChain) -> dict[str, list[Settled]]:
    """Return the amounts of each reservation: as it was settled, then after each adjustment."""
    amounts: dict[str, list[Settled]] = {}
    for hashed in chain.entries:
        entry = hashed.entry
        if entry.kind == "settle" and entry.child is None:
            amounts[entry.reservation] = [Settled(entry.amount_microusd, 0)]
        elif entry.kind == "adjust":
            before = amounts[entry.reservation][-1]
            now = Settled(before.amount + entry.amount_microusd, before.overrun + entry.overrun_microusd)
            amounts[entry.reservation].append(now)
    return amounts
