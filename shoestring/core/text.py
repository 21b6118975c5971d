"""Numbers and names as text for messages, pages and a terminal."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Self

DECIMAL_NUMBER = r"[-+]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
"""A number as people write it. Python also reads `1_000` and `0100`, which others read as something else."""

_SEPARATORS = re.compile(r"[\s_-]")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that change a terminal, or the order or the lines of the text; and bytes of a name that are no
text. A new line and a tab may be the program's own.
"""


class WordEnum(StrEnum):
    """Words that a person may spell in other ways: "On-Demand " and "on_demand" are on-demand."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        written = _SEPARATORS.sub("", str(value)).lower()
        return next((each for each in cls if _SEPARATORS.sub("", each) == written), None)


def shown_text(text: str) -> str:
    """Return text that changes nothing in a terminal: a control character is escaped as in JSON.

    JSON stays the same value.
    """
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def shown_line(text: str) -> str:
    """Return `shown_text` on one line, without tabs: for a name, and for text that names are in."""
    return shown_text(text).replace("\n", r"\n").replace("\t", r"\t")


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
