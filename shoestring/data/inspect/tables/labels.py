"""Labels that look wrong: classes that hardly occur, and values that differ only in how they are written."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from shoestring.data.inspect.columns import SampleColumn, SampleTarget

MAX_RARE_ROWS = 2
MAX_COLUMNS_NAMED = 5
MAX_CLASSES_NAMED = 3
MAX_LABELS = 10_000
"""A column with more values is no column of labels."""


def label_findings(
    columns: Sequence[SampleColumn], target: SampleTarget | None, labels: Collection[str], *, is_whole: bool
) -> Iterator[str]:
    """Yield a sentence for the classes that hardly occur, and for each column whose labels look alike.

    Args:
        columns: of the sample.
        labels: the columns that are used as categories.
        is_whole: all rows were read.
    """
    if target is not None and target.classes:
        if is_whole:
            yield from _rare_classes(target)
        found = next(each for each in columns if each.name == target.name)
        if variants := _variants(found):
            yield f"target {target.name}: classes that {variants}: they are learned apart; write them alike"
    named = 0
    for column in columns:
        if column.name not in labels or not (variants := _variants(column)):
            continue
        named += 1
        if named <= MAX_COLUMNS_NAMED:
            yield f"column {column.name}: values that {variants}: they count as different; write them alike"
    if named > MAX_COLUMNS_NAMED:
        yield f"{named - MAX_COLUMNS_NAMED} more columns have values that differ only in how they are written"


def _counts(column: SampleColumn) -> list[int]:
    counts: list[int] = np.bincount(column.codes[column.filled], minlength=len(column.values)).tolist()
    return counts


def _rare_classes(target: SampleTarget) -> Iterator[str]:
    counts = np.bincount(target.codes[target.known], minlength=len(target.classes)).tolist()
    found = zip(target.classes, counts, strict=True)
    rare = [(value, count) for value, count in found if 0 < count <= MAX_RARE_ROWS]
    if rare:
        named = ", ".join(f"{value!r} ({count})" for value, count in rare[:MAX_CLASSES_NAMED])
        which = f"{named} has" if len(rare) == 1 else f"{len(rare):,} classes, such as {named}, have"
        yield (
            f"target {target.name}: {which} two rows or fewer: too few to learn and to test; merge them with "
            "others, or remove their rows"
        )


def _variants(column: SampleColumn) -> str:
    """Return the labels that are written in most ways, with their counts; empty: all differ in more."""
    if not column.is_text or not 1 < len(column.values) <= MAX_LABELS:
        return ""
    groups: dict[str, list[tuple[int, str]]] = {}
    for value, count in zip(column.values.to_pylist(), _counts(column), strict=True):
        groups.setdefault(_form(value), []).append((count, value))
    several = [sorted(group, reverse=True) for group in groups.values() if len(group) > 1]
    if not several:
        return ""
    shown = ", ".join(f"{value!r} ({count:,})" for count, value in max(several, key=len)[:5])
    more = f" and {len(several) - 1:,} more" if len(several) > 1 else ""
    return f"differ only by blanks, case or a final point, {shown}{more}"


def _form(label: str) -> str:
    """Return a label without its blanks at the ends, case and final point. The case of one letter counts."""
    words = " ".join(label.split()).rstrip(".").rstrip()
    return words.casefold() if len(words) > 1 else words or label
