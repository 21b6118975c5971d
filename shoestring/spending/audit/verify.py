"""Verifies a ledger from its entries alone: every hash, sequence and balance, and every entry that names one
of another account.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import ValidationError

from shoestring.core import store_layout
from shoestring.core.errors import DataError, LedgerCorrupt, UsageError
from shoestring.core.interfaces import Store
from shoestring.core.money import from_microusd
from shoestring.core.receipt import Receipt
from shoestring.core.record import validation_message
from shoestring.spending.approvals import approval_fault, read_approval
from shoestring.spending.audit.export import LedgerExport, LedgerFolderStore, read_export
from shoestring.spending.audit.heads import LedgerHead, check_heads
from shoestring.spending.audit.records import (
    Anchor,
    Anchors,
    check_decisions,
    check_receipts,
    read_anchor,
)
from shoestring.spending.audit.run_records import changed_records, records_not_compared
from shoestring.spending.audit.verification import Verification, summarize
from shoestring.spending.ledger.chain import AccountChain
from shoestring.spending.ledger.entry import Entry, read_head


def verify(store: Store, anchors: Anchors, heads: Sequence[LedgerHead] = ()) -> Verification:
    """Verify a whole ledger, also while others write to it.

    It finds: a changed byte; a missing, duplicated or moved entry; a stray file; an entry that breaks a rule
    of the accounts (above a cap, below zero, settled above its reservation, a cap raised without an
    approval); a decision or a receipt's dollars that differ from the ledger; a record of a run that was
    changed, removed or added after it had ended; and a removed end of a chain, if a head hint, a receipt,
    another account or one of `heads` names one of the removed entries. `heads` were kept outside the store.

    Raises:
        LedgerCorrupt: names the first entry that is wrong.
    """
    export = read_export(store)
    chains = _read_chains(store, export)
    for name in export.accounts if export else ():
        if name not in chains:
            raise LedgerCorrupt(name, 1, "is missing: this export is of that account")
    check_heads(heads, chains, is_export=export is not None)
    for chain in chains.values():
        for hashed in chain.entries:
            _check_reserved(hashed.entry, chains)
            _check_settled(hashed.entry, chains, export)
            _check_approval(store, hashed.entry)
    for run, found in sorted(anchors.items()):
        for anchor in found:
            if not any(chain.find(anchor.ledger_head) for chain in chains.values()):
                named = f"the receipt of {anchor.attempt}" if anchor.attempt else "a receipt"
                reason = f"{named} names its entry {anchor.ledger_head[:12]}..., which no chain has"
                raise LedgerCorrupt(run, 0, f"{reason}: a chain's end was removed")
    check_receipts(chains, anchors)
    check_decisions(store, chains.values(), anchors)
    not_compared = records_not_compared(store, chains, is_export=export is not None)
    if export is not None or any(store.list(store_layout.RUNS)):
        for changed in changed_records(store, chains, is_export=export is not None):
            raise LedgerCorrupt(changed.entry.account, changed.entry.number, changed.reason)
    return summarize(chains, export, not_compared)


def load_anchors(store: Store, prefix: str = store_layout.RUNS) -> Anchors:
    """Return what the receipts under `prefix` say about the ledger, by run. Raises DataError for a damaged
    receipt.
    """
    anchors: dict[str, list[Anchor]] = {}
    for key in store.list(prefix):
        if not key.endswith(".json") or "receipts" not in key.split("/"):
            continue
        try:
            receipt = Receipt.model_validate_json(store.fetch(key).read_bytes())
        except ValidationError as error:
            raise DataError(f"{key} is not a receipt: {validation_message(error)}") from error
        anchors.setdefault(receipt.run_id, []).append(read_anchor(key, receipt))
    return {run: tuple(found) for run, found in anchors.items()}


def open_ledger_folder(path: Path) -> tuple[Store, Anchors]:
    """Open a store's root, or a ledger folder of any name. Receipts next to the folder are its anchors.

    Raises:
        UsageError: there is no ledger.
    """
    folder = path / "ledger" if (path / "ledger").is_dir() or (path / "runs").is_dir() else path
    if folder == path and not any(path.glob("*/[0-9]*.json")):
        raise UsageError(
            f"there is no ledger in {path}: name a store's root, or the ledger/ folder inside it"
        )
    store = LedgerFolderStore(folder)
    return store, {**load_anchors(store), **load_anchors(store, "receipts/")}


def _read_chains(store: Store, export: LedgerExport | None) -> dict[str, AccountChain]:
    """Read the chains of all accounts that are listed, or that entries name."""
    chains = {name: _read_chain(store, name, numbers) for name, numbers in _listed(store).items()}
    while export is None:
        unlisted = {name for chain in chains.values() for name in _named_by(chain)} - chains.keys()
        # A store may list new objects late.
        found = {name: chain for name in unlisted if (chain := _read_chain(store, name, set())).entries}
        chains |= found
        if not found:
            break
    return chains


def _listed(store: Store) -> dict[str, set[int]]:
    """Return account -> the entry numbers that the store lists. Raises LedgerCorrupt for a stray file."""
    listed: dict[str, set[int]] = {}
    for key in store.list(store_layout.LEDGER):
        account, _, file = key.removeprefix(store_layout.LEDGER).partition("/")
        if file.startswith("approvals/"):
            read_approval(store, key)
            continue
        number = int(file[:-5]) if file.endswith(".json") and file[:-5].isdecimal() else 0
        is_entry = number and key == store_layout.ledger_entry(account, number)
        hints = (store_layout.ledger_head(account), store_layout.ledger_checkpoint(account))
        if not is_entry and key not in (*hints, store_layout.LEDGER_EXPORT):
            raise LedgerCorrupt(account, 0, f"{key} is not an entry: a stray file")
        if key != store_layout.LEDGER_EXPORT:
            listed.setdefault(account, set()).update({number} - {0})
    return dict(sorted(listed.items()))


def _read_chain(store: Store, name: str, listed: set[int]) -> AccountChain:
    """Read one chain, and compare it with the listed numbers, the head hint and the checkpoint."""
    hint = read_head(store, name)
    last = max(listed, default=0)
    chain = AccountChain(store, name, last)
    read = chain.account.number
    hinted = (hint.number if hint else 0, chain.checkpoint.named_by if chain.checkpoint else 0)
    if (known := max(last, *hinted)) > read:
        raise LedgerCorrupt(name, read + 1, f"is missing, but an entry {known} exists or existed")
    if inside := sorted(number for number in listed - chain.object_numbers if number <= read):
        raise LedgerCorrupt(
            name, inside[0], "has the number of an entry that is in a batch before it: a stray file"
        )
    if hint and chain.entries[hint.number - 1].sha256 != hint.sha256:
        raise LedgerCorrupt(name, hint.number, f"is not the entry {hint.sha256[:12]}... that head.json names")
    return chain


def _named_by(chain: AccountChain) -> Iterator[str]:
    """Yield the other accounts that an account's entries name."""
    for hashed in chain.entries:
        yield from (name for name, _ in hashed.entry.reserved_in)
        if hashed.entry.child is not None:
            yield hashed.entry.child


