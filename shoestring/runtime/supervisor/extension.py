"""Extensions of a running stage's reservation: asked for in time, granted as far as the budget allows."""

from __future__ import annotations

from decimal import Decimal
from functools import partial

from shoestring.core.errors import BudgetExceeded, LedgerConflict, StoreError
from shoestring.core.money import usd
from shoestring.runtime.records.overhead import overhead_excess_usd, overhead_reservation
from shoestring.runtime.supervisor.attempt import Attempt
from shoestring.runtime.supervisor.background_io import ExtensionRequests
from shoestring.spending.exit_money import EXTENSION_SHARE, answer_timeout_s, min_extension_usd
from shoestring.spending.ledger.account import AccountState
from shoestring.spending.ledger.ledger import Ledger

# A stage asks for an extension this long before its money ends, but with at most this share of its
# reservation left. So a store that is slow or briefly unreachable stops no stage, and few stages ask that
# would have ended in time.
EXTEND_AHEAD_S, EXTEND_AHEAD_SHARE = 10.0, Decimal("0.1")
# The wait for an answer if the pod's start took the whole reservation. Nothing could be asked ahead of time,
# on a node that starts pods slowly answers take longer, and another start would cost more than this wait.
LATE_START_TIMEOUT_S = 5.0


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
    answer_s = answer_timeout_s(attempt.request_s)
    due_usd = attempt.spent_usd() + attempt.exit_usd + attempt.price_usd(answer_s)
    is_due = due_usd >= attempt.reserved_usd
    # Ahead of time it asks once. If that is refused, it goes on and asks again when the money is due: other
    # runs may have released some by then.
    is_near = due_usd + due_ahead_usd(attempt, attempt.reserved_usd) >= attempt.reserved_usd
    is_first_look = attempt.sent_limits is None and not attempt.extension_asked_at_usd
    timeout_s = max(LATE_START_TIMEOUT_S, answer_s) if is_first_look else answer_s
    if is_due or (is_near and attempt.reserved_usd != attempt.extension_asked_at_usd):
        attempt.extension_asked_at_usd = attempt.reserved_usd
        min_usd = max(min_extension_usd(attempt.exit_usd), due_usd - attempt.reserved_usd)
        requests.ask(partial(extend_reservation, attempt, ledger, min_usd))
    take_extension(attempt, requests, timeout_s if is_due else 0.0)


def due_ahead_usd(attempt: Attempt, reserved_usd: Decimal) -> Decimal:
    """Return how much of a reservation is left when an extension of it is asked for."""
    return min(attempt.price_usd(EXTEND_AHEAD_S), reserved_usd * EXTEND_AHEAD_SHARE)


def extend_reservation(attempt: Attempt, ledger: Ledger, min_usd: Decimal, id: str = "") -> Decimal:
    """Extend the reservation by half of the P95, or by `min_usd` and twice what is due ahead of time if that
    is more; return the amount. It is all that is left where that is less but at least `min_usd`, or where
    the rest would be too little for another extension.

    What is reserved for later stages is not touched. With an `id` the request can be repeated.

    Raises:
        BudgetExceeded: less than `min_usd` is left.
        LedgerConflict: the reservation is settled, or the request was made before for another amount.
    """
    account, name = attempt.run.start.account, str(attempt.id)
    # A stage with a small P95 that starts late would ask again at each look otherwise.
    ahead_usd = min_usd + 2 * due_ahead_usd(attempt, attempt.reserved_usd + min_usd)
    more_usd = usd(max(attempt.choice.p95_usd * EXTENSION_SHARE, ahead_usd))
    state = ledger.state(account)
    keep_usd = attempt.choice.reserved_later_usd + missing_overhead_usd(attempt, state)
    if state.left_usd is not None:
        rest_usd = state.left_usd - keep_usd - more_usd
        more_usd += rest_usd if 0 < rest_usd < min_extension_usd(attempt.exit_usd) else 0
    try:
        ledger.extend(account, name, more_usd, keep_usd, id=id)
    except BudgetExceeded as error:
        if error.left_usd < min_usd:
            raise
        more_usd = error.left_usd
        ledger.extend(account, name, more_usd, keep_usd, id=id)
    return more_usd


def missing_overhead_usd(attempt: Attempt, state: AccountState) -> Decimal:
    """Return what the run's overhead costs above its reservation: no stage may spend that."""
    start = attempt.run.start
    held = state.reservations.get(overhead_reservation(start))
    return overhead_excess_usd(attempt.world, attempt.run, held.amount_usd) if held else Decimal(0)


def take_extension(attempt: Attempt, requests: ExtensionRequests, due_within_s: float) -> None:
    """Add the extension to the reservation if the ledger has answered.

    If the money is due, wait for the answer for `due_within_s`, and stop the attempt without one. 0: it is
    not due.
    """
    is_due = due_within_s > 0
    exceeded = f"it has exceeded its P95 of ${attempt.choice.p95_usd}, and"
    try:
        more_usd = requests.answer(due_within_s)
        if more_usd is not None:
            attempt.reserved_usd += more_usd
        elif is_due:
            attempt.stop(f"{exceeded} the store did not answer within {due_within_s:g} s", "lost")
    except LedgerConflict as error:
        attempt.stop(f"its pod was taken for dead and its reservation settled: {error}", "lost")
    except BudgetExceeded as error:
        if is_due:
            attempt.stop(f"{exceeded} the ledger refused an extension: {error}", "money")
    except StoreError as error:
        if is_due:
            attempt.stop(f"{exceeded} the store could not be asked: {error}", "lost")
