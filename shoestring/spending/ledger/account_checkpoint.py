"""An account as it was at one of its entries, so that a new writer of a long chain need not read all of it.

A hint, like the head's: an account is what its entries come to, and `verify` compares.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from datetime import datetime
from typing import Literal

from pydantic import ConfigDict, Field, ValidationError

from shoestring.core.errors import LedgerCorrupt, NotInStore
from shoestring.core.interfaces import Store
from shoestring.core.types import Record, digest, record_bytes
from shoestring.spending.ledger.account import Account, Held
from shoestring.spending.ledger.entry import AccountName, Hash, is_none
from shoestring.spending.ledger.settled_index import Requests, SettledHolds

# Entries between two checkpoints of a short chain; of a long one, at least this share of it, so that writing them stays as cheap.
EVERY, SHARE = 128, 256


class HeldThen(Record):
    model_config = ConfigDict(strict=True)

    stage: str
    attempt: int
    microusd: int
    since: datetime
    child: str | None
    proof: str
    why: str


class Checkpoint(Record):
    """All that an `Account` is. `requests` and `settled` are packed (`spending/past.py`)."""

    model_config = ConfigDict(strict=True)

    schema_version: Literal[1] = 1
    account: AccountName
    number: int
    head: Hash
    lies_in: int | None = Field(
        None, exclude_if=is_none, description="number of the object with that entry, where it is another"
    )
    parent: str | None
    campaign: str | None
    cap: int | None
    opened_cap: int | None
    capped_by: int
    closed: bool
    spent: int
    held: int
    released: int
    holds: dict[str, HeldThen]
    stage_caps: dict[str, int]
    stage_spent: dict[str, int]
    stage_held: dict[str, int]
    requests: str
    settled: tuple[str, ...]


class Kept(Record):
    model_config = ConfigDict(strict=True)

    checkpoint: Checkpoint
    sha256: Hash


def checkpoint_key(account: str) -> str:
    return f"ledger/{account}/checkpoint.json"


def is_due(number: int) -> bool:
    """Does whoever writes entry `number` write a checkpoint? Every 128 entries, and of a chain of 65,536 every 256, and so on."""
    every = max(EVERY, 1 << ((number // SHARE).bit_length() - 1)) if number >= SHARE else EVERY
    return number % every == 0


def keep(store: Store, account: Account) -> None:
    """Write the account down as it is, in place of the checkpoint before. Raises StoreError."""
    checkpoint = Checkpoint(
        account=account.name,
        number=account.number,
        head=account.head,
        lies_in=account.lies_in if account.lies_in != account.number else None,
        parent=account.parent,
        campaign=account.campaign,
        cap=account.cap,
        opened_cap=account.opened_cap,
        capped_by=account.capped_by,
        closed=account.closed,
        spent=account.spent,
        held=account.held,
        released=account.released,
        holds={name: HeldThen(**asdict(held)) for name, held in account.holds.items()},
        stage_caps=account.stage_caps,
        stage_spent=dict(account.stage_spent),
        stage_held=dict(account.stage_held),
        requests=account.requests.pack(),
        settled=account.settled.pack(),
    )
    store.put(
        checkpoint_key(account.name), record_bytes(Kept(checkpoint=checkpoint, sha256=digest(record_bytes(checkpoint))))
    )


def load(store: Store, name: str) -> Account | None:
    """The account as it was at its last checkpoint. Raises LedgerCorrupt for one that was changed since it was written."""
    try:
        kept = Kept.model_validate_json(store.fetch(checkpoint_key(name)).read_bytes())
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
    return _account(kept.checkpoint)


def _account(kept: Checkpoint) -> Account:
    account = Account(kept.account)
    account.number, account.head, account.lies_in = kept.number, kept.head, kept.lies_in or kept.number
    account.parent, account.campaign, account.closed = kept.parent, kept.campaign, kept.closed
    account.cap, account.opened_cap, account.capped_by = kept.cap, kept.opened_cap, kept.capped_by
    account.spent, account.held, account.released = kept.spent, kept.held, kept.released
    account.holds = {name: Held(**dict(held)) for name, held in kept.holds.items()}
    account.stage_caps = kept.stage_caps
    account.stage_spent, account.stage_held = Counter(kept.stage_spent), Counter(kept.stage_held)
    account.requests, account.settled = Requests(kept.requests), SettledHolds(kept.settled)
    return account


def check(kept: Account, true: Account) -> None:
    """Is what was kept what the entries up to there come to? Raises LedgerCorrupt."""
    packed = kept.requests.pack() == true.requests.pack() and kept.settled.all() == true.settled.all()
    if not packed or (kept.state(), kept.holds, kept.capped_by) != (true.state(), true.holds, true.capped_by):
        raise LedgerCorrupt(
            kept.name,
            kept.number,
            "does not come to what checkpoint.json says of the account at that entry: delete that file",
        )
