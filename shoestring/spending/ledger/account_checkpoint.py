"""An account as it was at one of its entries, so that a new writer of a long chain need not read all of it.

A hint, like the head's: an account is what its entries come to, and `verify` compares.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from datetime import datetime

from pydantic import ConfigDict, Field, ValidationError

from shoestring.core.errors import LedgerCorrupt, NotInStore
from shoestring.core.interfaces import Store
from shoestring.core.record import Record, StoredRecord, digest, record_bytes
from shoestring.spending.ledger.account import Account, OpenReservation
from shoestring.spending.ledger.entry import AccountName, Sha256, is_none
from shoestring.spending.ledger.settled_index import RequestIndex, SettledReservations

# Entries between two checkpoints of a short chain; of a long one, at least this share of it, so that writing them stays as cheap.
MIN_INTERVAL, CHAIN_SHARE = 128, 256


class StoredReservation(Record):
    model_config = ConfigDict(strict=True)

    stage: str
    attempt: int
    microusd: int
    since: datetime
    child: str | None
    proof: str
    why: str


class AccountCheckpoint(StoredRecord):
    """All that an `Account` is. `requests` and `settled` are packed (`spending/past.py`)."""

    model_config = ConfigDict(strict=True)

    account: AccountName
    number: int
    head: Sha256
    object_number: int | None = Field(
        None, exclude_if=is_none, description="number of the object with that entry, where it is another"
    )
    parent: str | None
    campaign: str | None
    cap: int | None
    initial_cap_microusd: int | None
    cap_entry: int
    closed: bool
    spent: int
    held: int
    released: int
    reservations: dict[str, StoredReservation]
    stage_caps: dict[str, int]
    stage_spent: dict[str, int]
    stage_held: dict[str, int]
    requests: str
    settled: tuple[str, ...]


class HashedCheckpoint(Record):
    model_config = ConfigDict(strict=True)

    checkpoint: AccountCheckpoint
    sha256: Sha256


def checkpoint_key(account: str) -> str:
    return f"ledger/{account}/checkpoint.json"


def checkpoint_is_due(number: int) -> bool:
    """Does whoever writes entry `number` write a checkpoint? Every 128 entries, and of a chain of 65,536 every 256, and so on."""
    every = max(MIN_INTERVAL, 1 << ((number // CHAIN_SHARE).bit_length() - 1)) if number >= CHAIN_SHARE else MIN_INTERVAL
    return number % every == 0


def write_checkpoint(store: Store, account: Account) -> None:
    """Write the account down as it is, in place of the checkpoint before. Raises StoreError."""
    checkpoint = AccountCheckpoint(
        account=account.name,
        number=account.number,
        head=account.head,
        object_number=account.object_number if account.object_number != account.number else None,
        parent=account.parent,
        campaign=account.campaign,
        cap=account.cap,
        initial_cap_microusd=account.initial_cap_microusd,
        cap_entry=account.cap_entry,
        closed=account.closed,
        spent=account.spent,
        held=account.held,
        released=account.released,
        reservations={name: StoredReservation(**asdict(held)) for name, held in account.reservations.items()},
        stage_caps=account.stage_caps,
        stage_spent=dict(account.stage_spent),
        stage_held=dict(account.stage_held),
        requests=account.requests.pack(),
        settled=account.settled.pack(),
    )
    store.put(
        checkpoint_key(account.name), record_bytes(HashedCheckpoint(checkpoint=checkpoint, sha256=digest(record_bytes(checkpoint))))
    )


def load_checkpoint(store: Store, name: str) -> Account | None:
    """The account as it was at its last checkpoint. Raises LedgerCorrupt for one that was changed since it was written."""
    try:
        kept = HashedCheckpoint.model_validate_json(store.fetch(checkpoint_key(name)).read_bytes())
    except NotInStore:
        return None
    except ValidationError:
        kept = None
    if kept is None or kept.checkpoint.account != name or digest(record_bytes(kept.checkpoint)) != kept.sha256:
        raise LedgerCorrupt(
            name,
            0,
            "its checkpoint.json was changed: verify the entries, then delete it (a later entry writes a new one)",
        )
    return _restore(kept.checkpoint)


def _restore(kept: AccountCheckpoint) -> Account:
    account = Account(kept.account)
    account.number, account.head, account.object_number = kept.number, kept.head, kept.object_number or kept.number
    account.parent, account.campaign, account.closed = kept.parent, kept.campaign, kept.closed
    account.cap, account.initial_cap_microusd, account.cap_entry = kept.cap, kept.initial_cap_microusd, kept.cap_entry
    account.spent, account.held, account.released = kept.spent, kept.held, kept.released
    account.reservations = {name: OpenReservation(**dict(held)) for name, held in kept.reservations.items()}
    account.stage_caps = kept.stage_caps
    account.stage_spent, account.stage_held = Counter(kept.stage_spent), Counter(kept.stage_held)
    account.requests, account.settled = RequestIndex(kept.requests), SettledReservations(kept.settled)
    return account


def compare_checkpoint(kept: Account, true: Account) -> None:
    """Is what was kept what the entries up to there come to? Raises LedgerCorrupt."""
    packed = kept.requests.pack() == true.requests.pack() and kept.settled.all() == true.settled.all()
    if not packed or (kept.state(), kept.reservations, kept.cap_entry) != (true.state(), true.reservations, true.cap_entry):
        raise LedgerCorrupt(
            kept.name,
            kept.number,
            "does not come to what checkpoint.json says of the account at that entry: delete that file",
        )
