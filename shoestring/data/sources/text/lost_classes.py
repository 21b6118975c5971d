"""The classes of quarantined rows, and those that lose more rows than the others."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice

DELIMITERS = ",;\t|"
MAX_LINES = 100_000

MIN_LOST_ROWS = 10
MIN_LOST_SHARE = 0.02
MAX_RATIO = 3.0
"""A class is named if it loses more than these, and a share that is this many times that of the others."""


def lost_classes(
    lines: Iterable[str], table: str, columns: Sequence[str], target: str, classes: Collection[str]
) -> dict[str, int]:
    """Return the damaged rows of each class, where it is known.

    It is the value at the target's place, counted from the start or from the end of the row, if just one of
    these is a class. `lines`: those of the quarantine. `columns`: of the table, in order.
    """
    if target not in columns:
        return {}
    place = columns.index(target)
    found: Counter[str] = Counter()
    for entry in map(json.loads, islice(lines, MAX_LINES)):
        if entry["table"] != table or "column" in entry or not entry.get("is_damage", True):
            continue
        # An unclosed quote merges all following rows into one.
        for line in entry["text"].splitlines():
            values = {*_values(line, place), *_values(line, place - len(columns))}
            if len(labels := values & {*classes}) == 1:
                found += Counter(labels)
    return dict(found)


def _values(line: str, place: int) -> Iterator[str]:
    for delimiter in DELIMITERS:
        cells = line.split(delimiter)
        if len(cells) > 1 and -len(cells) <= place < len(cells):
            yield cells[place].strip(" \"'")


def class_losses(lost: Mapping[str, int], kept: Mapping[str, float], set_aside: int) -> Iterator[str]:
    """Yield a sentence for each class that loses far more rows than the others.

    `lost` and `kept`: rows by class. `set_aside`: all rows that were, of any class.
    """
    all_lost, all_rows = sum(lost.values()), sum(lost.values()) + sum(kept.values())
    for label, count in sorted(lost.items(), key=lambda item: -item[1]):
        of_class = kept.get(label, 0) + count
        share, others = count / of_class, (all_lost - count) / max(all_rows - of_class, 1)
        if count >= MIN_LOST_ROWS and share > MIN_LOST_SHARE and share > MAX_RATIO * others:
            yield (
                f"rows set aside: {count:,} of {set_aside:,} are of class {label}: {share:.1%} of its rows, "
                f"and {others:.1%} of the others; correct them, since their loss changes the target"
            )
