"""Name the columns of a sample that should not be features: the target recoded, an id, a constant, a leak in
time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shoestring.data.inspect.columns import Numbers, SampleColumn, SampleTarget
from shoestring.data.inspect.page_records import DataWarning, Fault
from shoestring.data.inspect.prediction import MIN_ROWS, explained_share, ordered_share
from shoestring.data.inspect.time_leaks import date_leak, null_leak

MIN_EXPLAINED = 0.97
MIN_EXPLAINED_RANKS = 0.995
"""The share of the target's error, and of the variance of a number's ranks, that a column removes alone when
it is taken for the target recoded.
"""

MIN_UNIQUE = 0.99
MIN_NAMED_UNIQUE = 0.95
"""The share of different values of an id, and of one that is named like an id."""

MIN_EFFECTIVE = 0.1
"""The effective sample size of rows with weights, as a share of the rows."""

ID_NAME = re.compile(
    r"(^|[_\W])(id|ids|uuid|guid|key|index|idx|row|rownames|number|num|no|nr|code|serial)$", re.I
)
ID_DIGITS = 6
"""Whole numbers that all have this many digits or more, and are all different, are taken for ids."""

DENSE = 1.2
MAX_STEP_VARIATION = 1.0
"""Steps from one row to the next of a counter: their standard deviation over their mean."""

YEARS = (1500, 2200)
MAX_ID_WORDS = 2.0
"""Texts with more words on average are free text or names, not ids."""

ADVICE: dict[Fault, str] = {
    "target recoded": "if it is known only with the target, {change}",
    "id": "to leave it out, {change}",
    "constant": "it predicts nothing",
    "leak in time": "if it is known only after the prediction, {change}",
    "extreme weights": "cap them, or expect wide intervals",
}


def find_faults(
    columns: Sequence[SampleColumn], target: SampleTarget | None, table_rows: int, *, are_named: bool = False
) -> tuple[DataWarning, ...]:
    """Return at most one warning for each column, in the order of the columns.

    Args:
        columns: those that may become features.
        target: None if nothing can be predicted; then only ids and constants are named.
        table_rows: the rows of the whole table, at least as many as those of the sample.
        are_named: whether the recipe names these columns as features.
    """
    change = "remove it from `categorical`, `numeric` or `dates`" if are_named else "add it to `leaks`"
    found = []
    for column in columns:
        for fault, finding in _findings(column, columns, target, table_rows):
            if finding:
                advice = ADVICE[fault].format(change=change)
                found.append(DataWarning(column=column.name, fault=fault, finding=finding, advice=advice))
                break
    return tuple(found)


def _findings(
    column: SampleColumn, columns: Sequence[SampleColumn], target: SampleTarget | None, table_rows: int
) -> Iterator[tuple[Fault, str]]:
    """Yield each fault that a column may have, and what was found; empty: nothing."""
    yield "constant", _constant(column)
    yield "id", _id(column, table_rows)
    if target is not None:
        yield "leak in time", null_leak(column, columns, target) or date_leak(column, columns, target)
        yield "target recoded", _recoded(column, target)


def weight_fault(column: SampleColumn) -> tuple[DataWarning, ...]:
    """Return a warning if few rows have most of the weight (Kish 1965, "Survey Sampling": the
    effective sample size)."""
    weights = np.zeros(0) if column.numbers is None else column.numbers[column.filled]
    weights = weights[weights > 0]
    if not len(weights):
        return ()
    # In units of the largest: the squares of large weights overflow.
    shares = weights / weights.max()
    effective = float(shares.sum() ** 2 / (shares**2).sum())
    if effective >= MIN_EFFECTIVE * len(weights):
        return ()
    finding = (
        f"{len(weights):,} rows read, from {weights.min():g} to {weights.max():g}, count like "
        f"{effective:,.1f} of equal weight"
    )
    fault: Fault = "extreme weights"
    return (DataWarning(column=column.name, fault=fault, finding=finding, advice=ADVICE[fault]),)


def _constant(column: SampleColumn) -> str:
    rows, filled = len(column.codes), int(column.filled.sum())
    if not filled:
        return f"without a value in all {rows:,} rows read"
    if len(column.values) == 1 and filled == rows:
        return f"{str(column.values.cast(pa.string())[0])[:40]!r} in all {rows:,} rows read"
    return ""


def _recoded(column: SampleColumn, target: SampleTarget) -> str:
    # Dates follow whatever grows with time.
    if column.is_date:
        return ""
    share, is_class = explained_share(column, target), target.numbers is None
    if share >= (MIN_EXPLAINED if is_class else MIN_EXPLAINED_RANKS):
        error = "errors of always predicting the most frequent class" if is_class else "variance of the ranks"
        found = f"alone it removes {100 * share:.1f}% of the {error} of {target.name}"
    elif ordered_share(column, target) >= MIN_EXPLAINED:
        found = f"its {len(column.values)} values are ranges of {target.name}"
    else:
        return ""
    return f"{found}, in {int((target.known & column.filled).sum()):,} rows read"


def _id(column: SampleColumn, table_rows: int) -> str:
    filled = int(column.filled.sum())
    share = len(column.values) / filled if filled else 0.0
    is_named = ID_NAME.search(column.name) is not None
    if filled < MIN_ROWS or share < (MIN_NAMED_UNIQUE if is_named else MIN_UNIQUE) or column.is_date:
        return ""
    why = _text_id(column) if column.is_text else _number_id(column, table_rows, is_named)
    return f"{len(column.values):,} different values in {filled:,} rows read, {why}" if why else ""


def _text_id(column: SampleColumn) -> str:
    spaces = pc.mean(pc.count_substring(column.values, " ")).as_py() or 0.0
    return "which are text and hardly repeat" if spaces + 1 <= MAX_ID_WORDS else ""


def _number_id(column: SampleColumn, table_rows: int, is_named: bool) -> str:
    """Return why unique whole numbers are no quantity; empty: they may be one."""
    if column.numbers is None or pa.types.is_temporal(column.kind):
        return ""
    numbers = column.numbers[column.filled]
    low, high = float(numbers.min()), float(numbers.max())
    if (numbers != np.round(numbers)).any() or (YEARS[0] <= low and high <= YEARS[1]):
        return ""
    if high - low + 1 <= DENSE * max(table_rows, len(numbers)):
        return "which count the rows"
    if _is_counter(numbers):
        return "which grow from row to row"
    digits = np.floor(np.log10(np.maximum(np.abs(numbers), 1))) + 1
    if digits.min() >= ID_DIGITS and digits.max() - digits.min() <= 1:
        return f"which are whole numbers of {int(digits.max())} digits"
    return "as its name implies" if is_named else ""


def _is_counter(numbers: Numbers) -> bool:
    """Return True when the numbers grow (or fall) from row to row by similar steps."""
    steps = np.diff(numbers)
    if not len(steps) or (steps > 0).all() == (steps < 0).all():
        return False
    return float(np.abs(steps).std()) <= MAX_STEP_VARIATION * float(np.abs(steps).mean())
