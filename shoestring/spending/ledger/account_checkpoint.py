"""Checkpoints of accounts: the state of an account at one of its entries, so that a new writer of a long
chain reads only its end.

The entry after the checkpoint names its digest, so a reader that finds the two together has the state that
the writer of that entry checked its caps against. A checkpoint that no entry names is not used. The entries
alone define the account, and `verify` compares the two.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from datetime import datetime

from pydantic import ConfigDict, Field, ValidationError

from shoestring.core import store_layout
from shoestring.core.errors import LedgerCorrupt, NotInStore
from shoestring.core.interfaces import Store
from shoestring.core.record import Record, StoredRecord, digest, record_bytes
from shoestring.spending.ledger.account import Account
from shoestring.spending.ledger.balances import OpenReservation
from shoestring.spending.ledger.entry import (
    AccountName,
    Entry,
    Sha256,
    StoredObject,
    is_empty,
    read_object,
)
from shoestring.spending.ledger.settled_index import RequestIndex, SettledReservations

MIN_INTERVAL, CHAIN_SHARE = 128, 256
"""Entries between two checkpoints: at least 128, and for a long chain at least 1/256 of its length, which
bounds the cost of writing.
"""


class StoredReservation(Record):
    """An open reservation in a checkpoint."""

    model_config = ConfigDict(strict=True)

    stage: str
    attempt: int
    amount_microusd: int
    reserved_at: datetime
    child: str | None
    entry_hash: str
    decision_key: str


class AccountCheckpoint(StoredRecord):
    """All fields of an `Account`. `requests` and `settled` are packed (`settled_index.py`)."""

    model_config = ConfigDict(strict=True)

    account: AccountName
    number: int
    head: Sha256
    named_in: int = Field(description="number of the object with the entry that names this checkpoint")
    parent: str | None
    campaign: str | None
    cap_microusd: int | None
    initial_cap_microusd: int | None
    cap_entry: int
    closed: bool
    spent_microusd: int
    held_microusd: int
    released_microusd: int
    reservations: dict[str, StoredReservation]
    stage_caps: dict[str, int]
    stage_spent: dict[str, int]
    stage_held: dict[str, int]
    requests: str
    settled: tuple[str, ...]
    overruns: dict[str, int] = Field({}, exclude_if=is_empty)


class HashedCheckpoint(Record):
    """A checkpoint and its hash, as the store holds them."""

    model_config = ConfigDict(strict=True)

    checkpoint: AccountCheckpoint
    sha256: Sha256


def checkpoint_is_due(number: int) -> bool:
    """Return whether the writer of entry `number` writes a checkpoint.

    One is due every 128 entries, from entry 65,536 on every 256, from 131,072 on every 512, and so on.
    """
    every = MIN_INTERVAL
    if number >= CHAIN_SHARE:
        every = max(MIN_INTERVAL, 1 << ((number // CHAIN_SHARE).bit_length() - 1))
    return number % every == 0


@dataclass(frozen=True, slots=True)
class SavedAccount:
    """An account as of its checkpoint, its digest, and the number of the object that names it."""

    account: Account
    sha256: str
    named_in: int

    @property
    def named_by(self) -> int:
        """The number of the entry that names the checkpoint: the one after it."""
        return self.account.number + 1


def make_checkpoint(account: Account, named_in: int) -> HashedCheckpoint:
    """Return a checkpoint of the account. The next entry, in object `named_in`, must name its digest."""
    checkpoint = AccountCheckpoint(
        account=account.name,
        number=account.number,
        head=account.head,
        named_in=named_in,
        parent=account.parent,
        campaign=account.campaign,
        cap_microusd=account.cap_microusd,
        initial_cap_microusd=account.initial_cap_microusd,
        cap_entry=account.cap_entry,
        closed=account.closed,
        spent_microusd=account.spent_microusd,
        held_microusd=account.held_microusd,
        released_microusd=account.released_microusd,
        reservations={
            name: StoredReservation(**asdict(open_)) for name, open_ in account.reservations.items()
        },
        stage_caps=account.stage_caps,
        stage_spent=dict(account.stage_spent),
        stage_held=dict(account.stage_held),
        requests=account.requests.pack(),
        settled=account.settled.pack(),
        overruns=account.overruns,
    )
    return HashedCheckpoint(checkpoint=checkpoint, sha256=digest(record_bytes(checkpoint)))


def write_checkpoint(store: Store, hashed: HashedCheckpoint) -> None:
    """Write a checkpoint, replacing the one before. Raises StoreError."""
    store.put(store_layout.ledger_checkpoint(hashed.checkpoint.account), record_bytes(hashed))


def load_checkpoint(store: Store, name: str) -> SavedAccount | None:
    """Return the account as of its last checkpoint, or None if it has none.

    Raises:
        LedgerCorrupt: the checkpoint was changed after it was written.
    """
    try:
        data = store.fetch(store_layout.ledger_checkpoint(name)).read_bytes()
        found = HashedCheckpoint.model_validate_json(data)
    except NotInStore:
        return None
    except ValidationError:
        found = None
    if (
        found is None
        or found.checkpoint.account != name
        or digest(record_bytes(found.checkpoint)) != found.sha256
    ):
        raise LedgerCorrupt(
            name,
            0,
            "its checkpoint.json was changed: verify the entries, then delete it "
            "(a later entry writes a new one)",
        )
    return SavedAccount(_restore(found.checkpoint), found.sha256, found.checkpoint.named_in)


def restore(store: Store, saved: SavedAccount) -> tuple[Account, StoredObject]:
    """Return the account after the object that names its checkpoint, and that object.

    Raises:
        LedgerCorrupt: the entry that should name the checkpoint is missing, or names another one.
    """
    account = saved.account
    stored = read_object(store, account.name, saved.named_in)
    later = [each for each in (stored.entries if stored else ()) if each.entry.number >= saved.named_by]
    if stored is None or not later or later[0].entry.checkpoint != saved.sha256:
        raise LedgerCorrupt(
            account.name,
            saved.named_by,
            "does not name checkpoint.json: the chain was cut off or changed, or checkpoint.json was "
            "replaced; verify the entries, then delete checkpoint.json",
        )
    for hashed in later:
        account.apply(hashed)
    account.object_number = stored.number
    return account, stored


def _restore(saved: AccountCheckpoint) -> Account:
    account = Account(saved.account)
    account.number, account.head = saved.number, saved.head
    account.parent, account.campaign, account.closed = saved.parent, saved.campaign, saved.closed
    account.cap_microusd, account.cap_entry = saved.cap_microusd, saved.cap_entry
    account.initial_cap_microusd = saved.initial_cap_microusd
    account.spent_microusd, account.held_microusd = saved.spent_microusd, saved.held_microusd
    account.released_microusd = saved.released_microusd
    account.reservations = {
        name: OpenReservation(**dict(open_)) for name, open_ in saved.reservations.items()
    }
    account.stage_caps, account.overruns = saved.stage_caps, dict(saved.overruns)
    account.stage_spent, account.stage_held = Counter(saved.stage_spent), Counter(saved.stage_held)
    account.requests, account.settled = RequestIndex(saved.requests), SettledReservations(saved.settled)
    return account


def compare_checkpoint(saved: SavedAccount, computed: Account, last: Entry) -> None:
    """Compare a checkpoint with the account that was computed from its entries, and with the entry that
    names it, where `last` is the last of them. Raises LedgerCorrupt if they differ.
    """
    if computed.number == saved.account.number and not same_account(saved.account, computed):
        raise LedgerCorrupt(
            computed.name,
            computed.number,
            "does not give the state that checkpoint.json has for that entry: delete that file",
        )
    if computed.number == saved.named_by and last.checkpoint != saved.sha256:
        raise LedgerCorrupt(
            computed.name, computed.number, "does not name checkpoint.json: that file was replaced; delete it"
        )


def same_account(one: Account, other: Account) -> bool:
    """Return whether two accounts have the same state and the same history."""
    return (
        one.requests.pack() == other.requests.pack()
        and one.settled.all() == other.settled.all()
        and _comparable(one) == _comparable(other)
    )


def _comparable(account: Account) -> tuple[object, ...]:
    return account.state(), account.reservations, account.cap_entry
