"""Claim: ingest reads each of 287 messy tables as it means, or refuses it with the fix.

python bench/messy_tables.py [--quick] [--list]

The files are those of tests/data/real: real tables, and tables that a seed writes. Without any key, each is
read by `ingest`, by pandas (`read_csv(path)`, `read_json(path, lines=True)`) and by polars (`read_csv(path)`,
`read_ndjson(path)`). A file is

right           the names, the number of rows and the values are those of the file
refused         an error
silently wrong  anything else, such as numbers that are read as text, or a total that is read as a row

Of pandas and polars, a column of row numbers is ignored, `Unnamed: 0` and the like are taken for the names
that are expected, and dates may be text. Files that need keys of the recipe are counted below the table;
their like for pandas and polars would have to be chosen by hand.

`--quick` reads every fourth file; `--list` prints each verdict that is not right.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import machine
import pandas
import polars

sys.path.append(str(Path(__file__).parent.parent / "tests/data/real"))  # the files, and their judge

from combined_tables import generated_cases
from messy_cases import Case, Found, Kind, Reading, Value, Verdict, differs, judge
from real_tables import real_cases

OUTCOMES = ("right", "refused", "silently wrong")


def pandas_table(path: Path) -> Found:
    frame = pandas.read_json(path, lines=True) if ".jsonl" in path.name else pandas.read_csv(path)
    if not isinstance(frame.index, pandas.RangeIndex):
        frame = frame.reset_index()
    columns: dict[str, tuple[Kind, Sequence[Value]]] = {}
    for name in frame.columns:
        column = frame[name]
        values = [None if pandas.isna(value) else value for value in column.tolist()]
        columns[str(name)] = pandas_kind(column.dtype), values
    return Found(columns)


def pandas_kind(dtype: object) -> Kind:
    types = pandas.api.types
    if types.is_bool_dtype(dtype):
        return "boolean"
    if types.is_datetime64_any_dtype(dtype):
        return "time"
    return "number" if types.is_numeric_dtype(dtype) else "text"


def polars_table(path: Path) -> Found:
    frame = polars.read_ndjson(path) if ".jsonl" in path.name else polars.read_csv(path)
    kinds: dict[str, Kind] = {
        name: "boolean"
        if type_ == polars.Boolean
        else "number"
        if type_.is_numeric()
        else "time"
        if type_.is_temporal()
        else "text"
        for name, type_ in frame.schema.items()
    }
    return Found({name: (kind, frame[name].to_list()) for name, kind in kinds.items()})


def with_expected_names(found: Found, reading: Reading) -> Found:
    """Return what a peer found, without a column of row numbers, and with the names that are expected where
    the peer had to make up one."""
    columns = list(found.columns.items())
    made_up = ("Unnamed: ", "index", "level_0", "_duplicated")
    if columns and len(columns) == len(reading.columns) + 1:
        name = columns[0][0]
        columns = columns[1:] if not name or name.startswith(made_up) else columns
    if len(columns) == len(reading.columns):
        columns = [
            (wanted if is_made_up(name, wanted) else name, values)
            for (name, values), (wanted, _) in zip(columns, reading.columns, strict=True)
        ]
    return Found(dict(columns))


def is_made_up(name: str, wanted: str) -> bool:
    if wanted == "column_1":
        return not name or name.startswith(("Unnamed: ", "index", "level_0"))
    base = wanted.removesuffix("_2")
    return wanted != base and name in (f"{base}.1", f"{base}_duplicated_0")


def judge_peer(case: Case, read: Callable[[Path], Found]) -> Verdict:
    with TemporaryDirectory() as folder:
        path = Path(folder) / case.file
        path.write_bytes(case.data)
        try:
            found = read(path)
        except Exception as error:
            return Verdict("refused", True, f"{type(error).__name__}: {error}")
    if case.reading is None:
        return Verdict("silently wrong", False, f"it was read, as {[*found.columns]}")
    difference = differs(case.reading, with_expected_names(found, case.reading), dates_as_text=True)
    return Verdict("silently wrong" if difference else "right", not difference, difference)


READERS: dict[str, Callable[[Case], Verdict]] = {
    "Shoestring": judge,
    "pandas": lambda case: judge_peer(case, pandas_table),
    "polars": lambda case: judge_peer(case, polars_table),
}


def shown(counts: Counter[str]) -> str:
    return " / ".join(str(counts[outcome]) for outcome in OUTCOMES)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    cases = [*real_cases(), *generated_cases()][:: 4 if options.quick else 1]
    print(machine.describe())
    print(f"pandas {pandas.__version__}, polars {polars.__version__}\n")
    failed = print_table(cases, listing=options.list)
    stated = {case.name: judge(case) for case in cases if case.has_keys}
    failed |= {name: found for name, found in stated.items() if not found.passed}
    counts = Counter(found.outcome for found in stated.values())
    print(f"\nWith keys of the recipe: {len(stated)} files, {shown(counts)}.\n")
    for name, found in failed.items():
        print(f"{name}: {found.outcome}: {found.reason[:200]}")
    print(f"{len(failed)} files are not read or refused as they should be")
    return 1 if failed else 0


def print_table(cases: Sequence[Case], *, listing: bool) -> dict[str, Verdict]:
    """Print a table of the files that need no key. Returns the verdicts of Shoestring that fail."""
    failed, others = dict[str, Verdict](), list[str]()
    totals = {name: Counter[str]() for name in READERS}
    print(f"Each cell is {' / '.join(OUTCOMES)}.\n")
    print(f"| kind of file | files | {' | '.join(READERS)} |\n|---|---|{'---|' * len(READERS)}")
    plain = [case for case in cases if not case.has_keys]
    for kind in dict.fromkeys(case.kind for case in plain):
        counts = {name: Counter[str]() for name in READERS}
        for case in (each for each in plain if each.kind == kind):
            for name, read in READERS.items():
                found = read(case)
                counts[name][found.outcome] += 1
                if name == "Shoestring" and not found.passed:
                    failed[case.name] = found
                elif found.outcome != "right":
                    others.append(f"{name}, {case.name}: {found.outcome}: {found.reason[:200]}")
        print(f"| {kind} | {counts['pandas'].total()} | {' | '.join(map(shown, counts.values()))} |")
        for name in READERS:
            totals[name] += counts[name]
    print(f"| all | {len(plain)} | {' | '.join(map(shown, totals.values()))} |")
    print("\n".join(["", *others] if listing else []))
    return failed


if __name__ == "__main__":
    sys.exit(main())
