"""The verbs of the ledger: one hash chain an account, one entry an object, written only where nothing is (`spending/books.py`).

An account may lie inside others, a run's inside its month's and its campaign's (`spending/parents.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from random import Random
from typing import Any

from shoestring.core.errors import LedgerConflict, UnknownName
from shoestring.core.interfaces import Clock, Store
from shoestring.core.money import microusd, usd
from shoestring.spending.ledger.account import AccountState
from shoestring.spending.ledger.chain_writer import SYSTEM_RANDOM, ChainWriter, check_account_name
from shoestring.spending.ledger.entry import NO_ENTRY, Entry, HashedEntry
from shoestring.spending.ledger.parent_accounts import ParentAccounts, is_root_account


class Ledger:
    """The verbs. Amounts in dollars; a float is refused (ValueError). One thread an object; any number of objects and processes a store.

    Every request has an id, and is the same entry however often it is asked; the same id with other content raises LedgerConflict.
    All verbs raise LedgerCorrupt for a chain that does not hold, StoreFull or StoreError when the entry could not be written, and
    LedgerConflict when the account is not in a state for it.
    """

    def __init__(self, store: Store, clock: Clock, pod_uid: str = "", dice: Random = SYSTEM_RANDOM) -> None:
        """`pod_uid`: who writes, as it will stand in the entries. `dice`: by which requests that are given no id are told apart, and
        writers who meet."""
        self._store, self._clock, self._pod_uid, self._dice = store, clock, pod_uid, dice
        self._writer = ChainWriter(store, clock, dice)
        self._parents = ParentAccounts(self._writer, clock, pod_uid)

    def open(
        self,
        account: str,
        cap_usd: Decimal | None,
        parent: str | None = None,
        stage_caps: Mapping[str, Decimal] | None = None,
        *,
        campaign: str | None = None,
        approval: str | None = None,
    ) -> HashedEntry:
        """Open an account, its cap reserved in `parent`, this month when None, and in the account of its campaign, if it is in one.

        Months and campaigns lie in nothing; a month is opened when it is missing. `approval`: the digest of what allows the cap.

        Raises:
            BudgetExceeded: a parent has not that much left. Then nothing is held in the other either, and the account's name is used up.
        """
        caps = {stage: _micro(cap) for stage, cap in sorted((stage_caps or {}).items())}
        cap = None if cap_usd is None else _micro(cap_usd)
        if self._writer.latest(account).number:
            return self._opened_before(account, cap, caps)
        if not is_root_account(account):
            parent = parent or f"{self._clock.now():%Y-%m}"
        proofs = self._parents.reserve_in_all(tuple(filter(None, (parent, campaign))), account, cap)
        above: dict[str, Any] = dict(zip(("parent_hash", "campaign_hash"), proofs, strict=False))
        above |= {"parent": parent, "campaign": campaign}
        content: dict[str, Any] = {"cap_microusd": cap, "stage_caps": caps, "approval": approval}
        return self._writer.append(self._draft(account, kind="open", id="open", **content, **above))

    def reserve(
        self,
        account: str,
        hold: str,
        stage: str,
        attempt: int,
        amount_usd: Decimal,
        keep_usd: Decimal = Decimal(0),
        why: str = "",
    ) -> HashedEntry:
        """Set money aside for one attempt at a stage, if `keep_usd` is then still left for what must follow.

        Raises:
            BudgetExceeded: past the account's cap, or the stage's.
        """
        about = {"hold": hold, "stage": stage, "attempt": attempt, "why": why}
        return self._writer.append(
            self._draft(account, kind="reserve", id=f"reserve/{hold}", amount=amount_usd, **about),
            _micro(keep_usd),
        )

    def extend(
        self, account: str, hold: str, amount_usd: Decimal, keep_usd: Decimal = Decimal(0), *, id: str = ""
    ) -> HashedEntry:
        """Set more aside for an open hold. With an `id` it may be asked again after a lost answer; each call without one is a new request.

        Raises:
            BudgetExceeded: past the account's cap, or the stage's.
        """
        draft = self._draft(
            account, kind="extend", id=f"extend/{hold}/{id or self._new_id()}", hold=hold, amount=amount_usd
        )
        return self._writer.append(draft, _micro(keep_usd))

    def settle(self, account: str, hold: str, actual_usd: Decimal, why: str = "") -> HashedEntry:
        """Turn a hold into what was really spent; the same entry releases the rest.

        Raises:
            BudgetExceeded: more than is held.
        """
        return self._writer.append(
            self._draft(account, kind="settle", id=f"settle/{hold}", hold=hold, amount=actual_usd, why=why)
        )

    def adjust(self, account: str, hold: str, delta_usd: Decimal, why: str, *, id: str = "") -> HashedEntry:
        """Correct a settled hold, up or down. With an `id` it may be asked again; each call without one is a new request.

        Raises:
            BudgetExceeded: past the account's cap, or the stage's.
        """
        return self._writer.append(
            self._draft(
                account,
                kind="adjust",
                id=f"adjust/{hold}/{id or self._new_id()}",
                hold=hold,
                amount=delta_usd,
                why=why,
            )
        )

    def set_cap(self, account: str, cap_usd: Decimal, approval: str | None = None) -> HashedEntry:
        """Give an account more money, out of its parents'; one that lies in nothing, any cap that it keeps to already.

        `approval`: the digest of what allows it.

        Raises:
            BudgetExceeded: a parent has not that much left.
        """
        cap, here = _micro(cap_usd), self._writer.latest(account)
        if not here.parents and here.number and here.cap == cap:
            return self._writer.entry(account, here.cap_entry)
        # A cap that may also come down again is asked for by the one before it.
        request = f"cap/{cap}" if here.parents else f"cap/{here.cap_entry}/{cap}"
        if before := here.requests.entry_number(request):
            return self._writer.entry(account, before)
        above: dict[str, Any] = {
            "parent": here.parent,
            "parent_hash": here.parent and NO_ENTRY,
            "approval": approval,
        }
        above |= {"campaign": here.campaign, "campaign_hash": here.campaign and NO_ENTRY}
        draft = self._draft(account, kind="cap", id=request, cap_microusd=cap, **above)
        here.check(draft)
        proofs = dict(
            zip(("parent_hash", "campaign_hash"), self._parents.reserve_at_least(account, cap), strict=False)
        )
        return self._writer.append(draft.model_copy(update=proofs))

    def ensure_cap(self, account: str, cap_usd: Decimal) -> None:
        """Let the cap of an account that lies in nothing be this: opened where there is none, left alone where it is so already.

        It costs what one entry costs, however long the account is: unlike `state`, it looks at nothing that is settled.
        """
        here = self._writer.latest(account)
        if not here.number:
            self.open(account, cap_usd)
        elif here.cap != _micro(cap_usd):
            self.set_cap(account, cap_usd)

    def close(self, account: str) -> HashedEntry:
        """End an account and give its parents back what was not spent. Final: close only what is done.

        Raises:
            LedgerConflict: it still holds money.
        """
        here = self._writer.latest(account)
        sealed = (
            self._writer.entry(account, here.number)
            if here.closed
            else self._writer.append(self._draft(account, kind="close", id="close"))
        )
        for parent in here.parents:
            self._parents.settle(parent, account)
        return sealed

    def state(self, account: str) -> AccountState:
        """The account as it is now. Raises UnknownName."""
        folded = self._writer.latest(account)
        if not folded.number:
            raise UnknownName("account", account, account_names(self._store))
        return folded.state()

    def repair_parent(self, parent: str) -> list[str]:
        """Mend in a month or a campaign what crashed between two accounts; says what it did."""
        return self._parents.sweep(parent)

    def _opened_before(self, account: str, cap: int | None, caps: dict[str, int]) -> HashedEntry:
        first = self._writer.entry(account, 1)
        if first.entry.kind != "open":
            raise LedgerConflict(
                account, "was closed because nobody had opened it in time: go on under a new name"
            )
        if (first.entry.cap_microusd, first.entry.stage_caps) != (cap, caps):
            raise LedgerConflict(account, "is open with another cap: set_cap gives it more")
        return first

    def _new_id(self) -> str:
        return f"{self._dice.getrandbits(128):032x}"

    def _draft(self, account: str, *, amount: Decimal | None = None, **content: Any) -> Entry:
        """An entry without its place in the chain. What a hold's entry is about stands in the entry that reserved it."""
        if amount is not None:
            content["amount_microusd"] = _micro(amount)
        if (hold := content.get("hold")) and content["kind"] != "reserve":
            known = self._writer.known(account)
            if hold not in known.reservations:
                known = self._writer.latest(account)
            about = known.reservations.get(hold) or known.settled.get(hold)
            content |= {"stage": about.stage, "attempt": about.attempt} if about else {}
        return self._parents.draft(check_account_name(account), **content)


def account_names(store: Store) -> list[str]:
    """Names of the accounts in a store, sorted."""
    return sorted({key.split("/")[1] for key in store.list("ledger/") if key.count("/") == 2})


def _micro(amount_usd: Decimal) -> int:
    return microusd(usd(amount_usd))
