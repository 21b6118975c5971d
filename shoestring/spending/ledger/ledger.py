"""The operations of the ledger.

Each account has one hash chain. An entry is written only where none exists (`chain_writer.py`). An account
can be inside others: a run's account inside its month's and its campaign's (`parent_accounts.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from decimal import Decimal
from random import Random
from types import MappingProxyType
from typing import Any

from shoestring.core import store_layout
from shoestring.core.errors import LedgerConflict, UnknownName
from shoestring.core.interfaces import Clock, Store
from shoestring.core.money import microusd, usd
from shoestring.spending.approvals import approval_fault
from shoestring.spending.ledger.account import Account, AccountState, KnownAccounts
from shoestring.spending.ledger.chain_writer import (
    SYSTEM_RANDOM,
    ChainWriter,
    check_account_name,
)
from shoestring.spending.ledger.entry import NO_ENTRY, Entry, HashedEntry
from shoestring.spending.ledger.parent_accounts import ParentAccounts, is_root_account
from shoestring.spending.ledger.rules import check_limit

NO_RECORDS: Mapping[str, str] = MappingProxyType({})


class Ledger:
    """Reads and writes the accounts of a store. Amounts are in dollars; a float is refused (ValueError).

    One thread uses an object; any number of objects and processes use a store. Each request has an id, and
    gives the same entry however often it is made. The same id with other content raises LedgerConflict.

    All operations raise LedgerCorrupt for a damaged chain, StoreFull or StoreError when the entry could not
    be written, and LedgerConflict when the account is not in a state for the request.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        writer: str = "",
        rng: Random = SYSTEM_RANDOM,
        known: KnownAccounts | None = None,
    ) -> None:
        """`writer` is the pod or process that entries name as their writer.

        `rng` makes the ids of requests that are given none, and the pauses of writers that collide. `known`:
        what this process has read of the store's accounts; None: this ledger reads them itself.
        """
        self._store, self._clock, self._rng = store, clock, rng
        self._chains = ChainWriter(store, clock, rng, known)
        self._parents = ParentAccounts(self._chains, clock, writer)

    def open(
        self,
        account: str,
        cap_usd: Decimal | None,
        parent: str | None = None,
        stage_caps: Mapping[str, Decimal] | None = None,
        *,
        campaign: str | None = None,
        approval: str | None = None,
        approve_above_usd: Decimal | None = None,
    ) -> HashedEntry:
        """Open an account.

        Its cap is reserved in `parent` (None: the current month) and, if given, in the account `campaign`.
        Accounts of months and campaigns have no parents. A month's account is opened when it does not exist.
        `approval` is the digest of the approval that allows the cap, which a cap above `approve_above_usd`
        needs (None: no cap needs one).

        Raises:
            BudgetExceeded: a parent has too little left. Nothing stays reserved in the other one, and the
                account's name cannot be used any more.
            LedgerConflict: the cap needs an approval, and none is named, or that does not allow it.
        """
        caps = {stage: _micro(cap) for stage, cap in sorted((stage_caps or {}).items())}
        cap = None if cap_usd is None else _micro(cap_usd)
        if self._chains.latest(account).number:
            return self._opened_before(account, cap, caps)
        limit = None if approve_above_usd is None else _micro(approve_above_usd)
        check_limit(account, cap, limit, approval)
        self._check_approval(account, cap, approval)
        if not is_root_account(account):
            parent = parent or f"{self._clock.now():%Y-%m}"
        hashes = self._parents.reserve_in_all(tuple(filter(None, (parent, campaign))), account, cap)
        parents: dict[str, Any] = {"parent": parent, "campaign": campaign}
        parents |= dict(zip(("parent_hash", "campaign_hash"), hashes, strict=False))
        content: dict[str, Any] = {"cap_microusd": cap, "stage_caps": caps, "approval": approval}
        content["approve_above_microusd"] = limit
        return self._chains.append(self._draft(account, kind="open", id="open", **content, **parents))

    def reserve(
        self,
        account: str,
        reservation: str,
        stage: str,
        attempt: int,
        amount_usd: Decimal,
        min_left_usd: Decimal = Decimal(0),
        decision_key: str = "",
    ) -> HashedEntry:
        """Reserve money for one attempt at a stage, if `min_left_usd` is still free after it, for later
        stages.

        Raises:
            BudgetExceeded: the cap of the account or of the stage would be exceeded.
        """
        about = {"reservation": reservation, "stage": stage, "attempt": attempt, "decision_key": decision_key}
        draft = self._draft(account, kind="reserve", id=f"reserve/{reservation}", amount=amount_usd, **about)
        return self._chains.append(draft, _micro(min_left_usd))

    def extend(
        self,
        account: str,
        reservation: str,
        amount_usd: Decimal,
        min_left_usd: Decimal = Decimal(0),
        *,
        id: str = "",
    ) -> HashedEntry:
        """Add `amount_usd` to an open reservation, if `min_left_usd` is still free after it.

        With an `id` the request can be repeated after a lost answer. Each call without one is a new request.

        Raises:
            BudgetExceeded: the cap of the account or of the stage would be exceeded.
        """
        request = f"extend/{reservation}/{id or self._new_id()}"
        draft = self._draft(account, kind="extend", id=request, reservation=reservation, amount=amount_usd)
        return self._chains.append(draft, _micro(min_left_usd))

    def settle(self, account: str, reservation: str, actual_usd: Decimal, reason: str = "") -> HashedEntry:
        """Settle a reservation at what was spent, and release the rest, in one entry.

        Raises:
            BudgetExceeded: `actual_usd` is more than the reserved amount.
        """
        about = {"id": f"settle/{reservation}", "reservation": reservation, "reason": reason}
        return self._chains.append(self._draft(account, kind="settle", amount=actual_usd, **about))

    def adjust(
        self,
        account: str,
        reservation: str,
        delta_usd: Decimal,
        reason: str,
        *,
        id: str = "",
        overrun_usd: Decimal = Decimal(0),
    ) -> HashedEntry:
        """Correct the amount of a settled reservation, up or down, and its overrun by `overrun_usd`.

        With an `id` the request can be repeated. Each call without one is a new request.

        Raises:
            BudgetExceeded: the cap of the account or of the stage would be exceeded.
        """
        request = f"adjust/{reservation}/{id or self._new_id()}"
        about = {"id": request, "reservation": reservation, "reason": reason}
        overrun = _micro(overrun_usd)
        draft = self._draft(account, kind="adjust", amount=delta_usd, overrun_microusd=overrun, **about)
        return self._chains.append(draft)

    def set_cap(self, account: str, cap_usd: Decimal, approval: str | None = None) -> HashedEntry:
        """Set the cap of an account.

        In an account with parents, the cap can only rise, by an approval, and the parents reserve the
        difference. An account without parents can have any cap that it has not exceeded. `approval` is the
        digest of the approval that allows the cap.

        Raises:
            BudgetExceeded: a parent has too little left.
            LedgerConflict: the approval does not exist, has expired, or allows less.
        """
        cap, current = _micro(cap_usd), self._chains.latest(account)
        if not current.parents and current.number and current.cap_microusd == cap:
            return self._chains.entry(account, current.cap_entry)
        # A root account's cap may fall and rise again, so its request ids also name the entry of the cap
        # before.
        request = f"cap/{cap}" if current.parents else f"cap/{current.cap_entry}/{cap}"
        if before := current.requests.entry_number(request):
            return self._chains.entry(account, before)
        self._check_approval(account, cap, approval)
        draft = self._cap_draft(account, current, cap, request, approval)
        current.check(draft)
        hashes = self._parents.reserve_at_least(account, cap)
        parent_hashes = dict(zip(("parent_hash", "campaign_hash"), hashes, strict=False))
        return self._chains.append(draft.model_copy(update=parent_hashes))

    def _check_approval(self, account: str, cap: int | None, approval: str | None) -> None:
        """Check an approval before the parents reserve for it: `verify` would find its lack too late."""
        if approval is None:
            return
        if fault := approval_fault(self._store, account, approval, cap or 0, self._clock.now()):
            raise LedgerConflict(account, f"is refused an entry that {fault}")

    def _cap_draft(
        self, account: str, current: Account, cap: int, request: str, approval: str | None
    ) -> Entry:
        parents: dict[str, Any] = {
            "parent": current.parent,
            "parent_hash": current.parent and NO_ENTRY,
            "campaign": current.campaign,
            "campaign_hash": current.campaign and NO_ENTRY,
        }
        return self._draft(account, kind="cap", id=request, cap_microusd=cap, approval=approval, **parents)

    def ensure_cap(self, account: str, cap_usd: Decimal) -> None:
        """Open an account that has no parents with this cap, or set its cap if it differs.

        It costs as much as one entry, however long the chain is: unlike `state`, it reads no settled
        reservations.
        """
        current = self._chains.latest(account)
        if not current.number:
            self.open(account, cap_usd)
        elif current.cap_microusd != _micro(cap_usd):
            self.set_cap(account, cap_usd)

    def close(self, account: str, records: Mapping[str, str] = NO_RECORDS) -> HashedEntry:
        """Close an account for good, and return to its parents what was not spent.

        `records` are the digests of the records of its run, by name (`audit/run_records.py`).

        Raises:
            LedgerConflict: the account has open reservations.
        """
        current = self._chains.latest(account)
        closing = (
            self._chains.entry(account, current.number)
            if current.closed
            else self._chains.append(
                self._draft(account, kind="close", id="close", records=dict(sorted(records.items())))
            )
        )
        for parent in current.parents:
            self._parents.settle(parent, account)
        return closing

    def state(self, account: str) -> AccountState:
        """Return the current state of the account. Raises UnknownName."""
        current = self._chains.latest(account)
        if not current.number:
            raise UnknownName("account", account, account_names(self._store))
        return current.state()

    def repair_parent(self, parent: str, ended: Collection[str] = ()) -> list[str]:
        """Settle what crashed writers left in the account of a month or a campaign. Returns a sentence for
        each.

        What an account that was never opened holds is settled once it is 10 minutes old; at once if the
        account is one of `ended`, whose writer is known to have ended.
        """
        return self._parents.repair(parent, ended)

    def _opened_before(self, account: str, cap: int | None, caps: dict[str, int]) -> HashedEntry:
        first = self._chains.entry(account, 1)
        if first.entry.kind != "open":
            raise LedgerConflict(
                account, "was closed because it was not opened in time: continue under a new name"
            )
        if (first.entry.cap_microusd, first.entry.stage_caps) != (cap, caps):
            raise LedgerConflict(account, "is open with another cap: set_cap raises it")
        return first

    def _new_id(self) -> str:
        return f"{self._rng.getrandbits(128):032x}"

    def _draft(self, account: str, *, amount: Decimal | None = None, **content: Any) -> Entry:
        """Return an entry without its position. Stage and attempt are taken from the entry that reserved the
        money.
        """
        if amount is not None:
            content["amount_microusd"] = _micro(amount)
        if (name := content.get("reservation")) and content["kind"] != "reserve":
            current = self._chains.cached(account)
            if name not in current.reservations:
                current = self._chains.latest(account)
            found = current.reservations.get(name) or current.settled.get(name)
            content |= {"stage": found.stage, "attempt": found.attempt} if found else {}
        return self._parents.draft(check_account_name(account), **content)


def account_names(store: Store) -> list[str]:
    """Return the names of the accounts in a store, sorted."""
    return sorted({key.split("/")[1] for key in store.list(store_layout.LEDGER) if key.count("/") == 2})


def _micro(amount_usd: Decimal) -> int:
    return microusd(usd(amount_usd))
