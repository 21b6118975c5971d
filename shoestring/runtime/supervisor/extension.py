"""Extensions of a running stage's reservation: asked for in time, granted as far as the budget allows."""

from __future__ import annotations

from decimal import Decimal
from functools import partial

from shoestring.core.errors import BudgetExceeded, LedgerConflict, StoreError
from shoestring.core.money import usd
from shoestring.runtime.admission.extension_headroom import EXTENSION_SHARE
from shoestring.runtime.supervisor.attempt import Attempt
from shoestring.runtime.supervisor.background_io import ANSWER_TIMEOUT_S, ExtensionRequests
from shoestring.spending.ledger.ledger import Ledger

# A stage asks for an extension this long before its money ends, but with at most this share of its
# reservation left. So a store that is slow or briefly unreachable stops no stage, and few stages ask that
# would have ended in time.
EXTEND_AHEAD_S, EXTEND_AHEAD_SHARE = 10.0, Decimal("0.1")


def extend_or_stop(attempt: Attempt, ledger: Ledger, requests: ExtensionRequests) -> None:
    """Ask for an extension in time; stop the attempt when only the price of an answer and of the exit is
    left.

    An elastic stage was given all that it may have, and stops by itself.
    """
    if attempt.stop_reason:
        return
    if attempt.elastic:
        # It waits for no answer: the child stops by itself at the same limit.
        if attempt.spent_usd() + attempt.exit_usd >= attempt.reserved_usd:
            attempt.stop(f"its ${attempt.reserved_usd} are spent", "money")
        return
    due_usd = attempt.spent_usd() + attempt.exit_usd + attempt.price_usd(ANSWER_TIMEOUT_S)
    is_due = due_usd >= attempt.reserved_usd
    ahead_usd = min(attempt.price_usd(EXTEND_AHEAD_S), attempt.reserved_usd * EXTEND_AHEAD_SHARE)
    # Ahead of time it asks once. If that is refused, it goes on and asks again when the money is due: other
    # runs may have released some by then.
    if is_due or (due_usd + ahead_usd >= attempt.reserved_usd != attempt.extension_asked_at_usd):
        attempt.extension_asked_at_usd = attempt.reserved_usd
        min_usd = max(2 * attempt.exit_usd, due_usd - attempt.reserved_usd)
        more_usd = usd(max(attempt.choice.p95_usd * EXTENSION_SHARE, min_usd))
        requests.ask(partial(extend_reservation, attempt, ledger, more_usd, min_usd))
    take_extension(attempt, requests, is_due)


def extend_reservation(attempt: Attempt, ledger: Ledger, more_usd: Decimal, min_usd: Decimal) -> Decimal:
    """Extend the reservation by `more_usd`, or by what is left if that is less but at least `min_usd`; return
    the amount.

    Raises:
        BudgetExceeded: less than `min_usd` is left.
    """
    account, name, keep_usd = attempt.run.start.account, str(attempt.id), attempt.choice.reserved_later_usd
    try:
        ledger.extend(account, name, more_usd, keep_usd)
    except BudgetExceeded as error:
        if error.left_usd < min_usd:
            raise
        more_usd = error.left_usd
        ledger.extend(account, name, more_usd, keep_usd)
    return more_usd


def take_extension(attempt: Attempt, requests: ExtensionRequests, is_due: bool) -> None:
    """Add the extension to the reservation if the ledger has answered.

    If the money is due, wait for the answer as long as that is paid for, and stop the attempt without one.
    """
    exceeded = f"it has exceeded its P95 of ${attempt.choice.p95_usd}, and"
    try:
        more_usd = requests.answer(ANSWER_TIMEOUT_S if is_due else 0.0)
        if more_usd is not None:
            attempt.reserved_usd += more_usd
        elif is_due:
            attempt.stop(f"{exceeded} the store did not answer within {ANSWER_TIMEOUT_S:g} s", "lost")
    except LedgerConflict as error:
        attempt.stop(f"its pod was taken for dead and its reservation settled: {error}", "lost")
    except BudgetExceeded as error:
        if is_due:
            attempt.stop(f"{exceeded} the ledger refused an extension: {error}", "money")
    except StoreError as error:
        if is_due:
            attempt.stop(f"{exceeded} the store could not be asked: {error}", "lost")
