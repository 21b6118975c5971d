"""Seeded tables of typed rows: the truth from which files are written."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
from messy_cases import Kind, Value
from table_writer import Truth

ROWS = 200
PLACES = ("Springfield, IL", "Portland, OR", "Oslo", "Lima", "Quito", "Perth", "Leeds", "Turin")
COLUMNS: tuple[tuple[str, Kind], ...] = (
    ("code", "text"),
    ("place", "text"),
    ("day", "time"),
    ("amount", "number"),
    ("count", "number"),
    ("share", "number"),
    ("paid", "boolean"),
)


def truth(
    seed: int = 0,
    *,
    rows: int = ROWS,
    places: Sequence[str] = PLACES,
    decimals: int = 2,
    days: int = 31,
    hours: bool = False,
    zone: bool = False,
) -> Truth:
    """Return a table of orders. Its last place has the first of `places`, `count` lacks some values, and
    amounts are up to 9,999,999. `days`: the days of a month that occur."""
    random = np.random.default_rng(seed)

    def one(number: int) -> tuple[Value, ...]:
        month, day_of_month = 1 + int(random.integers(12)), 1 + int(random.integers(min(days, 28)))
        day = datetime(2023, month, day_of_month, tzinfo=UTC)
        if hours:
            day += timedelta(minutes=int(random.integers(1440)))
        size = 10.0 ** int(random.integers(1, 8))
        return (
            f"K-{number:03}{'ABCDEF'[int(random.integers(6))]}",
            places[0] if number == rows - 1 else places[int(random.integers(len(places)))],
            day if zone else day.replace(tzinfo=None),
            round(float(random.random()) * size, decimals) if decimals else int(random.random() * size),
            None if random.random() < 0.06 else int(random.integers(1, 900)),
            round(float(random.random()) * 100, 1),
            bool(random.random() < 0.4),
        )

    return Truth(COLUMNS, tuple(one(number) for number in range(rows)))


def replaced(table: Truth, column: str, values: Sequence[Value], kind: Kind | None = None) -> Truth:
    """Return a table with other values of one column, which are repeated to its length."""
    index = table.names.index(column)
    rows = tuple(
        (*row[:index], values[number % len(values)], *row[index + 1 :])
        for number, row in enumerate(table.rows)
    )
    columns = [*table.columns]
    columns[index] = (column, kind or columns[index][1])
    return Truth(tuple(columns), rows)


def renamed(table: Truth, names: Sequence[str]) -> Truth:
    columns = zip(names, (kind for _, kind in table.columns), strict=True)
    return Truth(tuple(columns), table.rows)


def without(table: Truth, *columns: str) -> Truth:
    kept = [index for index, name in enumerate(table.names) if name not in columns]
    rows = tuple(tuple(row[index] for index in kept) for row in table.rows)
    return Truth(tuple(table.columns[index] for index in kept), rows)
