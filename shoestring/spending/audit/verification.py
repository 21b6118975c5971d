"""The result of verifying a ledger: its accounts, its totals, and the work that crashed writers left."""

from __future__ import annotations

from collections.abc import Iterator

from shoestring.core.money import Usd, from_microusd
from shoestring.core.record import Record
from shoestring.spending.audit.export import LedgerExport
from shoestring.spending.ledger.account import Account, AccountState
from shoestring.spending.ledger.balances import OpenReservation
from shoestring.spending.ledger.chain import AccountChain
from shoestring.spending.ledger.settled_index import SettledReservation


class Verification(Record):
    """A ledger that was found correct.

    The totals count every dollar once, in the account where it is reserved for work, and not again in the
    parents. `unfinished` is what writers left between two accounts, or have yet to write;
    `Ledger.repair_parent` finishes it. `not_in_export` is what an export does not contain, and `not_compared`
    which records of runs the ledger holds no digests of.
    """

    accounts: tuple[AccountState, ...]
    entries: int
    cap_usd: Usd
    spent_usd: Usd
    held_usd: Usd
    released_usd: Usd
    unfinished: tuple[str, ...]
    not_in_export: tuple[str, ...]
    not_compared: tuple[str, ...]

    def as_text(self) -> str:
        """Return one line per account, then the totals."""
        total = (
            f"${self.cap_usd} in caps, ${self.spent_usd} spent, ${self.held_usd} held, "
            f"${self.released_usd} released"
        )
        return "\n".join(
            [
                *map(_account_line, self.accounts),
                *self.unfinished,
                *self.not_in_export,
                *self.not_compared,
                f"every hash, sequence and balance holds: {self.entries} entries, {total}",
            ]
        )


def _account_line(state: AccountState) -> str:
    cap = "no cap" if state.cap_usd is None else f"cap ${state.cap_usd}"
    return (
        f"{state.account}: {cap}, ${state.spent_usd} spent, ${state.held_usd} held, "
        f"${state.released_usd} released, {state.entries} entries, {'closed' if state.closed else 'open'}"
    )


def summarize(
    chains: dict[str, AccountChain], export: LedgerExport | None, not_compared: tuple[str, ...]
) -> Verification:
    """Return the verification of chains that were found correct."""
    notes = [note for chain in chains.values() for note in _open_ends(chain, chains, export)]
    accounts = [chain.account for chain in chains.values()]
    open_ = [each for account in accounts for each in account.reservations.values() if not each.child]
    settled = [each for account in accounts for each in account.settled.all().values() if not each.child]
    leaves = [
        account for account in accounts if not any(each.child for each in _all_reservations(account).values())
    ]
    return Verification(
        accounts=tuple(account.state() for account in accounts),
        entries=sum(account.number for account in accounts),
        cap_usd=from_microusd(sum(account.cap_microusd or 0 for account in leaves)),
        spent_usd=from_microusd(sum(each.amount_microusd for each in settled)),
        held_usd=from_microusd(sum(each.amount_microusd for each in open_)),
        released_usd=from_microusd(sum(each.released_microusd for each in settled)),
        unfinished=tuple(sentence for sentence, is_unfinished in notes if is_unfinished),
        not_in_export=tuple(sentence for sentence, is_unfinished in notes if not is_unfinished),
        not_compared=not_compared,
    )


def _open_ends(
    chain: AccountChain, chains: dict[str, AccountChain], export: LedgerExport | None
) -> Iterator[tuple[str, bool]]:
    """Yield a sentence for each child that is unfinished (True) or not in this export (False)."""
    account = chain.account
    for name, reservation in _all_reservations(account).items():
        amount = f"${from_microusd(reservation.amount_microusd)}"
        child = chains.get(name)
        if reservation.child is None:
            continue
        if child is None and export is not None:
            yield f"{name}, at {amount} in {account.name}, is not in this export", False
        elif name not in account.reservations:
            continue
        elif child is None:
            yield f"{name} has {amount} reserved in {account.name}, and is not opened yet", True
        elif account.name not in child.account.parents:
            parents = " and ".join(child.account.parents)
            yield (
                f"{name} was opened inside {parents} only, and {account.name} still holds {amount} for it",
                True,
            )
        elif child.account.closed:
            yield f"{name} is closed and not settled in {account.name} yet, which holds {amount} for it", True


def _all_reservations(account: Account) -> dict[str, OpenReservation | SettledReservation]:
    return {**account.settled.all(), **account.reservations}