def _check_reserved(entry: Entry, chains: dict[str, AccountChain]) -> None:
    """Check that the entries that reserved an account's cap in its parents exist and cover it."""
    for name, sha256 in entry.reserved_in:
        if sha256 is None:
            continue
        short = sha256[:12]
        parent = chains.get(name)
        if parent is None:
            raise LedgerCorrupt(entry.account, entry.number, f"is inside {name}, which is missing")
        if parent.find(sha256) is None:
            reason = f"names entry {short}... of {name}, which is missing: the end of its chain was removed"
            raise LedgerCorrupt(entry.account, entry.number, reason)
        child, held = parent.child_reservations.get(sha256, ("", 0))
        if child != entry.account or held < (entry.cap_microusd or 0):
            raise LedgerCorrupt(
                entry.account, entry.number, f"is not what entry {short}... of {name} reserved"
            )


def _check_approval(store: Store, entry: Entry) -> None:
    """Check that the approval that an entry names allows its cap."""
    if entry.approval is None:
        return
    if fault := approval_fault(store, entry.account, entry.approval, entry.cap_microusd or 0, entry.at):
        raise LedgerCorrupt(entry.account, entry.number, fault)


def _check_settled(entry: Entry, chains: dict[str, AccountChain], export: LedgerExport | None) -> None:
    """Check that a parent settled a child by the entry that closed it, at the amount that the child spent."""
    if entry.child is None or entry.child_hash is None:
        return

    def corrupt(reason: str) -> LedgerCorrupt:
        return LedgerCorrupt(entry.account, entry.number, reason)

    child = chains.get(entry.child)
    if child is None:
        if export is None:
            raise corrupt(f"settles {entry.child}, which is missing")
        return
    closing = child.find(entry.child_hash)
    if closing is None:
        raise corrupt(f"names entry {entry.child_hash[:12]}... of {entry.child}, which is missing")
    is_inside = entry.account in child.account.parents
    spent = child.account.spent_microusd if is_inside else 0
    if is_inside and not (child.account.closed and child.account.head == entry.child_hash):
        raise corrupt(f"settles {entry.child} by entry {closing.entry.number}, which did not close it")
    if entry.amount_microusd != spent:
        settled = f"${from_microusd(entry.amount_microusd)}"
        raise corrupt(f"settles {entry.child} at {settled}, but it spent ${from_microusd(spent)}")
