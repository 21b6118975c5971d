"""Recompute the books from nothing: every hash, sequence and balance, and every place where one account names another's entry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import ValidationError

from shoestring.core.errors import DataError, LedgerCorrupt, UsageError
from shoestring.core.interfaces import Store
from shoestring.core.money import Usd, from_microusd
from shoestring.core.receipt import Receipt
from shoestring.core.record import Record
from shoestring.spending.approvals import check_approval, read_approval
from shoestring.spending.audit.export import EXPORT_KEY, LedgerExport, LedgerFolderStore, read_export
from shoestring.spending.ledger.account import Account, AccountState, OpenReservation
from shoestring.spending.ledger.account_checkpoint import checkpoint_key
from shoestring.spending.ledger.chain import AccountChain
from shoestring.spending.ledger.entry import Entry, entry_key, head_key, read_head
from shoestring.spending.ledger.settled_index import SettledReservation

Anchors = Mapping[str, tuple[str, ...]]


class Verification(Record):
    """Books that hold. Totals count every dollar once: where it is reserved for work, not again in the accounts above.

    `pending` is what a writer left between two accounts, or has not come to yet (`Ledger.repair_parent` mends it);
    `not_in_export` is what an export does not carry.
    """

    accounts: tuple[AccountState, ...]
    entries: int
    cap_usd: Usd
    spent_usd: Usd
    held_usd: Usd
    released_usd: Usd
    pending: tuple[str, ...]
    not_in_export: tuple[str, ...]

    def as_text(self) -> str:
        """A line an account, then the totals."""
        lines = [
            f"{state.account}: {'no cap' if state.cap_usd is None else f'cap ${state.cap_usd}'}, ${state.spent_usd} spent, "
            f"${state.held_usd} held, ${state.released_usd} released, {state.entries} entries, {'closed' if state.closed else 'open'}"
            for state in self.accounts
        ]
        total = f"${self.cap_usd} in caps, ${self.spent_usd} spent, ${self.held_usd} held, ${self.released_usd} released"
        return "\n".join(
            [
                *lines,
                *self.pending,
                *self.not_in_export,
                f"every hash, sequence and balance holds: {self.entries} entries, {total}",
            ]
        )


def verify(store: Store, anchors: Anchors) -> Verification:
    """Check a whole ledger, also while others write to it. `anchors`: run -> the ledger heads that its receipts carry.

    It sees a changed byte, a missing, doubled or moved entry, a stray file, an entry that breaks a rule of the accounts (past a cap,
    below zero, settled above its hold), and a tail that was cut off, where a head hint, a receipt or another account names an entry of it.

    Raises:
        LedgerCorrupt: names the first entry that does not hold.
    """
    part = read_export(store)
    chains = {name: _read(store, name, numbers) for name, numbers in _listed(store).items()}
    while unlisted := {
        name for chain in chains.values() for name in _named_by(chain) if name not in chains and part is None
    }:
        # A store may list late what it has.
        found = {name: chain for name in unlisted if (chain := _read(store, name, set())).entries}
        chains |= found
        if not found:
            break
    for name in part.accounts if part else ():
        if name not in chains:
            raise LedgerCorrupt(name, 1, "is missing: this export is of that account")
    for chain in chains.values():
        for sealed in chain.entries:
            _check_reserved(sealed.entry, chains)
            _check_settled(sealed.entry, chains, part)
            if sealed.entry.approval is not None:
                check_approval(store, sealed.entry)
    for run, heads in sorted(anchors.items()):
        for head in heads:
            if not any(chain.find(head) for chain in chains.values()):
                raise LedgerCorrupt(
                    run,
                    0,
                    f"a receipt names its entry {head[:12]}..., which no chain has: a tail was cut off",
                )
    return _sum_up(chains, part)


def load_anchors(store: Store, prefix: str = "runs/") -> Anchors:
    """The ledger heads that the receipts under `prefix` carry, by run. Raises DataError for a receipt that cannot be read."""
    heads: dict[str, list[str]] = {}
    for key in store.list(prefix):
        if not key.endswith(".json") or "receipts" not in key.split("/"):
            continue
        try:
            receipt = Receipt.model_validate_json(store.fetch(key).read_bytes())
        except ValidationError as error:
            raise DataError(f"{key} is not a receipt: {error.errors()[0]['msg']}") from error
        heads.setdefault(receipt.run_id, []).append(receipt.ledger_head)
    return {run: tuple(found) for run, found in heads.items()}


def open_ledger_folder(path: Path) -> tuple[Store, Anchors]:
    """A store's root, or a ledger folder under whatever name; receipts that lie beside it are its anchors.

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


def _listed(store: Store) -> dict[str, set[int]]:
    """Account -> the numbers that are listed. Raises LedgerCorrupt for a stray file."""
    listed: dict[str, set[int]] = {}
    for key in store.list("ledger/"):
        account, _, file = key.removeprefix("ledger/").partition("/")
        if file.startswith("approvals/"):
            read_approval(store, key)
            continue
        number = int(file[:-5]) if file.endswith(".json") and file[:-5].isdecimal() else 0
        if not (number and key == entry_key(account, number)) and key not in (
            head_key(account),
            checkpoint_key(account),
            EXPORT_KEY,
        ):
            raise LedgerCorrupt(account, 0, f"{key} is no entry: a stray file")
        if key != EXPORT_KEY:
            listed.setdefault(account, set()).update({number} - {0})
    return dict(sorted(listed.items()))


