"""An account's chain, folded entry by entry: the one place that knows which entry may follow."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from functools import lru_cache

from pydantic import AwareDatetime

from shoestring.core.errors import BudgetExceeded, LedgerConflict, LedgerCorrupt
from shoestring.core.money import Usd, from_microusd
from shoestring.core.record import Record
from shoestring.spending.ledger.entry import NO_ENTRY, Entry, HashedEntry, StoredObject
from shoestring.spending.ledger.settled_index import RequestIndex, SettledReservation, SettledReservations


class Reservation(Record):
    """Money that is set aside and not settled yet. `why`: for what, as whoever reserved it wrote."""

    stage: str
    attempt: int
    amount_usd: Usd
    since: AwareDatetime
    child: str | None
    why: str


class StageBalance(Record):
    cap_usd: Usd | None
    spent_usd: Usd
    held_usd: Usd


class AccountState(Record):
    """An account after its last entry. `left_usd` is what may still be reserved; None, like `cap_usd`, is without limit.

    `cap_raised_usd` is how much its cap is above the one that it was opened with.
    """

    account: str
    parent: str | None
    campaign: str | None = None
    cap_usd: Usd | None
    spent_usd: Usd
    held_usd: Usd
    released_usd: Usd
    left_usd: Usd | None
    reservations: dict[str, Reservation]
    settled_usd: dict[str, Usd]
    stages: dict[str, StageBalance]
    closed: bool
    entries: int
    head_hash: str
    cap_raised_usd: Usd = Decimal(0)


@dataclass(frozen=True, slots=True)
class OpenReservation:
    """A hold inside the fold. `proof` is the hash of the entry that last raised it."""

    stage: str
    attempt: int
    microusd: int
    since: datetime
    child: str | None
    proof: str
    why: str


class Account:
    """The fold of one chain. Amounts are whole micro-dollars; `cap` None is no limit, and `cap_entry` the number of the entry that set it.
    `object_number`: the number of the object that holds the last entry.

    Every step is O(1), also of an account that began from a checkpoint: `requests` and `settled` unpack what is past when they are asked.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.number = self.object_number = 0
        self.head = NO_ENTRY
        self.parent: str | None = None
        self.campaign: str | None = None
        self.cap: int | None = None
        self.initial_cap_microusd: int | None = None
        self.cap_entry = 0
        self.closed = False
        self.spent = self.held = self.released = 0
        self.reservations: dict[str, OpenReservation] = {}
        self.settled = SettledReservations()
        self.stage_caps: dict[str, int] = {}
        self.stage_spent: Counter[str] = Counter()
        self.stage_held: Counter[str] = Counter()
        self.requests = RequestIndex()

    @property
    def parents(self) -> tuple[str, ...]:
        """The accounts that hold this one's cap: none of a month or a campaign."""
        return tuple(name for name in (self.parent, self.campaign) if name is not None)

    def copy(self) -> Account:
        """Another that is as this one is now, to try out what might come next."""
        other = copy.copy(self)
        other.reservations, other.settled, other.requests = (
            dict(self.reservations),
            self.settled.copy(),
            self.requests.copy(),
        )
        other.stage_spent, other.stage_held = self.stage_spent.copy(), self.stage_held.copy()
        return other

    def apply_object(self, written: StoredObject) -> None:
        """Take an object's entries in. Raises LedgerCorrupt."""
        for sealed in written.entries:
            self.apply(sealed)
        self.object_number = written.entries[0].entry.number

    def apply(self, sealed: HashedEntry) -> None:
        """Take the next entry in. Raises LedgerCorrupt: it does not follow, or breaks a rule; then nothing has changed."""
        entry, number = sealed.entry, self.number + 1
        if (entry.account, entry.number) != (self.name, number):
            raise LedgerCorrupt(
                self.name, number, f"is entry {entry.number} of {entry.account}: it was moved here"
            )
        if entry.prev != self.head:
            raise LedgerCorrupt(
                self.name,
                number,
                f"follows {entry.prev[:12]}..., but the entry before it has the hash {self.head[:12]}...",
            )
        if before := self.requests.entry_number(entry.id):
            raise LedgerCorrupt(
                self.name, number, f"has the id {entry.id!r} of entry {before}: it was doubled"
            )
        try:
            self.check(entry)
        except (BudgetExceeded, LedgerConflict) as error:
            raise LedgerCorrupt(self.name, number, f"could never have been written: {error}") from error
        self._take(entry, sealed.sha256)
        self.number, self.head = number, sealed.sha256
        self.requests.add(entry.id)

    def check(self, entry: Entry, keep: int = 0) -> None:
        """May `entry` come next, with `keep` micro-dollars left for what must follow it? The rules of `verify` are these.

        Raises:
            BudgetExceeded: it would pass the cap of the account or of the stage, or settle above what is held.
            LedgerConflict: the account or the hold is not in a state for it.
        """
        if entry.kind == "open" or (entry.kind == "close" and not self.number and entry.parent):
            self._check_first(entry)
        elif not self.number:
            raise self._conflict("has not been opened")
        elif entry.kind == "close" and entry.parent:
            raise self._conflict(
                "is open already: only an account that nobody opened is closed for its parent"
            )
        elif self.closed:
            raise self._conflict(
                f"is closed, and closing is final; it cannot {entry.kind} {entry.reservation}".rstrip()
            )
        elif entry.kind == "cap":
            self._check_cap(entry)
        elif entry.kind == "close":
            if self.reservations:
                raise self._conflict(
                    f"cannot be closed while it holds money for {', '.join(sorted(self.reservations))}: settle that first"
                )
        else:
            self._check_hold(entry, keep)

    def _check_first(self, entry: Entry) -> None:
        """An account begins by opening, or, if nobody did in time, by closing: then nobody can open it any more."""
        if self.number:
            raise self._conflict("is closed, and closing is final" if self.closed else "is open already")
        if entry.campaign is not None and entry.parent is None:
            raise self._conflict(f"is inside {entry.campaign}, so it has to be inside a month as well")
        for parent, proof in entry.reserved_in:
            if proof is None or (entry.kind == "open" and entry.cap_microusd is None):
                raise self._conflict(
                    f"is inside {parent}, so it needs a cap, and the entry that reserved it there"
                )

    def _check_cap(self, entry: Entry) -> None:
        """What lies inside another account can be given more by it; one that lies in none may have any cap that it keeps to already."""
        if entry.cap_microusd is None:
            raise self._conflict("cannot be given a cap without an amount")
        cap = from_microusd(entry.cap_microusd)
        if self.parent is None:
            if self.spent + self.held > entry.cap_microusd:
                raise self._conflict(
                    f"has spent and holds ${from_microusd(self.spent + self.held)}, so its cap cannot be ${cap}"
                )
            return
        if self.cap is None or entry.cap_microusd <= self.cap:
            raise self._conflict(
                f"has a cap of ${from_microusd(self.cap or 0)}, which can only be raised, not set to ${cap}"
            )
        if tuple(name for name, proof in entry.reserved_in if proof) != self.parents:
            raise self._conflict(
                f"is inside {' and '.join(self.parents)}, so a higher cap needs the entry that reserved it there"
            )

    def _check_hold(self, entry: Entry, keep: int) -> None:
        amount, name = entry.amount_microusd, entry.reservation
        if amount < 0 and entry.kind != "adjust":
            raise self._conflict(f"cannot {entry.kind} {name} by a negative amount")
        if entry.kind == "reserve":
            if entry.id != f"reserve/{name}" or not name:
                # Under this id, a name that was had before is a request that was made before.
                raise self._conflict(f"has had a hold {name!r} already: a new attempt needs a new name")
            if entry.child not in (None, name):
                raise self._conflict(
                    f"cannot hold {name} for the account {entry.child}: such a hold has the account's name"
                )
            self._check_fits(entry, entry.stage, keep)
            return
        held = self.settled.get(name) if entry.kind == "adjust" else self.reservations.get(name)
        if held is None:
            raise self._conflict(self._why_no_hold(entry))
        if held.child != entry.child or (held.child and entry.kind == "adjust"):
            raise self._conflict(
                f"holds {name} for the account of that name: it is settled when that account closes"
            )
        if entry.kind == "settle":
            if amount > held.amount_microusd:
                raise BudgetExceeded(
                    f"settling {name} of {self.name}",
                    *map(from_microusd, (amount, held.amount_microusd, held.amount_microusd)),
                )
            if held.child and entry.child_hash is None:
                raise self._conflict(f"settles {name} without the hash of that account's last entry")
        elif amount > 0:
            self._check_fits(entry, held.stage, keep)
        elif held.amount_microusd + amount < 0:
            raise self._conflict(
                f"{name} was settled at ${from_microusd(held.amount_microusd)}, which cannot be adjusted by ${from_microusd(amount)}"
            )

    def _why_no_hold(self, entry: Entry) -> str:
        if settled := self.settled.get(entry.reservation):
            return f"settled {entry.reservation} already, at ${from_microusd(settled.amount_microusd)}; it cannot {entry.kind} it"
        return f"has no {'settled' if entry.kind == 'adjust' else 'open'} hold {entry.reservation!r} to {entry.kind}"

    def _check_fits(self, entry: Entry, stage: str, keep: int) -> None:
        amount, what = entry.amount_microusd, f"{entry.kind} {entry.reservation}"
        if self.cap is not None and self.spent + self.held + amount + keep > self.cap:
            kept = f" (${from_microusd(keep)} kept for what must follow)" if keep else ""
            left = max(0, self.cap - self.spent - self.held - keep)
            raise BudgetExceeded(
                f"{what} of {self.name}{kept}", *map(from_microusd, (amount, left, self.cap))
            )
        cap, used = self.stage_caps.get(stage), self.stage_spent[stage] + self.stage_held[stage]
        if cap is not None and used + amount > cap:
            raise BudgetExceeded(
                f"{what} of stage {stage} in {self.name}", *map(from_microusd, (amount, cap - used, cap))
            )

    def _conflict(self, why: str) -> LedgerConflict:
        return LedgerConflict(self.name, why)

    def _take(self, entry: Entry, sha256: str) -> None:
        amount = entry.amount_microusd
        match entry.kind:
            case "open":
                self.cap, self.parent, self.stage_caps = entry.cap_microusd, entry.parent, entry.stage_caps
                self.initial_cap_microusd, self.campaign, self.cap_entry = self.cap, entry.campaign, entry.number
            case "cap":
                self.cap, self.cap_entry = entry.cap_microusd, entry.number
            case "close":
                self.closed, self.cap, self.parent = (
                    True,
                    self.cap if self.number else 0,
                    self.parent or entry.parent,
                )
            case "reserve":
                self.reservations[entry.reservation] = OpenReservation(
                    entry.stage, entry.attempt, amount, entry.at, entry.child, sha256, entry.reason
                )
                self._move(entry.stage, held=amount)
            case "extend":
                held = self.reservations[entry.reservation]
                self.reservations[entry.reservation] = replace(held, amount_microusd=held.amount_microusd + amount, entry_hash=sha256)
                self._move(held.stage, held=amount)
            case "settle":
                held = self.reservations.pop(entry.reservation)
                self.settled.put(
                    entry.reservation, SettledReservation(held.stage, held.attempt, amount, held.child, held.amount_microusd - amount)
                )
                self._move(held.stage, held=-held.amount_microusd, spent=amount)
                self.released += held.amount_microusd - amount
            case "adjust":
                settled = self.settled.get(entry.reservation)
                assert settled is not None
                self.settled.put(entry.reservation, replace(settled, microusd=settled.amount_microusd + amount))
                self._move(settled.stage, spent=amount)

    def _move(self, stage: str, *, held: int = 0, spent: int = 0) -> None:
        self.held += held
        self.spent += spent
        self.stage_held[stage] += held
        self.stage_spent[stage] += spent

    def state(self) -> AccountState:
        stages = sorted(
            filter(None, self.stage_caps.keys() | self.stage_spent.keys() | self.stage_held.keys())
        )
        # Of amounts that are whole already: whoever asks at each step does not pay for checking them.
        return AccountState.model_construct(
            account=self.name,
            parent=self.parent,
            campaign=self.campaign,
            cap_usd=_usd_or_none(self.cap),
            spent_usd=from_microusd(self.spent),
            held_usd=from_microusd(self.held),
            released_usd=from_microusd(self.released),
            left_usd=None if self.cap is None else from_microusd(self.cap - self.spent - self.held),
            reservations={name: _public_reservation(held) for name, held in sorted(self.reservations.items())},
            settled_usd={
                name: from_microusd(held.amount_microusd) for name, held in sorted(self.settled.all().items())
            },
            stages={name: self._stage(name) for name in stages},
            closed=self.closed,
            entries=self.number,
            head_hash=self.head,
            cap_raised_usd=from_microusd(max(0, (self.cap or 0) - (self.initial_cap_microusd or 0)) if self.parents else 0),
        )

    def _stage(self, name: str) -> StageBalance:
        return StageBalance.model_construct(
            cap_usd=_usd_or_none(self.stage_caps.get(name)),
            spent_usd=from_microusd(self.stage_spent[name]),
            held_usd=from_microusd(self.stage_held[name]),
        )


def _usd_or_none(microusd: int | None) -> Usd | None:
    return None if microusd is None else from_microusd(microusd)


@lru_cache(maxsize=4096)  # whoever asks at each step meets most holds as they were
def _public_reservation(held: OpenReservation) -> Reservation:
    amount_usd = from_microusd(held.amount_microusd)
    return Reservation.model_construct(
        stage=held.stage,
        attempt=held.attempt,
        amount_usd=amount_usd,
        since=held.reserved_at,
        child=held.child,
        why=held.decision_key,
    )
