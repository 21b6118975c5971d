"""Forty faults to plant in a table, ten of a kind, for bench/data_faults.py.

Each returns the table with one more column, or None where the table cannot hold the fault.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from planted_data import Frame

Random = np.random.Generator
Series = Any
MIN_ROWS = 100


@dataclass(frozen=True)
class Planted:
    """A table with one fault: the added column."""

    frame: Frame
    target: str
    column: str


Plant = Callable[[Frame, str, Random], Planted | None]


def with_column(frame: Frame, target: str, name: str, values: object) -> Planted:
    """Return the table with the column at its front, where no order of columns helps."""
    changed = frame.copy()
    changed.insert(0, name, values)
    return Planted(changed, target, name)


def is_number(column: Series) -> bool:
    return bool(pd.api.types.is_numeric_dtype(column)) and column.nunique() > 20


def column_plant(name: str, values_of: Callable[[Series, Random], object], only: str = "") -> Plant:
    """Return a plant of a column made from the target. `only`: "classes", "two" classes, or "numbers"."""

    def plant(frame: Frame, target: str, random: Random) -> Planted | None:
        column = frame[target]
        fits = {
            "": True,
            "classes": not is_number(column),
            "two": column.nunique() == 2,
            "numbers": is_number(column) and column.value_counts(normalize=True).iloc[0] < 0.2,
        }[only]
        known = frame[column.notna()]
        if not fits or len(known) < MIN_ROWS:
            return None
        return with_column(known, target, name, values_of(known[target], random))

    plant.__name__ = name
    return plant


def codes(column: Series) -> Series:
    return column.astype("category").cat.codes


def positive(column: Series) -> Series:
    """Return whether the target is its last class."""
    return codes(column) == codes(column).max()


def noisy(column: Series, random: Random, share: float) -> Series:
    """Return the classes' codes with this share of them drawn at random."""
    found = codes(column).to_numpy().copy()
    wrong = random.random(len(found)) < share
    found[wrong] = random.permutation(found)[wrong]
    return found


def blanked(values: object, index: object, random: Random, share: float) -> Series:
    """Return the values with this share of them missing."""
    found = pd.Series(values, index=index, dtype="object")
    return found.mask(random.random(len(found)) < share)


RECODED = (
    column_plant("status_code", lambda y, _: codes(y).map(lambda code: f"S{code:02}"), "classes"),
    column_plant("is_last_class", lambda y, _: positive(y), "two"),
    column_plant("score", lambda y, r: np.where(positive(y), 0.9, 0.1) + r.normal(0, 0.05, len(y)), "two"),
    column_plant("label_with_errors", lambda y, r: noisy(y, r, 0.01), "classes"),
    column_plant("sub_class", lambda y, r: [f"{code}.{r.integers(3)}" for code in codes(y)], "classes"),
    column_plant("label_partly_missing", lambda y, r: blanked(codes(y), y.index, r, 0.3), "classes"),
    column_plant("other_unit", lambda y, _: (y * 0.3048 + 1.5).round(3), "numbers"),
    column_plant("logarithm", lambda y, _: np.log1p(y - y.min()), "numbers"),
    column_plant("decile", lambda y, _: pd.qcut(y, 10, labels=False, duplicates="drop"), "numbers"),
    column_plant("percentile", lambda y, _: (100 * y.rank(pct=True)).round(1), "numbers"),
)

IDS = (
    column_plant("row", lambda y, _: np.arange(len(y))),
    column_plant("account", lambda y, r: r.permutation(len(y)) + 1000),
    column_plant("uuid", lambda y, r: [str(uuid.UUID(bytes=r.bytes(16))) for _ in y]),
    column_plant("hash", lambda y, _: [hashlib.sha1(str(i).encode()).hexdigest() for i in range(len(y))]),
    column_plant("customer", lambda y, r: [f"CUST-{i:06}" for i in r.permutation(len(y))]),
    column_plant("phone", lambda y, r: r.choice(9 * 10**8, len(y), replace=False) + 10**8),
    column_plant("order_number", lambda y, r: np.cumsum(r.integers(1, 9, len(y)))),
    column_plant("member_id", lambda y, r: blanked(r.permutation(len(y)) + 1, y.index, r, 0.05)),
    column_plant("email", lambda y, r: [f"u{i}@example.org" for i in r.permutation(len(y))]),
    column_plant("place_and_row", lambda y, _: [f"{'ABC'[i % 3]}/{i:05}/2013" for i in range(len(y))]),
)

