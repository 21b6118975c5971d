"""Every error, named for what its reader must do, with the numbers in it.

ShoestringError                 exit code 1; the message is complete
├── UsageError                  exit code 2: the command, or a file that a person wrote, is wrong
│   ├── WorldError              the world file
│   ├── RecipeError             the recipe, or the data it names
│   └── UnknownName             a stage, recipe, pool or run that does not exist
├── Refused                     nothing was started: it would not fit
│   ├── BudgetTooSmall          holds the smallest budget that is enough
│   ├── DeadlineTooShort        holds the smallest deadline that is enough, in seconds
│   ├── ApprovalNeeded          a person has to approve it first
│   ├── NotYet                  it fits, and starts later: holds the moment
│   └── BudgetExceeded          the ledger refused, at the moment of reserving
├── DataError                   the data cannot be used as it is: empty, truncated, a column missing
├── CorruptObject               an object's bytes do not match the digest in its name
├── StoreError                  the store failed, or the server of a source
│   ├── NotInStore              no such key
│   ├── StoreFull               no space left
│   └── SourceUnreachable       the server of a source does not answer: run again when it does
├── ClusterError                the cluster could not be read
│   └── NotAllowed              an account lacks a right: names it, and the role that grants it
├── LedgerCorrupt               a hash, a sequence or a balance is wrong: names the entry
├── LedgerConflict              the account is in a state that does not allow it: read the state, then decide
├── StageFailed                 the stage's own code failed
│   └── CommandFailed           a user's command ended with an exit code other than 0
└── StageStopped                stopped on purpose: budget, signal, or a parent process that ended
"""

from __future__ import annotations

import errno
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
        super().__init__(f"there is no {kind} called {name!r}; known: {', '.join(known) or 'none'}")


class Refused(ShoestringError):
    pass


class BudgetTooSmall(Refused):
    """Admission's refusal of a whole run, for money. `reasons`: the text of the refusal."""

    def __init__(self, budget_usd: Decimal, smallest_usd: Decimal, reasons: str) -> None:
        self.budget_usd, self.smallest_usd, self.reasons = budget_usd, smallest_usd, reasons
        super().__init__(reasons)


class DeadlineTooShort(Refused):
    """Admission's refusal of a whole run, for time. `reasons`: the text of the refusal."""

    def __init__(self, smallest_s: float, reasons: str) -> None:
        self.smallest_s, self.reasons = smallest_s, reasons
        super().__init__(reasons)


class ApprovalNeeded(Refused):
    """The run needs `shoestring approve`.

    `resume`: the command that starts it then. `reason`: why an approval that exists does not count.
    """

    def __init__(
        self, run_id: str, budget_usd: Decimal, ceiling_usd: Decimal, resume: str, reason: str = ""
    ) -> None:
        self.run_id, self.budget_usd, self.ceiling_usd = run_id, budget_usd, ceiling_usd
        given = f" ({reason})" if reason else ""
        above = f"its budget of ${budget_usd} is above the ${ceiling_usd} that needs no approval{given}"
        super().__init__(
            f"{run_id} needs an approval: {above}\n"
            f"  shoestring approve {run_id} --by NAME\n"
            f"  {resume}     (on a cluster: let the engine retry the run)"
        )


class NotYet(Refused):
    """The policy starts the run later; a retry at `until` is accepted.

    `urgently`: so is a retry with high priority now.
    """

    def __init__(self, sentence: str, until: datetime, *, urgently: bool = False) -> None:
        self.sentence, self.until, self.urgently = sentence, until, urgently
        options = "start it then, or let it wait (--wait)"
        if urgently:
            options = "start it then, let it wait (--wait), or give it --priority high"
        super().__init__(f"{sentence}; {options}")


class BudgetExceeded(Refused):
    """The ledger's refusal. Amounts in dollars."""

    def __init__(self, what: str, requested_usd: Decimal, left_usd: Decimal, cap_usd: Decimal) -> None:
        self.requested_usd, self.left_usd, self.cap_usd = requested_usd, left_usd, cap_usd
        super().__init__(f"{what}: ${requested_usd} requested, ${left_usd} left of ${cap_usd}")


class DataError(ShoestringError):
    pass


class CorruptObject(ShoestringError):
    def __init__(self, key: str, found_sha256: str) -> None:
        self.key = key
        super().__init__(
            f"{key} does not match its name (sha256 {found_sha256[:12]}...): "
            "Shoestring makes it again when a stage needs it"
        )


class StoreError(ShoestringError):
    pass


class NotInStore(StoreError):
    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"the store has no {key}")


NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What the system calls a full disk, a full quota, and a file larger than is allowed."""


class StoreFull(StoreError):
    pass


class SourceUnreachable(StoreError):
    pass


class ClusterError(ShoestringError):
    pass


class NotAllowed(ClusterError):
    pass


class LedgerCorrupt(ShoestringError):
    """A chain is inconsistent. Number 0: the reason concerns no single entry."""

    def __init__(self, account: str, number: int, reason: str) -> None:
        self.account, self.number, self.reason = account, number, reason
        super().__init__(f"ledger/{account}{f'/{number:08d}.json' if number else ''}: {reason}")


class LedgerConflict(ShoestringError):
    """The account is closed, or not open, or has the same id with other content. A retry does not help."""

    def __init__(self, account: str, reason: str) -> None:
        self.account, self.reason = account, reason
        super().__init__(f"account {account}: {reason}")


class StageFailed(ShoestringError):
    pass


class CommandFailed(StageFailed):
    """`code`: the exit code of the command, as a shell reports it."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class StageStopped(ShoestringError):
    """`cause`: the cause that the receipt of the attempt will name."""

    def __init__(self, message: str, cause: str = "stop-requested") -> None:
        super().__init__(message)
        self.cause = cause
