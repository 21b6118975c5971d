"""The money that a supervisor keeps back from its stage: the price of an exit, and of the ledger's answer."""

from __future__ import annotations

from decimal import Decimal

from shoestring.core.money import capped_usd

EXIT_S = 0.5
"""The duration of an exit. Its price, and that of the stage's own checkpoint, are kept back from every
reservation.
"""
CHECK_EVERY_S = 1.0
"""How often the child's progress, usage, price and guardrails are checked."""
ANSWER_TIMEOUT_S = 1.0
"""How long a supervisor waits for an answer that is due. The price of this time is kept back from every
reservation of fixed work, so it is paid for even if no answer comes.
"""
EXIT_REQUESTS = 12
"""Requests to the store from the end of a stage's code to the end of its process, one after another: its
result, its settlement, its receipt and the copy that its engine takes; `SETTLED_REQUESTS` of them after its
settlement began.
"""
SETTLED_REQUESTS = 8
EXTENSION_SHARE = Decimal("0.5")
"""How much a stage that exceeds its P95 asks for, as a share of the P95."""
ANSWER_REQUESTS = 6
"""Requests to the store that an answer of the ledger takes, one after another."""


def answer_timeout_s(request_s: float) -> float:
    """Return how long a supervisor waits for an answer that is due, where a request takes `request_s`."""
    return ANSWER_TIMEOUT_S + ANSWER_REQUESTS * request_s


def seconds_usd(usd_per_hour: Decimal, seconds: float) -> Decimal:
    """Return the price of some seconds."""
    return capped_usd(usd_per_hour * Decimal(str(seconds)) / 3600)


def exit_price_usd(usd_per_hour: Decimal, fallback_usd_per_hour: Decimal, end_s: float) -> Decimal:
    """Return the price of a clean exit: a grace period, the last ledger entries, and `end_s` for a checkpoint
    and the pod's own end; on a floating market also that of a rise to on-demand that has not been read yet.
    """
    unread_usd = seconds_usd(fallback_usd_per_hour - usd_per_hour, CHECK_EVERY_S)
    return seconds_usd(fallback_usd_per_hour, EXIT_S + end_s) + unread_usd


def min_extension_usd(exit_usd: Decimal) -> Decimal:
    """Return the smallest extension that is worth asking for: with less, a stage would soon ask again."""
    return 2 * exit_usd


def kept_back_usd(
    usd_per_hour: Decimal, fallback_usd_per_hour: Decimal, end_s: float, request_s: float, *, elastic: bool
) -> Decimal:
    """Return what work needs beyond its cost so that it is not stopped: the exit and an answer, and fixed
    work at least one extension. `request_s`: of a request to the store.
    """
    end_s += EXIT_REQUESTS * request_s
    exit_usd = exit_price_usd(usd_per_hour, fallback_usd_per_hour, end_s)
    answer_usd = seconds_usd(fallback_usd_per_hour, answer_timeout_s(request_s))
    least_usd = Decimal(0) if elastic else min_extension_usd(exit_usd)
    return max(exit_usd + answer_usd, least_usd)
