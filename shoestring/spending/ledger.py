"""The books: one hash chain an account, one entry an object, written only where nothing is.

A writer puts its entry under the next number, if nobody else did; whoever loses reads what came in between, checks the caps again and
takes the number after. So the caps hold among writers that know nothing of each other, and no lock is left behind by one that dies.

An account may lie inside another (a run's inside a month's): its cap is a hold in its parent, opened before it and settled when it
closes. A writer that dies between the two leaves the parent's half, which asking again, or `sweep_parent`, mends.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from typing import Any

from shoestring.errors import LedgerBroken, LedgerConflict, StoreError, UnknownName, UsageError
from shoestring.model import record
from shoestring.money import from_microusd, microusd, usd
from shoestring.seams import Clock, Store
from shoestring.spending.account import Account, AccountState, Held
from shoestring.spending.entry import (
    ACCOUNT_PATTERN,
    NO_ENTRY,
    Entry,
    Head,
    Sealed,
    entry_key,
    head_key,
    read_entries,
    read_entry,
    read_head,
    seal,
)

MONTH = re.compile(r"\d{4}-\d{2}")
# How old a parent's hold must be before nobody is still about to open its child; opening takes two writes.
LEASE_S = 600
# A store may show a new object late (NFS remembers for up to 30 s that a file was not there): how long to look again for the
# entry that took our number.
LATE_S, LOOK_EVERY_S = 60.0, 0.05


class Ledger:
    """The verbs. Amounts in dollars; a float is refused (ValueError). One thread an object; any number of objects and processes a store.

    Every request has an id, and is the same entry however often it is asked; the same id with other content raises LedgerConflict.
    All verbs raise LedgerBroken for a chain that does not hold, StoreFull or StoreError when the entry could not be written, and
    LedgerConflict when the account is not in a state for it.
    """

    def __init__(self, store: Store, clock: Clock, pod_uid: str = "") -> None:
        """`pod_uid`: who writes, as it will stand in the entries."""
        self._store, self._clock, self._pod_uid = store, clock, pod_uid
        self._accounts: dict[str, Account] = {}

    def open(
        self, account: str, cap_usd: Decimal | None, parent: str | None = None, stage_caps: Mapping[str, Decimal] | None = None
    ) -> Sealed:
        """Open an account, its cap reserved in `parent`: this month when None. A month is inside nothing, and is opened when it is missing.

        Raises:
            BudgetExceeded: the parent has not that much left.
        """
        caps = {stage: _micro(cap) for stage, cap in sorted((stage_caps or {}).items())}
        cap = None if cap_usd is None else _micro(cap_usd)
        if self._fold(account).number:
            return self._opened_before(account, cap, caps)
        if not MONTH.fullmatch(account):
            parent = parent or f"{self._clock.now():%Y-%m}"
        return self._append(
            self._draft(
                account,
                kind="open",
                id="open",
                cap_microusd=cap,
                stage_caps=caps,
                parent=parent,
                parent_hash=None if parent is None else self._reserve_in(parent, account, cap),
            )
        )

    def reserve(
        self, account: str, hold: str, stage: str, attempt: int, amount_usd: Decimal, keep_usd: Decimal = Decimal(0), why: str = ""
    ) -> Sealed:
        """Set money aside for one attempt at a stage, if `keep_usd` is then still left for what must follow.

        Raises:
            BudgetExceeded: past the account's cap, or the stage's.
        """
        about = {"hold": hold, "stage": stage, "attempt": attempt, "why": why}
        return self._append(self._draft(account, kind="reserve", id=f"reserve/{hold}", amount=amount_usd, **about), _micro(keep_usd))

    def extend(self, account: str, hold: str, amount_usd: Decimal, keep_usd: Decimal = Decimal(0), *, id: str = "") -> Sealed:
        """Set more aside for an open hold. With an `id` it may be asked again after a lost answer; each call without one is a new request.

        Raises:
            BudgetExceeded: past the account's cap, or the stage's.
        """
        draft = self._draft(account, kind="extend", id=f"extend/{hold}/{id or uuid.uuid4().hex}", hold=hold, amount=amount_usd)
        return self._append(draft, _micro(keep_usd))

    def settle(self, account: str, hold: str, actual_usd: Decimal, why: str = "") -> Sealed:
        """Turn a hold into what was really spent; the same entry releases the rest.

        Raises:
            BudgetExceeded: more than is held.
        """
        return self._append(self._draft(account, kind="settle", id=f"settle/{hold}", hold=hold, amount=actual_usd, why=why))

    def adjust(self, account: str, hold: str, delta_usd: Decimal, why: str, *, id: str = "") -> Sealed:
        """Correct a settled hold, up or down. With an `id` it may be asked again; each call without one is a new request.

        Raises:
            BudgetExceeded: past the account's cap, or the stage's.
        """
        return self._append(
            self._draft(account, kind="adjust", id=f"adjust/{hold}/{id or uuid.uuid4().hex}", hold=hold, amount=delta_usd, why=why)
        )

    def set_cap(self, account: str, cap_usd: Decimal) -> Sealed:
        """Give an account more money, out of its parent's; a month, which lies in nothing, any cap that it keeps to already.

        Raises:
            BudgetExceeded: the parent has not that much left.
        """
        cap, here = _micro(cap_usd), self._fold(account)
        if here.parent is None and here.number and here.cap == cap:
            return self._entry(account, here.capped_by)
        # A cap that may also come down again is asked for by the one before it.
        request = f"cap/{cap}" if here.parent else f"cap/{here.capped_by}/{cap}"
        draft = self._draft(account, kind="cap", id=request, cap_microusd=cap, parent=here.parent, parent_hash=here.parent and NO_ENTRY)
        if before := here.numbers.get(draft.id):
            return self._entry(account, before)
        here.check(draft)
        proof = None if here.parent is None else self._hold_at_least(here.parent, account, cap)
        return self._append(draft.model_copy(update={"parent_hash": proof}))

    def close(self, account: str) -> Sealed:
        """End an account and give its parent back what was not spent. Final: nothing is ever appended after it, so close only what is done.

        Raises:
            LedgerConflict: it still holds money.
        """
        here = self._fold(account)
        sealed = self._entry(account, here.number) if here.closed else self._append(self._draft(account, kind="close", id="close"))
        if here.parent is not None:
            self._settle_child(here.parent, account)
        return sealed

    def state(self, account: str) -> AccountState:
        """The account as it is now. Raises UnknownName."""
        folded = self._fold(account)
        if not folded.number:
            raise UnknownName("account", account, accounts(self._store))
        return folded.state()

    def sweep_parent(self, parent: str) -> list[str]:
        """Mend what crashed between two accounts; says what it did. Holds of accounts that are open are left alone."""
        said = []
        for name, held in list(self._fold(parent).holds.items()):
            try:
                child = self._fold(name) if held.child else None
            except LedgerBroken as error:
                said.append(f"{name} in {parent} could not be mended: {error}")
                continue
            if child is None or (child.parent == parent and not child.closed):
                continue
            if not child.number and not self._close_unopened(parent, name, held):
                continue
            spent = self._settle_child(parent, name).entry.amount_microusd
            said.append(f"{name} in {parent}: ${from_microusd(held.microusd)} held, settled at ${from_microusd(spent)}")
        return said

    def _close_unopened(self, parent: str, child: str, held: Held) -> bool:
        """Close what nobody opened within the lease, so that whoever reserved it, and wakes up late, no longer can."""
        if self._clock.now() - held.since < timedelta(seconds=LEASE_S):
            return False
        why = f"reserved in {parent}, and never opened"
        try:
            self._append(self._draft(child, kind="close", id="close", parent=parent, parent_hash=held.proof, why=why))
        except LedgerConflict:
            return False
        return True

    def _opened_before(self, account: str, cap: int | None, caps: dict[str, int]) -> Sealed:
        first = self._entry(account, 1)
        if first.entry.kind != "open":
            raise LedgerConflict(account, "was closed because nobody had opened it in time: go on under a new name")
        if (first.entry.cap_microusd, first.entry.stage_caps) != (cap, caps):
            raise LedgerConflict(account, "is open with another cap: set_cap gives it more")
        return first

    def _reserve_in(self, parent: str, child: str, cap: int | None) -> str:
        if cap is None:
            raise LedgerConflict(child, f"is inside {parent}, so it needs a cap")
        if MONTH.fullmatch(parent) and not self._fold(parent).number:
            self.open(parent, None)
        return self._append(self._draft(parent, kind="reserve", id=f"reserve/{child}", hold=child, child=child, amount_microusd=cap)).sha256

    def _hold_at_least(self, parent: str, child: str, cap: int) -> str:
        """The hash of the parent's entry by which the child's hold covers `cap`."""
        held = self._fold(parent).holds.get(child)
        if held is None:
            raise LedgerConflict(child, "was closed by somebody else just now")
        if held.microusd >= cap:
            return held.proof
        more = cap - held.microusd
        extend_id = f"extend/{child}/{cap}"
        return self._append(self._draft(parent, kind="extend", id=extend_id, hold=child, child=child, amount_microusd=more)).sha256

    def _settle_child(self, parent: str, child: str) -> Sealed:
        """Settle the parent's hold by the closed child; at nothing where the child was opened inside another parent after all."""
        over = self._fold(child)
        mine = over.parent == parent
        spent, proof = (over.spent, over.head) if mine else (0, self._entry(child, 1).sha256)
        draft = self._draft(parent, kind="settle", id=f"settle/{child}", hold=child, child=child, child_hash=proof, amount_microusd=spent)
        return self._append(draft)

    def _draft(self, account: str, *, amount: Decimal | None = None, **content: Any) -> Entry:
        """An entry without its place in the chain. What a hold's entry is about stands in the entry that reserved it."""
        if amount is not None:
            content["amount_microusd"] = _micro(amount)
        if content.get("hold") and content["kind"] != "reserve":
            folded = self._fold(account)
            about = folded.holds.get(content["hold"]) or folded.settled.get(content["hold"])
            content |= {"stage": about.stage, "attempt": about.attempt} if about else {}
        return Entry(account=_named(account), number=1, prev=NO_ENTRY, at=self._clock.now(), pod_uid=self._pod_uid, **content)

    def _append(self, draft: Entry, keep: int = 0) -> Sealed:
        """Write `draft` as the next entry of its account, once, whoever else is writing."""
        while True:
            account = self._fold(draft.account)
            if before := account.numbers.get(draft.id):
                return self._same(draft, self._entry(account.name, before))
            account.check(draft, keep)
            place = {"number": account.number + 1, "prev": account.head, "at": self._clock.now()}
            sealed = seal(draft.model_copy(update=place))
            if self._store.put(entry_key(account.name, sealed.entry.number), record(sealed), if_absent=True):
                account.apply(sealed)
                # A hint that could not be written is no reason to disown an entry that was.
                with suppress(StoreError):
                    self._store.put(head_key(account.name), record(Head(number=account.number, sha256=account.head)))
                return sealed
            self._wait_for(account)

    def _same(self, draft: Entry, sealed: Sealed) -> Sealed:
        place = {"number", "prev", "at", "pod_uid"}
        if draft.model_dump(exclude=place) != sealed.entry.model_dump(exclude=place):
            number = sealed.entry.number
            raise LedgerConflict(draft.account, f"has {draft.id!r} as entry {number} already, with other content: read its state first")
        return sealed

    def _wait_for(self, account: Account) -> None:
        """Until the entry that took our number can be read."""
        until_s = self._clock.monotonic_s() + LATE_S
        while read_entry(self._store, account.name, account.number + 1) is None:
            if self._clock.monotonic_s() > until_s:
                raise StoreError(f"the store says that {entry_key(account.name, account.number + 1)} is there, but cannot find it")
            self._clock.sleep(LOOK_EVERY_S)

    def _fold(self, name: str) -> Account:
        """The account with all entries that are there now; only those that are new are read."""
        account = self._accounts.get(_named(name))
        # Before the entries: a hint that is ahead of them afterwards is no race, but a tail that was cut off.
        hint = read_head(self._store, name) if account is None else None
        account = account or Account(name)
        for known in read_entries(self._store, name, hint.number if hint else 0):
            account.apply(known)
        while (sealed := read_entry(self._store, name, account.number + 1)) is not None:
            account.apply(sealed)
        if hint and hint.number > account.number:
            raise LedgerBroken(name, account.number + 1, f"is missing, and head.json knows of {hint.number} entries: the tail was cut off")
        self._accounts[name] = account
        return account

    def _entry(self, account: str, number: int) -> Sealed:
        sealed = read_entry(self._store, account, number)
        if sealed is None:
            raise LedgerBroken(account, number, "was there and is missing")
        return sealed


def accounts(store: Store) -> list[str]:
    """Names of the accounts in a store, sorted."""
    return sorted({key.split("/")[1] for key in store.list("ledger/") if key.count("/") == 2})


def _micro(amount_usd: Decimal) -> int:
    return microusd(usd(amount_usd))


def _named(account: str) -> str:
    if not re.fullmatch(ACCOUNT_PATTERN, account):
        raise UsageError(f"{account!r} cannot name an account: letters, digits, '.', '_' and '-', at most 128")
    return account
