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


def kept_back_usd(usd_per_hour: Decimal, fallback_usd_per_hour: Decimal, end_s: float) -> Decimal:
    """Return what fixed work needs beyond its cost so that it is not stopped: the exit and an answer, and at
    least one extension.
    """
    exit_usd = exit_price_usd(usd_per_hour, fallback_usd_per_hour, end_s)
    answer_usd = seconds_usd(fallback_usd_per_hour, ANSWER_TIMEOUT_S)
    return max(exit_usd + answer_usd, min_extension_usd(exit_usd))
