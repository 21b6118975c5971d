"""Cases of messy tables, with the reading that each must have, and the judge of what ingest makes of them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from re import IGNORECASE, search
from tempfile import TemporaryDirectory
from typing import Any, Literal

import pyarrow as pa
from pydantic import ValidationError

from shoestring.backends.folder_store import FolderStore
from shoestring.core.datasets import Manifest
from shoestring.core.errors import ShoestringError
from shoestring.core.interfaces import Store
from shoestring.core.types import Format
from shoestring.data.recipe import Recipe
from shoestring.data.storage.part_writer import open_part
from shoestring.data.transforms.ingest import ingest

Value = str | int | float | bool | datetime | None
Kind = Literal["text", "number", "boolean", "time"]
Outcome = Literal["right", "refused", "silently wrong"]


@dataclass(frozen=True, slots=True)
class Reading:
    """What a file means. `known`: row from 0 -> its values, of some rows or of all; `missing`: column ->
    missing values, where they are counted.

    The header is row 1 of the file, and units below it are row 2; neither blank lines nor comments count.
    `quarantined` must be quarantined. `left_out` are units and footers, which are no rows, and may be
    quarantined. `unread` must be reported as values that could not be read: their row and column.
    """

    columns: tuple[tuple[str, Kind], ...]
    rows: int
    known: Mapping[int, Sequence[Value]]
    missing: Mapping[str, int] = field(default_factory=dict)
    quarantined: frozenset[int] = frozenset()
    left_out: frozenset[int] = frozenset()
    unread: frozenset[tuple[int, str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Case:
    """A file with what it means. `kind`: its row in the summary. `read` and `kinds`: keys of the recipe.

    `refusal`: patterns that the message of a refusal must hold. Without a `reading` the file must be
    refused, without a `refusal` it must be read, and with both either is right.
    """

    name: str
    kind: str
    file: str
    data: bytes
    reading: Reading | None
    refusal: tuple[str, ...] = ()
    read: Mapping[str, Any] = field(default_factory=dict)
    kinds: Mapping[str, str] = field(default_factory=dict)
    target: str = ""

    @property
    def has_keys(self) -> bool:
        return bool(self.read or self.kinds)


@dataclass(frozen=True, slots=True)
class Found:
    """A table as a reader has it: column -> its kind and values. `quarantined` and `unread` are as in
    `Reading`; None: the reader reports neither."""

    columns: Mapping[str, tuple[Kind, Sequence[Value]]]
    quarantined: frozenset[int] | None = None
    unread: frozenset[tuple[int, str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Verdict:
    """`right`: as the file means, or refused where it must be. `reason`: what differs, or the message."""

    outcome: Outcome
    passed: bool
    reason: str


def judge(case: Case) -> Verdict:
    """Ingest the file of a case, and compare what is stored with what the file means."""
    with TemporaryDirectory() as folder:
        try:
            found = ingested_table(case, Path(folder))
        except ShoestringError as error:
            return judge_refusal(case, str(error))
        except ValidationError as error:
            return Verdict("refused", False, f"the recipe is not valid: {error.errors()[0]['msg']}")
        except Exception as error:
            return Verdict("refused", False, f"{type(error).__name__}: {error}")
    if case.reading is None:
        columns = {name: kind for name, (kind, _) in found.columns.items()}
        return Verdict("silently wrong", False, f"it was read, as {columns}")
    difference = differs(case.reading, found)
    return Verdict("silently wrong" if difference else "right", not difference, difference)


def judge_refusal(case: Case, message: str) -> Verdict:
    absent = [pattern for pattern in case.refusal if not search(pattern, message, IGNORECASE)]
    reason = f"without {', '.join(absent)}: {message}" if absent else message
    return Verdict("refused", bool(case.refusal) and not absent, reason)


def ingested_table(case: Case, folder: Path) -> Found:
    """Return what ingest stores of a case. Raises ShoestringError, ValidationError."""
    path, scratch = folder / case.file, folder / "scratch"
    path.write_bytes(case.data)
    scratch.mkdir()
    target = case.target or (case.reading.columns[-1][0] if case.reading else "y")
    source: dict[str, Any] = {"path": path} | ({"read": dict(case.read)} if case.read else {})
    recipe = Recipe.model_validate(
        {"name": "messy", "source": {"rows": source}, "target": {"column": target}}
        | ({"kinds": dict(case.kinds)} if case.kinds else {})
    )
    store = FolderStore(folder / "store")
    _, manifest = ingest(recipe, Format.ARROW, store, scratch, lambda what, rows: None)
    table = pa.concat_tables(open_part(store, manifest, part) for part in manifest.splits["rows"])
    columns = {name: (kind_of(table[name].type), table[name].to_pylist()) for name in table.column_names}
    entries = quarantine_of(store, manifest)
    return Found(
        columns,
        frozenset(entry["row"] for entry in entries if "column" not in entry),
        frozenset((entry["row"], entry["column"]) for entry in entries if "column" in entry),
    )


def kind_of(type_: pa.DataType) -> Kind:
    if pa.types.is_boolean(type_):
        return "boolean"
    if pa.types.is_timestamp(type_):
        return "time"
    return "text" if pa.types.is_string(type_) else "number"


def quarantine_of(store: Store, manifest: Manifest) -> list[dict[str, Any]]:
    """Return the records of quarantined rows, and of values that could not be read, which have a column."""
    if manifest.quarantine is None:
        return []
    lines = store.fetch(manifest.quarantine).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def differs(reading: Reading, found: Found, *, dates_as_text: bool = False) -> str:
    """Return the first difference of what was found from what the file means; empty: there is none.

    Spaces around names and texts do not count, and an empty text is a missing value. `dates_as_text`: a date
    may also be any text.
    """
    names = [name.strip() for name in found.columns]
    if names != (wanted := [name for name, _ in reading.columns]):
        return f"the columns are {names}, not {wanted}"
    if difference := rows_differ(reading, found):
        return difference
    for index, (name, column) in enumerate(zip(names, found.columns.values(), strict=True)):
        if difference := column_differs(reading, index, column, dates_as_text=dates_as_text):
            return f"{name} {difference}"
    return ""


def column_differs(
    reading: Reading, index: int, found: tuple[Kind, Sequence[Value]], *, dates_as_text: bool
) -> str:
    name, kind = reading.columns[index]
    found_kind, values = found
    is_any_text = dates_as_text and (kind, found_kind) == ("time", "text")
    if kind != found_kind and not is_any_text and any(value is not None for value in values):
        return f"is read as {found_kind}, not {kind}: {shown(values)}"
    for row, known in sorted(reading.known.items()):
        if not (same(known[index], values[row]) or (is_any_text and values[row] is not None)):
            return f"in row {row} is {values[row]!r}, not {known[index]!r}"
    count = sum(same(None, value) for value in values)
    if count != reading.missing.get(name, count):
        return f"has {count} missing values, not {reading.missing[name]}"
    return ""


def rows_differ(reading: Reading, found: Found) -> str:
    counts = {len(values) for _, values in found.columns.values()}
    if counts != {reading.rows}:
        return f"{counts} rows, not {reading.rows}" + (
            f"; quarantined: {sorted(found.quarantined)[:9]}" if found.quarantined else ""
        )
    if found.quarantined is None:
        return ""
    if found.quarantined - reading.left_out != reading.quarantined:
        return f"quarantined: {sorted(found.quarantined)[:9]}, not {sorted(reading.quarantined)[:9]}"
    if reading.unread - found.unread:
        return f"unread: {sorted(found.unread)[:4]}, not {sorted(reading.unread)[:4]}"
    return ""


def shown(values: Sequence[Value]) -> str:
    return ", ".join(repr(value) for value in values[:5])


def same(wanted: Value, found: Value) -> bool:
    if isinstance(found, str):
        found = found.strip() or None
    if wanted is None or found is None:
        return wanted is found
    if isinstance(wanted, str):
        return wanted.strip() == found
    if isinstance(wanted, datetime):
        return isinstance(found, datetime) and moment(wanted) == moment(found)
    if isinstance(wanted, bool) or isinstance(found, bool):
        return wanted is found
    return isinstance(found, int | float) and math.isclose(wanted, found, rel_tol=1e-12)


def moment(time: datetime) -> datetime:
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
