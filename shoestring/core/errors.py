"""Every error, named for what the reader must do, holding the numbers.

ShoestringError                 exit code 1; the message is the whole story
├── UsageError                  exit code 2: the command or a file that a person wrote is wrong
│   ├── WorldError              the world file
│   ├── RecipeError             the recipe, or the data it names
│   └── UnknownName             a stage, recipe, pool or run that does not exist
├── Refused                     nothing was started: it would not fit
│   ├── BudgetTooSmall          holds the smallest budget that would work
│   ├── ApprovalNeeded          somebody with a name has to say yes first
│   ├── NotYet                  it would fit, and is to wait: holds until when
│   └── BudgetExceeded          the ledger's own no, at the moment of reserving
├── DataError                   the data cannot be used as it is: empty, truncated, a column missing
├── CorruptObject               an object's bytes are not the bytes its name promises
├── StoreError                  the store could not do it
│   ├── NotInStore              no such key
│   └── StoreFull               no space left
├── ClusterError                the cluster could not be asked
│   └── NotAllowed              the service account lacks a right: names it, and the manifest that grants it
├── LedgerCorrupt                a hash, a sequence or a balance does not hold: names the entry
├── LedgerConflict              asked of an account what it cannot do any more: read its state before asking again
├── StageFailed                 the stage's own code failed
└── StageStopped                stopped on purpose: budget, signal, or a parent that went away
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal


class ShoestringError(Exception):
    exit_code = 1


class UsageError(ShoestringError):
    exit_code = 2


class WorldError(UsageError):
    pass


class RecipeError(UsageError):
    pass


class UnknownName(UsageError):
    def __init__(self, kind: str, name: str, known: list[str]) -> None:
        super().__init__(f"there is no {kind} called {name!r}; there is: {', '.join(known) or 'none'}")


class Refused(ShoestringError):
    pass


class BudgetTooSmall(Refused):
    """Admission's no."""

    def __init__(self, budget_usd: Decimal, smallest_usd: Decimal, sentences: tuple[str, ...]) -> None:
        self.budget_usd, self.smallest_usd, self.sentences = budget_usd, smallest_usd, sentences
        why = "\n  ".join(sentences)
        super().__init__(
            f"a budget of ${budget_usd} is too small: ${smallest_usd} is the smallest that would work\n  {why}"
        )


class ApprovalNeeded(Refused):
    """`shoestring approve` is what it waits for. `why_not`: why an approval that there is does not do."""

    def __init__(self, run_id: str, budget_usd: Decimal, ceiling_usd: Decimal, why_not: str = "") -> None:
        self.run_id, self.budget_usd, self.ceiling_usd = run_id, budget_usd, ceiling_usd
        given = f" ({why_not})" if why_not else ""
        above = (
            f"its budget of ${budget_usd} is above the ${ceiling_usd} that a run may have without one{given}"
        )
        super().__init__(
            f"{run_id} waits for an approval: {above}\n"
            f"  shoestring approve {run_id} --by NAME\n"
            f"  shoestring run --resume {run_id}     (on a cluster: let its engine try the run again)"
        )


class NotYet(Refused):
    """A run that starts later by what its policy says. Trying again then helps; `urgently`: so does trying again as urgent."""

    def __init__(self, sentence: str, until: datetime, *, urgently: bool = False) -> None:
        self.sentence, self.until = sentence, until
        todo = (
            "start it then, have it wait (--wait), or give it --priority high"
            if urgently
            else "start it then, or have it wait (--wait)"
        )
        super().__init__(f"{sentence}; {todo}")


class BudgetExceeded(Refused):
    """The ledger's no. Amounts in dollars."""

    def __init__(self, what: str, asked_usd: Decimal, left_usd: Decimal, cap_usd: Decimal) -> None:
        self.asked_usd, self.left_usd, self.cap_usd = asked_usd, left_usd, cap_usd
        super().__init__(f"{what}: ${asked_usd} asked, ${left_usd} left of ${cap_usd}")


class DataError(ShoestringError):
    pass


class CorruptObject(ShoestringError):
    def __init__(self, key: str, found_sha256: str) -> None:
        self.key = key
        super().__init__(
            f"{key} holds other bytes than its name says (sha256 {found_sha256[:12]}...): it will be made again when it is needed"
        )


class StoreError(ShoestringError):
    pass


class NotInStore(StoreError):
    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"there is no {key} in the store")


class StoreFull(StoreError):
    pass


class ClusterError(ShoestringError):
    pass


class NotAllowed(ClusterError):
    def __init__(self, right: str, said: str) -> None:
        self.right = right
        super().__init__(
            f"the cluster does not let this service account {right} ({said}): see manifests/base/accounts.yaml"
        )


class LedgerCorrupt(ShoestringError):
    """Raised by whoever reads a chain that does not hold. Number 0: it is not about one entry."""

    def __init__(self, account: str, number: int, why: str) -> None:
        self.account, self.number, self.why = account, number, why
        super().__init__(f"ledger/{account}{f'/{number:08d}.json' if number else ''}: {why}")


class LedgerConflict(ShoestringError):
    """Closed, settled, not opened, or the same id with other content. Trying again does not help."""

    def __init__(self, account: str, why: str) -> None:
        self.account, self.why = account, why
        super().__init__(f"account {account}: {why}")


class StageFailed(ShoestringError):
    pass


class StageStopped(ShoestringError):
    """`cause`: of the attempt's end, as receipts say it."""

    def __init__(self, message: str, cause: str = "told-to-stop") -> None:
        super().__init__(message)
        self.cause = cause
