"""Numbers and names as text for messages and pages."""

from __future__ import annotations

from collections.abc import Sequence


def microusd_text(microusd: int) -> str:
    """Return whole micro-dollars as dollars: "$0.001234"."""
    whole, rest = divmod(abs(microusd), 1_000_000)
    return f"{'-' if microusd < 0 else ''}${whole}.{rest:06d}"


def ms_text(ms: int) -> str:
    """Return milliseconds as seconds: "1,234.5 s"."""
    return f"{ms / 1000:,.1f} s"


def join_names(names: Sequence[str]) -> str:
    """Return names as a list in words: "ingest, train and evaluate"."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def ordinal(number: int) -> str:
    """Return a number as 1st, 2nd, 3rd, 4th, 11th, 21st."""
    ending = "th" if number // 10 % 10 == 1 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"
