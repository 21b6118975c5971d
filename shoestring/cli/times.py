"""Times and months as the command line reads them."""

from __future__ import annotations

from datetime import UTC, datetime

from shoestring.core.errors import UnknownName, UsageError
from shoestring.core.interfaces import Store
from shoestring.spending.ledger.ledger import account_names
from shoestring.spending.ledger.parent_accounts import MONTH_ACCOUNT


def parse_time(option: str, text: str | None) -> datetime | None:
    """Parse a date or a time, in UTC unless it names a zone. Raises UsageError."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{option}: {text!r} is not a date or a time: write it like 2026-11-03 or 2026-11-03T14:00Z"
        ) from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)


def parse_expiry(text: str) -> datetime:
    """Parse a time, or a date, which means its last second. The zone is UTC unless the text names one.
    Raises UsageError.
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"--until {text!r}: write a date like 2026-12-24, or a time like 2026-12-24T18:00"
        ) from None
    if len(text) == len("2026-12-24"):
        found = found.replace(hour=23, minute=59, second=59)
    return found.replace(tzinfo=found.tzinfo or UTC).astimezone(UTC)


def ledger_month(store: Store, month: str) -> str:
    """Return the month if the ledger has an account for it. Raises UsageError, UnknownName."""
    if not MONTH_ACCOUNT.fullmatch(month):
        raise UsageError(f"--month: {month!r} is not a month: write it like 2026-11")
    months = [name for name in account_names(store) if MONTH_ACCOUNT.fullmatch(name)]
    if month not in months:
        raise UnknownName("month in this store's ledger", month, months)
    return month
