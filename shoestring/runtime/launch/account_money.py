"""The money that the account of a run can still pay, as its launcher knows it."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal

from shoestring.data.run_records import RunStart
from shoestring.runtime.records.overhead import overhead_reservation
from shoestring.runtime.settlement.running_pods import left_for
from shoestring.spending.ledger.account import AccountState


@dataclass(slots=True)
class AccountMoney:
    """The money of one start of a run, as far as the launcher has read the ledger.

    `state`: the account at the last read; None: it was not read yet. `paid_usd`: the most that was ever read
    of each settled reservation: no later record takes it back.
    """

    start: RunStart
    state: AccountState | None = None
    paid_usd: dict[str, Decimal] = field(default_factory=dict)

    def read(self, state: AccountState) -> None:
        self.state = state
        for name, amount_usd in state.settled_usd.items():
            self.paid_usd[name] = max(self.paid_usd.get(name, Decimal(0)), amount_usd)

    def most_usd(self, name: str, *, may_extend: bool) -> Decimal:
        """Return the most that an attempt may cost. `may_extend`: a supervisor can still ask for what is
        left.
        """
        state, known = self.state, {overhead_reservation(self.start): self.start.overhead_usd} | self.paid_usd
        held = {each: found.amount_usd for each, found in state.reservations.items()} if state else {}
        others = {*known, *held} - {name}
        cap_usd = self.start.budget_usd if state is None or state.cap_usd is None else state.cap_usd
        zero = Decimal(0)
        most_usd = cap_usd - sum((max(known.get(each, zero), held.get(each, zero)) for each in others), zero)
        if state is None or name not in held:
            return most_usd
        left_usd = left_for(state, state.reservations[name].stage) if may_extend else zero
        return most_usd if left_usd is None else min(most_usd, held[name] + left_usd)
