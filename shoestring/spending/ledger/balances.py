"""The balances and reservations of one account, updated entry by entry. Amounts are whole micro-dollars."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Self

from shoestring.core.attempt_id import declared_stage
from shoestring.spending.ledger.entry import NO_ENTRY, Entry, HashedEntry
from shoestring.spending.ledger.settled_index import RequestIndex, SettledReservation, SettledReservations


@dataclass(frozen=True, slots=True)
class OpenReservation:
    """A reservation that is not settled. `entry_hash` is the hash of the entry that last raised it."""

    stage: str
    attempt: int
    amount_microusd: int
    reserved_at: datetime
    child: str | None
    entry_hash: str
    decision_key: str


class Balances:
    """The sums over the entries of one account.

    `cap_microusd` None means no limit. `cap_entry` is the number of the entry that set the cap, and
    `object_number` the number of the object that holds the last entry. The dicts by stage are in
    micro-dollars; all items of a loop are one stage. `overruns` is what settled reservations cost beyond what
    was left, in micro-dollars.

    Each update is O(1), also after a restore from a checkpoint: `requests` and `settled` unpack their history
    when it is needed.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.number = self.object_number = 0
        self.head = NO_ENTRY
        self.parent: str | None = None
        self.campaign: str | None = None
        self.cap_microusd: int | None = None
        self.initial_cap_microusd: int | None = None
        self.cap_entry = 0
        self.closed = False
        self.spent_microusd = self.held_microusd = self.released_microusd = 0
        self.reservations: dict[str, OpenReservation] = {}
        self.settled = SettledReservations()
        self.overruns: dict[str, int] = {}
        self.stage_caps: dict[str, int] = {}
        self.stage_spent: Counter[str] = Counter()
        self.stage_held: Counter[str] = Counter()
        self.requests = RequestIndex()

    @property
    def parents(self) -> tuple[str, ...]:
        """The accounts that reserve this one's cap. A month or a campaign has none."""
        return tuple(name for name in (self.parent, self.campaign) if name is not None)

    @property
    def unbooked_microusd(self) -> int:
        """The overruns that the account's cap has money for, and the stage's cap had not."""
        overrun, used = sum(self.overruns.values()), self.spent_microusd + self.held_microusd
        return overrun if self.cap_microusd is None else max(0, min(overrun, self.cap_microusd - used))

    def copy(self) -> Self:
        """Return an independent copy, to try out possible next entries."""
        other = copy.copy(self)
        other.reservations, other.settled = dict(self.reservations), self.settled.copy()
        other.requests, other.overruns = self.requests.copy(), dict(self.overruns)
        other.stage_spent, other.stage_held = self.stage_spent.copy(), self.stage_held.copy()
        return other

    def update(self, hashed: HashedEntry) -> None:
        """Add the next entry, which the caller has checked."""
        entry = hashed.entry
        match entry.kind:
            case "open":
                self._open(entry)
            case "cap":
                self.cap_microusd, self.cap_entry = entry.cap_microusd, entry.number
            case "close":
                self.closed, self.parent = True, self.parent or entry.parent
                self.cap_microusd = self.cap_microusd if self.number else 0
            case "reserve":
                self._reserve(entry, hashed.sha256)
            case "extend":
                self._extend(entry, hashed.sha256)
            case "settle":
                self._settle(entry)
            case "adjust":
                self._adjust(entry)
        self.number, self.head = self.number + 1, hashed.sha256
        self.requests.add(entry.id)

    def _open(self, entry: Entry) -> None:
        self.parent, self.campaign = entry.parent, entry.campaign
        self.cap_microusd = self.initial_cap_microusd = entry.cap_microusd
        self.cap_entry, self.stage_caps = entry.number, entry.stage_caps

    def _reserve(self, entry: Entry, sha256: str) -> None:
        amount = entry.amount_microusd
        self.reservations[entry.reservation] = OpenReservation(
            entry.stage, entry.attempt, amount, entry.at, entry.child, sha256, entry.decision_key
        )
        self._add(entry.stage, held=amount)

    def _extend(self, entry: Entry, sha256: str) -> None:
        open_, amount = self.reservations[entry.reservation], entry.amount_microusd
        self.reservations[entry.reservation] = replace(
            open_, amount_microusd=open_.amount_microusd + amount, entry_hash=sha256
        )
        self._add(open_.stage, held=amount)

    def _settle(self, entry: Entry) -> None:
        open_, amount = self.reservations.pop(entry.reservation), entry.amount_microusd
        released = open_.amount_microusd - amount
        self.settled.put(
            entry.reservation, SettledReservation(open_.stage, open_.attempt, amount, open_.child, released)
        )
        self._add(open_.stage, held=-open_.amount_microusd, spent=amount)
        self.released_microusd += released

    def _adjust(self, entry: Entry) -> None:
        settled, amount = self.settled.get(entry.reservation), entry.amount_microusd
        assert settled is not None
        self.settled.put(
            entry.reservation, replace(settled, amount_microusd=settled.amount_microusd + amount)
        )
        self._add(settled.stage, spent=amount)
        if entry.overrun_microusd:
            left = self.overruns.pop(entry.reservation, 0) + entry.overrun_microusd
            self.overruns |= {entry.reservation: left} if left else {}

    def _add(self, stage: str, *, held: int = 0, spent: int = 0) -> None:
        name = declared_stage(stage)
        self.held_microusd += held
        self.spent_microusd += spent
        self.stage_held[name] += held
        self.stage_spent[name] += spent
