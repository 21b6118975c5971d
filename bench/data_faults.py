"""Claim: of 40 faults planted in real tables, the data page names at least 36; of clean tables it names at
most one column each.

python bench/data_faults.py [--seeds 5] [--quick]

A fault is one added column: the target recoded, an id, a constant, or a leak in time; ten different ones of
each, each in another table of bench/planted_data.py. It counts as named if the page warns of that column with
that fault. Every warning of a clean table counts as false; findings in its labels are
facts of its rows, and are printed. A seed changes the tables and the random values;
--quick takes one seed. Faults that the tables have already are counted apart. The page reads a file, as a
recipe does.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from fault_plants import PLANTS, Plant, Planted
from machine import describe
from planted_data import CLEAN, Frame, RealTable, installed_tables

from shoestring.data.inspect.page import inspect_data
from shoestring.data.inspect.page_records import DataPage, DataWarning
from shoestring.data.recipe import Recipe

MIN_NAMED, MAX_FALSE = 36, 1


def page_of(frame: Frame, target: str, folder: Path) -> DataPage:
    """Return the data page of a recipe that names these rows and the target alone."""
    path = folder / "rows.csv"
    frame.to_csv(path, index=False)
    recipe = Recipe.model_validate(
        {"name": "planted", "source": {"rows": {"path": path}}, "target": {"column": target}}
    )
    return inspect_data(recipe)


def warnings_of(frame: Frame, target: str, folder: Path) -> tuple[DataWarning, ...]:
    """Return the warnings of the page about single columns."""
    return page_of(frame, target, folder).warnings


def planted(plant: Plant, tables: list[RealTable], seed: int, number: int) -> Planted:
    """Return the fault in the first table that it can be planted in, from a place that the seed decides."""
    random = np.random.default_rng([seed, number])
    start = int(random.integers(len(tables)))
    for table in [*tables[start:], *tables[:start]]:
        if (found := plant(table.read_clean(), table.target, random)) is not None:
            return found
    raise SystemExit(f"no installed table can hold {plant.__name__}")


def missed_faults(tables: list[RealTable], seed: int, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield each fault that is not named: its kind, and where it is planted."""
    for kind, plants in PLANTS.items():
        for number, plant in enumerate(plants):
            found = planted(plant, tables, seed, number)
            warnings = warnings_of(found.frame, found.target, folder)
            if not any((each.column, each.fault) == (found.column, kind) for each in warnings):
                instead = [each.fault for each in warnings if each.column == found.column]
                yield kind, f"{plant.__name__} (target {found.target}); named as {instead or 'nothing'}"


def print_clean(tables: list[RealTable], folder: Path) -> int:
    """Print the warnings of the clean tables; return the largest number for one table."""
    most = 0
    for table in tables:
        page = page_of(table.read_clean(), table.target, folder)
        false = [*(f"{each.column} ({each.fault})" for each in page.warnings), *page.findings]
        most, names = max(most, len(page.warnings)), ", ".join(false)
        print(f"  {table.name}, target {table.target}: {len(false)} {names}")
    return most


def print_own_faults(tables: list[RealTable], folder: Path) -> None:
    """Print which of the faults that the tables have already are named."""
    known = [table for table in tables if table.faulty]
    named, total = 0, 0
    for table in known:
        frame = table.read().rename(columns={"Unnamed: 0": "row"})
        faulty = [name.replace("Unnamed: 0", "row") for name in table.faulty]
        found = {each.column for each in warnings_of(frame, table.target, folder)}
        named, total = named + len(found & {*faulty}), total + len(faulty)
    print(f"faults that these tables have already: {named} of {total} named")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--quick", action="store_true")
    given = options.parse_args()
    began_s, tables = time.monotonic(), list(installed_tables())
    print(describe())
    lacking = sorted({table.package for table in CLEAN} - {table.package for table in tables})
    print(f"{len(tables)} of {len(CLEAN)} tables; not installed: {', '.join(lacking) or 'none'}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        worst = 40
        for seed in range(1 if given.quick else given.seeds):
            missed = list(missed_faults(tables, seed, folder))
            by_kind = Counter(kind for kind, _ in missed)
            counts = ", ".join(f"{kind} {len(plants) - by_kind[kind]}" for kind, plants in PLANTS.items())
            worst = min(worst, 40 - len(missed))
            print(f"seed {seed}: {40 - len(missed)} of 40 named ({counts})")
            for kind, where in missed:
                print(f"  missed: {kind}: {where}")
        print("false warnings of the clean tables:")
        most = print_clean(tables, folder)
        print_own_faults(tables, folder)
    print(f"fewest named {worst} of 40, most false {most} of one table, {time.monotonic() - began_s:.0f} s")
    raise SystemExit(worst < MIN_NAMED or most > MAX_FALSE)


if __name__ == "__main__":
    main()