CONSTANTS = (
    column_plant("country", lambda y, _: "US"),
    column_plant("version", lambda y, _: 3),
    column_plant("rate", lambda y, _: 0.25),
    column_plant("zero", lambda y, _: 0),
    column_plant("empty", lambda y, _: None),
    column_plant("is_test", lambda y, _: False),
    column_plant("export_date", lambda y, _: "2026-11-03"),
    column_plant("export_time", lambda y, _: "2026-11-03 14:05:12"),
    column_plant("not_available", lambda y, _: "NA"),
    column_plant("notice", lambda y, _: "Source: a survey, wave 3; do not copy"),
)


def dates(y: Series, random: Random) -> Series:
    """Return random days of one year."""
    days = pd.to_timedelta(random.integers(0, 365, len(y)), unit="D")
    return pd.Series(pd.Timestamp("2024-01-01") + days, index=y.index)


def where(values: Series, kept: Series) -> Series:
    return values.where(kept)


def dated_plant(name: str, days_of: Callable[[Series, Random], Series], only: str) -> Plant:
    """Return a plant of a date some days after another date, which is added too. NaN: no date."""

    def plant(frame: Frame, target: str, random: Random) -> Planted | None:
        later = column_plant(name, lambda y, _: y, only)(frame, target, random)
        if later is None:
            return None
        y = later.frame[target]
        later.frame["opened_on"] = dates(y, random)
        later.frame[name] = later.frame["opened_on"] + pd.to_timedelta(days_of(y, random), unit="D")
        return later

    plant.__name__ = name
    return plant


def missing_with_target(frame: Frame, target: str, random: Random) -> Planted | None:
    """Plant a column that is known only for the 90% of rows whose target is known."""
    if len(frame) < MIN_ROWS:
        return None
    known = random.random(len(frame)) < 0.9
    changed = frame[frame[target].notna()]
    changed = changed.assign(**{target: changed[target].where(known[: len(changed)])})
    measured = pd.Series(random.normal(0, 1, len(changed)).round(3), index=changed.index)
    return with_column(changed, target, "final_grade", where(measured, changed[target].notna()))


def random_share(y: Series, random: Random, share: float) -> Series:
    return pd.Series(random.random(len(y)) < share, index=y.index)


def amounts(y: Series, random: Random) -> Series:
    return pd.Series(random.gamma(2, 50, len(y)).round(2), index=y.index)


TIME_LEAKS = (
    column_plant("churn_date", lambda y, r: where(dates(y, r), positive(y)), "two"),
    column_plant(
        "refund", lambda y, r: where(amounts(y, r), positive(y) & random_share(y, r, 0.6)), "classes"
    ),
    column_plant("open_balance", lambda y, r: where(amounts(y, r), ~positive(y)), "classes"),
    column_plant("payout", lambda y, r: where(amounts(y, r), y > y.median()), "numbers"),
    column_plant(
        "audit",
        lambda y, r: where(amounts(y, r), (y > y.quantile(0.75)) & random_share(y, r, 0.5)),
        "numbers",
    ),
    missing_with_target,
    dated_plant("closed_on", lambda y, r: pd.Series(r.integers(1, 60, len(y)), index=y.index), ""),
    dated_plant("second_date", lambda y, r: positive(y) * 20.0 + r.integers(1, 30, len(y)), "two"),
    dated_plant(
        "event_date", lambda y, r: (y.rank(pct=True) * 60).round() + r.integers(1, 30, len(y)), "numbers"
    ),
    dated_plant("review_date", lambda y, r: (positive(y) * 5 + 30.0).where(random_share(y, r, 0.7)), ""),
)

PLANTS: dict[str, tuple[Plant, ...]] = {
    "target recoded": RECODED,
    "id": IDS,
    "constant": CONSTANTS,
    "leak in time": TIME_LEAKS,
}
