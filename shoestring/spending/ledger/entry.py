"""The entries of the ledger, and how they are stored.

Each account has a chain of entries. An entry is one request to the account, and contains the hash of the
entry before it. An object in the store holds one entry, or a batch of consecutive entries under the number of
the first. Writers that met contention write batches (`group_commit.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Literal

from pydantic import AfterValidator, AwareDatetime, ConfigDict, Field, ValidationError

from shoestring.core import store_layout
from shoestring.core.errors import LedgerCorrupt, NotInStore
from shoestring.core.interfaces import PARALLEL_READS, Store
from shoestring.core.record import Record, StoredRecord, digest, record_bytes, validation_message

NO_ENTRY = "0" * 64
"""The `prev` hash of an account's first entry."""
SEQUENTIAL_READS = 8
"""Up to this many entries are read one after another: starting threads would cost more than it saves."""
READ_WINDOW = 8 * PARALLEL_READS
"""Entries that one round of parallel reads covers, so that a wrong hint costs few useless requests."""
MAX_BATCH_ENTRIES = 64
"""Entries in one object, at most. A few rounds of parallel reads find any of them."""
BATCH_PREFIX = b'{\n "entries"'
"""The first bytes of an object that holds a batch."""

EntryKind = Literal["open", "reserve", "extend", "settle", "adjust", "cap", "close"]
ACCOUNT_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"
AccountName = Annotated[str, Field(pattern=ACCOUNT_PATTERN)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


def _require_utc(moment: datetime) -> datetime:
    if moment.utcoffset() != UTC.utcoffset(None):
        raise ValueError("the times of ledger entries must be in UTC")
    return moment


def is_none(value: object) -> bool:
    """Return True for None. Optional fields that are None are left out of the stored entry."""
    return value is None


def is_empty(value: object) -> bool:
    """Return True for an empty dict. Optional dicts that are empty are left out of what is stored."""
    return value == {}


def is_zero(value: object) -> bool:
    """Return True for 0. Optional amounts of 0 are left out of the stored entry."""
    return value == 0


class Entry(StoredRecord):
    """One request to an account. Amounts are whole micro-dollars.

    `id` names the request: a request that is sent twice is written once. `amount_microusd` is the amount that
    a `reserve` reserves, that an `extend` adds, that a `settle` settles at, or by which an `adjust` changes a
    settled reservation.
    """

    model_config = ConfigDict(strict=True)

    account: AccountName
    number: int = Field(ge=1)
    prev: Sha256 = Field(description="hash of the entry before; 64 zeros for the first")
    at: Annotated[AwareDatetime, AfterValidator(_require_utc)]
    kind: EntryKind
    id: str = Field(min_length=1)
    writer: str = Field("", description="the pod or process that wrote the entry")
    reservation: str = ""
    stage: str = ""
    attempt: int = Field(0, ge=0)
    amount_microusd: int = 0
    decision_key: str = Field("", description="reserve: key of the decision that the money is reserved for")
    reason: str = Field("", description="settle, adjust, close: why the request was made")
    cap_microusd: int | None = Field(
        None, ge=0, description="open, cap: the most the account may spend and hold; null = no limit"
    )
    stage_caps: dict[str, int] = Field(
        {}, description="open: stage -> the most it may spend and hold, in micro-dollars"
    )
    parent: AccountName | None = Field(None, description="the account that reserves this one's cap")
    parent_hash: Sha256 | None = Field(None, description="hash of the parent's entry that reserved the cap")
    campaign: AccountName | None = Field(
        None, exclude_if=is_none, description="a second account that reserves this one's cap"
    )
    campaign_hash: Sha256 | None = Field(
        None, exclude_if=is_none, description="hash of the campaign's entry that reserved the cap"
    )
    approval: Sha256 | None = Field(
        None, exclude_if=is_none, description="open, cap: digest of the approval that allows the cap"
    )
    approve_above_microusd: int | None = Field(
        None,
        exclude_if=is_none,
        description="open: the highest cap that needed no approval at that time; null: any cap",
    )
    child: AccountName | None = Field(
        None, description="in a parent: the account that this reservation belongs to"
    )
    child_hash: Sha256 | None = Field(
        None, description="settle of a child: hash of the entry that closed the child"
    )
    overrun_microusd: int = Field(
        0,
        exclude_if=is_zero,
        description="adjust: cost that no money was left for; negative: booked or corrected later",
    )
    checkpoint: Sha256 | None = Field(
        None, exclude_if=is_none, description="digest of the account's checkpoint as of the entry before"
    )
    records: dict[str, Sha256] = Field(
        {},
        exclude_if=is_empty,
        description="close: record of the run -> its digest; none: closed by an earlier version",
    )

    @property
    def reserved_in(self) -> tuple[tuple[str, str | None], ...]:
        """The parent accounts, each with the hash of its entry that reserved the cap."""
        both = ((self.parent, self.parent_hash), (self.campaign, self.campaign_hash))
        return tuple((name, sha256) for name, sha256 in both if name is not None)


class HashedEntry(Record):
    """An entry and its hash, as the store holds them."""

    model_config = ConfigDict(strict=True)

    entry: Entry
    sha256: Sha256


class EntryBatch(Record):
    """Consecutive entries in one object. A reader sees all of them or none."""

    model_config = ConfigDict(strict=True)

    entries: tuple[HashedEntry, ...] = Field(min_length=1, max_length=MAX_BATCH_ENTRIES)


@dataclass(frozen=True, slots=True)
class StoredObject:
    """The content of one object. `contended`: more than one writer wanted its number; it is then stored as a
    batch.
    """

    entries: tuple[HashedEntry, ...]
    contended: bool = False

    @property
    def number(self) -> int:
        return self.entries[0].entry.number

    @property
    def data(self) -> bytes:
        return record_bytes(EntryBatch(entries=self.entries) if self.contended else self.entries[0])


class HeadHint(Record):
    """A hint at an account's last entry, in `head.json`.

    The hint may be behind the chain, so readers do not rely on it. A hint that is ahead of the chain shows
    that entries were removed from the chain's end.
    """

    model_config = ConfigDict(strict=True)

    number: int = Field(ge=1)
    sha256: Sha256


def hash_entry(entry: Entry) -> HashedEntry:
    return HashedEntry(entry=entry, sha256=digest(record_bytes(entry)))


def parse_object(data: bytes) -> StoredObject:
    """Parse an object of a chain.

    Raises:
        ValueError: the data holds no entries, an entry does not have its hash, or the bytes are not in
            canonical form.
    """
    is_batch = data.startswith(BATCH_PREFIX)
    entries = (
        EntryBatch.model_validate_json(data).entries if is_batch else (HashedEntry.model_validate_json(data),)
    )
    stored = StoredObject(entries, is_batch)
    if any(digest(record_bytes(hashed.entry)) != hashed.sha256 for hashed in stored.entries):
        raise ValueError("its content does not match its stored hash: it was changed")
    if stored.data != data:
        raise ValueError("its bytes are not the ones that were written: it was changed")
    return stored


def read_object(store: Store, account: str, number: int) -> StoredObject | None:
    """Return the object under this number, or None if there is none. Raises LedgerCorrupt."""
    try:
        stored = parse_object(store.fetch(store_layout.ledger_entry(account, number)).read_bytes())
    except NotInStore:
        return None
    except ValidationError as error:
        raise LedgerCorrupt(account, number, f"is not an entry: {validation_message(error)}") from error
    except ValueError as error:
        raise LedgerCorrupt(account, number, str(error)) from error
    return stored


def read_entry(store: Store, account: str, number: int) -> HashedEntry | None:
    """Return the entry of this number, also from a batch, or None if there is none. Raises LedgerCorrupt."""
    if stored := read_object(store, account, number):
        return stored.entries[0]
    first = max(1, number - MAX_BATCH_ENTRIES + 1)
    with ThreadPoolExecutor(PARALLEL_READS) as pool:
        for earlier in pool.map(partial(read_object, store, account), range(first, number)):
            for hashed in earlier.entries if earlier else ():
                if hashed.entry.number == number:
                    return hashed
    return None


def read_objects(store: Store, account: str, after: int, last: int) -> Iterator[StoredObject]:
    """Yield the objects that hold entries `after` + 1 to `last`, in order, reading several in parallel.

    On S3 each object takes a round trip. It ends at the first missing object. For at most `SEQUENTIAL_READS`
    entries it yields nothing: the caller reads those one after another. Raises LedgerCorrupt.
    """
    if last - after <= SEQUENTIAL_READS:
        return
    window = READ_WINDOW
    with ThreadPoolExecutor(PARALLEL_READS) as pool:
        while after < last:
            numbers = range(after + 1, min(after + window, last) + 1)
            objects = pool.map(partial(read_object, store, account), numbers)
            for number, stored in zip(numbers, objects, strict=True):
                if number <= after:
                    continue
                if stored is None:
                    return
                after += len(stored.entries)
                # In a chain of batches, most numbers have no object of their own.
                window = READ_WINDOW if len(stored.entries) == 1 else PARALLEL_READS
                yield stored


def read_head(store: Store, account: str) -> HeadHint | None:
    """Return the head hint, or None if there is none.

    Raises:
        LedgerCorrupt: the hint is damaged. The store writes objects whole, so a damaged one was changed
            later.
    """
    try:
        data = store.fetch(store_layout.ledger_head(account)).read_bytes()
        head = HeadHint.model_validate_json(data)
    except NotInStore:
        return None
    except ValidationError:
        head = None
    if head is None or record_bytes(head) != data:
        raise LedgerCorrupt(
            account,
            0,
            "its head.json was changed: verify the entries, then delete it (the next entry writes a new one)",
        )
    return head
