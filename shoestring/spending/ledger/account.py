"""One account: its state, computed from the entries of its chain."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from functools import lru_cache
from threading import Lock

from pydantic import AwareDatetime, Field

from shoestring.core.errors import BudgetExceeded, LedgerConflict, LedgerCorrupt
from shoestring.core.money import Usd, from_microusd
from shoestring.core.record import Record
from shoestring.spending.ledger.balances import Balances, OpenReservation
from shoestring.spending.ledger.entry import Entry, HashedEntry, StoredObject
from shoestring.spending.ledger.rules import check_entry


class Reservation(Record):
    """Money that is reserved for one attempt at a stage, or for a child account, and not settled yet.

    `decision_key` is the store key of the decision that the money is reserved for.
    """

    stage: str
    attempt: int
    amount_usd: Usd
    reserved_at: AwareDatetime
    child: str | None
    decision_key: str


class StageBalance(Record):
    """The money of one stage in an account. `cap_usd` None means no limit."""

    cap_usd: Usd | None
    spent_usd: Usd
    held_usd: Usd


class AccountState(Record):
    """An account after its last entry.

    `held_usd` is the sum of the open reservations. `left_usd` is what can still be reserved: the cap less
    what is spent or held, and less overruns. `cap_usd` and `left_usd` are None when there is no limit.
    `cap_raised_usd` is the cap minus the cap that the account was opened with.
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
    overruns_usd: dict[str, Usd] = Field(
        {},
        description="reservation -> what it cost beyond what the account had left; not in spent_usd",
    )

    @property
    def used_usd(self) -> Decimal:
        """The part of the cap that is spent or held, with overruns."""
        if self.cap_usd is None or self.left_usd is None:
            return self.spent_usd + self.held_usd
        return self.cap_usd - self.left_usd

    @property
    def overrun_usd(self) -> Decimal:
        """The sum of the overruns."""
        return sum(self.overruns_usd.values(), Decimal(0))


class Account(Balances):
    """The balances of an account, with the rules for the next entry (`rules.py`)."""

    def apply_object(self, stored: StoredObject) -> None:
        """Apply the entries of an object. Raises LedgerCorrupt."""
        for hashed in stored.entries:
            self.apply(hashed)
        self.object_number = stored.number

    def apply(self, hashed: HashedEntry) -> None:
        """Apply the next entry.

        Raises:
            LedgerCorrupt: it does not follow the last entry, or breaks a rule. Then the account is unchanged.
        """
        entry, number = hashed.entry, self.number + 1
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
                self.name, number, f"has the id {entry.id!r} of entry {before}: it was duplicated"
            )
        try:
            check_entry(self, entry)
        except (BudgetExceeded, LedgerConflict) as error:
            raise LedgerCorrupt(self.name, number, f"breaks a rule of the ledger: {error}") from error
        self.update(hashed)

    def check(self, entry: Entry, min_left_microusd: int = 0) -> None:
        """Check that `entry` may be written next (`rules.check_entry`).

        New reservations leave what was spent beyond the cap of a stage. Earlier versions counted that as
        free, so their entries are read without this rule. Raises BudgetExceeded, LedgerConflict.
        """
        unbooked_microusd = self.unbooked_microusd if entry.kind in ("reserve", "extend") else 0
        check_entry(self, entry, min_left_microusd, unbooked_microusd)

    def state(self) -> AccountState:
        """Return the account's state in dollars."""
        by_stage = self.stage_caps.keys() | self.stage_spent.keys() | self.stage_held.keys()
        cap, used = self.cap_microusd, self.spent_microusd + self.held_microusd + self.unbooked_microusd
        raised = max(0, (cap or 0) - (self.initial_cap_microusd or 0)) if self.parents else 0
        # model_construct: the amounts are whole already, and a caller may ask for the state at every step.
        return AccountState.model_construct(
            account=self.name,
            parent=self.parent,
            campaign=self.campaign,
            cap_usd=_usd_or_none(cap),
            spent_usd=from_microusd(self.spent_microusd),
            held_usd=from_microusd(self.held_microusd),
            released_usd=from_microusd(self.released_microusd),
            left_usd=None if cap is None else from_microusd(cap - used),
            reservations={
                name: _public_reservation(open_) for name, open_ in sorted(self.reservations.items())
            },
            settled_usd={
                name: from_microusd(settled.amount_microusd)
                for name, settled in sorted(self.settled.all().items())
            },
            stages={stage: self._stage(stage) for stage in sorted(filter(None, by_stage))},
            closed=self.closed,
            entries=self.number,
            head_hash=self.head,
            cap_raised_usd=from_microusd(raised),
            overruns_usd={name: from_microusd(amount) for name, amount in sorted(self.overruns.items())},
        )

    def _stage(self, stage: str) -> StageBalance:
        return StageBalance.model_construct(
            cap_usd=_usd_or_none(self.stage_caps.get(stage)),
            spent_usd=from_microusd(self.stage_spent[stage]),
            held_usd=from_microusd(self.stage_held[stage]),
        )


class KnownAccounts:
    """The accounts of one store as the writers of a process read them last, so that each reads only what is
    new. Threads may share it.

    Entries never change, and a number that is taken refuses a writer that knows too little.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._found: dict[str, tuple[Account, tuple[StoredObject, ...]]] = {}

    def later_than(self, name: str, number: int) -> tuple[Account, tuple[StoredObject, ...]] | None:
        """Return a copy of the account, and its newest objects; None: no writer has read more than `number`
        entries.
        """
        with self._lock:
            account, recent = self._found.get(name, (None, ()))
            return (account.copy(), recent) if account and account.number > number else None

    def keep(self, account: Account, recent: Iterable[StoredObject]) -> None:
        """Keep a copy of the account, if no writer has read as much of it."""
        with self._lock:
            before = self._found.get(account.name)
            if before is None or before[0].number < account.number:
                self._found[account.name] = account.copy(), tuple(recent)


def _usd_or_none(amount_microusd: int | None) -> Usd | None:
    return None if amount_microusd is None else from_microusd(amount_microusd)


@lru_cache(maxsize=4096)  # A caller that asks at every step finds most reservations unchanged.
def _public_reservation(open_: OpenReservation) -> Reservation:
    return Reservation.model_construct(
        stage=open_.stage,
        attempt=open_.attempt,
        amount_usd=from_microusd(open_.amount_microusd),
        reserved_at=open_.reserved_at,
        child=open_.child,
        decision_key=open_.decision_key,
    )