def _read(store: Store, name: str, listed: set[int]) -> AccountChain:
    hint = read_head(store, name)
    last = max(listed, default=0)
    chain = AccountChain(store, name, last)
    here = chain.account.number
    if (known := max(last, hint.number if hint else 0, chain.checkpoint.number if chain.checkpoint else 0)) > here:
        raise LedgerCorrupt(name, here + 1, f"is missing, and there is, or was, an entry {known}")
    if inside := sorted(number for number in listed - chain.object_numbers if number <= here):
        raise LedgerCorrupt(
            name, inside[0], "lies among entries that are together in one object before it: a stray file"
        )
    if hint and chain.entries[hint.number - 1].sha256 != hint.sha256:
        raise LedgerCorrupt(
            name, hint.number, f"is not the entry {hint.sha256[:12]}... that head.json knows of"
        )
    return chain


def _named_by(chain: AccountChain) -> Iterator[str]:
    """The other accounts that an account's entries name."""
    for sealed in chain.entries:
        yield from (name for name, _ in sealed.entry.reserved_in)
        if sealed.entry.child is not None:
            yield sealed.entry.child


def _check_reserved(entry: Entry, chains: dict[str, AccountChain]) -> None:
    """An account that lies inside others names the entries that reserved it there."""
    for name, sha256 in entry.reserved_in:
        if sha256 is None:
            continue
        parent = chains.get(name)
        if parent is None:
            raise LedgerCorrupt(entry.account, entry.number, f"is inside {name}, which is not here")
        if parent.find(sha256) is None:
            said = f"names entry {sha256[:12]}... of {name}, which is not there: its tail was cut off"
            raise LedgerCorrupt(entry.account, entry.number, said)
        child, held = parent.child_reservations.get(sha256, ("", 0))
        if child != entry.account or held < (entry.cap_microusd or 0):
            raise LedgerCorrupt(
                entry.account, entry.number, f"is not what entry {sha256[:12]}... of {name} reserved"
            )


def _check_settled(entry: Entry, chains: dict[str, AccountChain], part: LedgerExport | None) -> None:
    """A parent's settlement names the entry that closed the account inside it, and what that had spent."""
    if entry.child is None or entry.child_hash is None:
        return
    child = chains.get(entry.child)
    if child is None:
        if part is None:
            raise LedgerCorrupt(entry.account, entry.number, f"settles {entry.child}, which is not here")
        return
    closing = child.find(entry.child_hash)
    if closing is None:
        raise LedgerCorrupt(
            entry.account,
            entry.number,
            f"names entry {entry.child_hash[:12]}... of {entry.child}, which is not there",
        )
    inside = entry.account in child.account.parents
    true = child.account.spent if inside else 0
    if inside and not (child.account.closed and child.account.head == entry.child_hash):
        raise LedgerCorrupt(
            entry.account,
            entry.number,
            f"settles {entry.child} by entry {closing.entry.number}, which did not close it",
        )
    if entry.amount_microusd != true:
        said = f"settles {entry.child} at ${from_microusd(entry.amount_microusd)}, but ${from_microusd(true)} was spent there"
        raise LedgerCorrupt(entry.account, entry.number, said)


def _loose_ends(chain: AccountChain, chains: dict[str, AccountChain], part: LedgerExport | None) -> Iterator[tuple[str, bool]]:
    """What is pending (True), or not in this export (False), among the accounts inside this one."""
    account = chain.account
    for name, held in _holds(account).items():
        amount = f"${from_microusd(held.amount_microusd)}"
        child = chains.get(name)
        if held.child is None:
            continue
        if child is None and part is not None:
            yield f"{name}, at {amount} in {account.name}, is not in this export", False
        elif name not in account.reservations:
            continue
        elif child is None:
            yield f"{name} is reserved in {account.name} at {amount}, and not opened yet", True
        elif account.name not in child.account.parents:
            yield (
                f"{name} was opened inside {' and '.join(child.account.parents)} after all, and {account.name} still holds {amount} for it",
                True,
            )
        elif child.account.closed:
            yield (
                f"{name} is closed, and not settled in {account.name} yet, which holds {amount} for it",
                True,
            )


def _holds(account: Account) -> dict[str, OpenReservation | SettledReservation]:
    """All that it has ever held."""
    return {**account.settled.all(), **account.reservations}


def _sum_up(chains: dict[str, AccountChain], part: LedgerExport | None) -> Verification:
    ends = [end for chain in chains.values() for end in _loose_ends(chain, chains, part)]
    books = [chain.account for chain in chains.values()]
    holds = [held for account in books for held in account.reservations.values() if not held.child]
    settled = [held for account in books for held in account.settled.all().values() if not held.child]
    lowest = [account for account in books if not any(held.child for held in _holds(account).values())]
    return Verification(
        accounts=tuple(account.state() for account in books),
        entries=sum(account.number for account in books),
        cap_usd=from_microusd(sum(account.cap or 0 for account in lowest)),
        spent_usd=from_microusd(sum(held.amount_microusd for held in settled)),
        held_usd=from_microusd(sum(held.amount_microusd for held in holds)),
        released_usd=from_microusd(sum(held.released_microusd for held in settled)),
        pending=tuple(sentence for sentence, is_pending in ends if is_pending),
        not_in_export=tuple(sentence for sentence, is_pending in ends if not is_pending),
    )
