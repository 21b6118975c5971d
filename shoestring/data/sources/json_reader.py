"""Read tables from JSON lines: one object a line, whose keys are the columns."""

from __future__ import annotations

import json
import re
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from shoestring.core.errors import DataError
from shoestring.data.sources.column_types import (
    BOOLEAN,
    COLUMN_TYPES,
    INTEGER,
    MAX_MISMATCH_SHARE,
    TEXT_KINDS,
    TIMESTAMP,
    TIMESTAMP_UTC,
    ColumnKind,
)
from shoestring.data.sources.data_file import SAMPLE_BYTES, DataFile, open_unpacked
from shoestring.data.sources.folders.keyed_file import with_folder_keys
from shoestring.data.sources.quarantine import Quarantine
from shoestring.data.sources.table import FixedColumns
from shoestring.data.sources.text.encodings import REPLACED, UTF8, Utf8Stream, find_encoding
from shoestring.data.sources.text.fixed_kinds import NOT_FIXED, FixedKinds, kinds_as_read
from shoestring.data.sources.untyped_table import UntypedTable, without_spellings
from shoestring.data.values import NUMBER, TEXT, WRITTEN_DATES

DATES: tuple[ColumnKind, ...] = (TIMESTAMP, TIMESTAMP_UTC, *WRITTEN_DATES)
KINDS: dict[str, tuple[ColumnKind, ...]] = {
    "text": TEXT_KINDS,
    "a number": (INTEGER, NUMBER),
    "true or false": (BOOLEAN,),
}
"""The kinds that a column may have when all its values are of one type of JSON."""

DIGITS_OF_CODE = re.compile(r"\s*0[0-9]")
"""The start of text that is no number: "007"."""

MAX_LINE_CHARACTERS = 8 << 20


class JsonNumber(str):
    """A number as it is written."""

    __slots__ = ()


class JsonLinesFile:
    """One file with one JSON object a line. Its columns are the keys in its first megabyte."""

    def __init__(self, file: DataFile) -> None:
        self.file = file
        with open_unpacked(file, is_whole=False) as stream:
            self._encoding = find_encoding(stream.read(SAMPLE_BYTES), file.name, file.read.encoding)
        self._is_damaged = False
        self.types: dict[str, Counter[str]] = {}
        self.codes: set[str] = set()
        _, data = next(self._chunks(SAMPLE_BYTES, is_whole=False), (0, ""))
        for row in map(_parsed_row, data.split("\n")):
            for key, value in row.items() if isinstance(row, dict) else ():
                self.types.setdefault(key, Counter())[_type_name(value)] += value is not None
                if _type_name(value) == "text" and DIGITS_OF_CODE.match(str(value)):
                    self.codes.add(key)
        if not self.types:
            raise DataError(
                f"{file.name} has no line with a JSON object in its first megabyte: write one object a line, "
                "such as with `jq -c '.[]'` for a file that is one list"
            )
        self._columns: dict[str, str] = {}
        self._skipped = array("q")

    @property
    def name(self) -> str:
        return self.file.name

    @property
    def keys(self) -> dict[str, str | None]:
        return self.file.keys

    @property
    def remarks(self) -> Sequence[str]:
        return () if self._encoding == UTF8 else (f"read as {self._encoding}",)

    def blocks(self, block_bytes: int, quarantine: Quarantine | None = None) -> Iterator[pa.RecordBatch]:
        self._skipped = array("q")
        for first_line, data in self._chunks(block_bytes):
            batch = self._regular_batch(data)
            if batch is None:
                batch = self._checked_batch(first_line, data, quarantine)
            if batch.num_rows:
                yield without_spellings(batch, self.file.read.missing)

    def row_number(self, good_before: int) -> int:
        """Return the number of the line after `good_before` well-formed ones. The first is 1."""
        return good_before + 1 + bisect_right(self._skipped, good_before + 1)

    def row_text(self, block: pa.RecordBatch, index: int) -> str:
        return json.dumps({name: block.column(name)[index].as_py() for name in self._columns})

    def set_columns(self, columns: Mapping[str, str]) -> None:
        """Set the columns of the table, to which other files add, with the type that most values have."""
        self._columns = {**columns}

    def _regular_batch(self, data: str) -> pa.RecordBatch | None:
        """Return the rows of a block as Arrow reads them; None if a line may be irregular.

        Arrow reads 10 times as fast as the module json, but it fails at the first line that does not fit.
        """
        if self._is_damaged and REPLACED in data:
            return None
        texts = pa.schema([(name, TEXT) for name, type_ in self._columns.items() if type_ == "text"])
        packed = data.encode()
        try:
            found = pyarrow.json.read_json(
                pa.BufferReader(packed),
                pyarrow.json.ReadOptions(use_threads=False, block_size=len(packed) + 1),
                pyarrow.json.ParseOptions(explicit_schema=texts),
            )
        except pa.ArrowInvalid:
            return None
        lines = data.count("\n") + (not data.endswith("\n"))
        if found.num_rows != lines or not self._columns.keys() >= set(found.column_names):
            return None
        columns = [
            _as_texts(found[name]) if name in found.column_names else pa.nulls(lines, TEXT)
            for name in self._columns
        ]
        if any(column is None for column in columns):
            return None
        return pa.RecordBatch.from_arrays(columns, [*self._columns])

    def _checked_batch(self, first_line: int, data: str, quarantine: Quarantine | None) -> pa.RecordBatch:
        rows: list[Mapping[str, object]] = []
        for number, line in enumerate(data.removesuffix("\n").split("\n"), first_line):
            found = _parsed_row(line)
            if self._is_damaged and REPLACED in line:
                found = "bytes that are no text"
            reason = found if isinstance(found, str) else self._misfit(found)
            if reason and quarantine is not None and line.strip():
                quarantine.add(self.name, number, reason, line.strip())
            if isinstance(found, str) or reason:
                self._skipped.append(number - len(self._skipped))
            else:
                rows.append(found)
        columns = [pa.array([_text(row.get(name)) for row in rows], TEXT) for name in self._columns]
        return pa.RecordBatch.from_arrays(columns, [*self._columns])

    def _misfit(self, row: Mapping[str, object]) -> str:
        if late := row.keys() - self._columns.keys():
            return f"{min(late)} is not a column of the first rows"
        nested = next((key for key, value in row.items() if isinstance(value, dict | list)), None)
        return "" if nested is None else f"{nested} is {_type_name(row[nested])}"

    def _chunks(self, block_bytes: int, *, is_whole: bool = True) -> Iterator[tuple[int, str]]:
        """Yield whole lines in blocks of about `block_bytes`, each with the number of its first line."""
        number, rest = 1, ""
        with open_unpacked(self.file, is_whole=is_whole) as stream:
            text = Utf8Stream(stream, self.name, self._encoding)
            while data := text.read(block_bytes):
                self._is_damaged = text.is_damaged
                found = rest + data.decode()
                end = found.rfind("\n") + 1
                rest = found[end:]
                if len(rest) >= MAX_LINE_CHARACTERS:
                    raise DataError(f"{self.name} has a line of more than 8 MB: write one object a line")
                if end:
                    yield number, found[:end]
                    number += found.count("\n")
            if rest:
                yield number, rest


def _as_texts(column: pa.ChunkedArray) -> pa.Array | None:
    """Return a column as text; None for a type whose text may differ from what is written."""
    types, kind = pa.types, column.type
    if types.is_floating(kind) and pc.all(pc.equal(pc.floor(column), column), min_count=0).as_py():
        return None  # 1.0 would become 1, a whole number.
    plain = types.is_string(kind) or types.is_integer(kind) or types.is_boolean(kind) or types.is_null(kind)
    if not plain and not types.is_floating(kind):
        return None
    return column.cast(TEXT).combine_chunks()


class JsonTable(UntypedTable):
    """Files of JSON lines. `types`: the type that most values of a column have."""

    def __init__(
        self,
        files: Sequence[JsonLinesFile],
        candidates: Mapping[str, tuple[ColumnKind, ...]],
        types: Mapping[str, str],
        fixed: FixedKinds,
    ) -> None:
        super().__init__(*with_folder_keys(files, candidates), fixed)
        self._json_files, self._types = files, types
        for file in files:
            file.set_columns(types)

    @property
    def columns(self) -> FixedColumns:
        return FixedColumns(self.schema, self.written, self._types)

    def own_names(self) -> Mapping[str, Sequence[str]]:
        return {file.name: [*file.keys, *file.types] for file in self._json_files}

    def fix(self, columns: FixedColumns) -> None:
        super().fix(columns)
        self._types = columns.json_types
        for file in self._json_files:
            file.set_columns(columns.json_types)


def open_json_table(files: Sequence[DataFile], fixed: FixedKinds = NOT_FIXED) -> JsonTable:
    """Open files of JSON lines. A key that a line lacks is a missing value. Some columns have `fixed` kinds.

    Text is read as in CSV, but not text with leading zeros, like "007", in the first megabyte of a file.
    Raises DataError.
    """
    found = [JsonLinesFile(file) for file in files]
    types: dict[str, Counter[str]] = {}
    for file in found:
        for name, counts in file.types.items():
            types.setdefault(name, Counter()).update(counts)
    columns = {name: max(counts, key=counts.__getitem__) for name, counts in types.items()}
    codes = {name for file in found for name in file.codes}
    kinds = {
        name: kinds_as_read(files[0].read, _kinds(files[0], name, counts, is_code=name in codes))
        for name, counts in types.items()
    }
    return JsonTable(found, kinds, columns, fixed)


def _kinds(file: DataFile, name: str, counts: Counter[str], *, is_code: bool) -> tuple[ColumnKind, ...]:
    """Return the kinds that a column may have. Raises DataError for one that holds objects or lists."""
    for nested in ("an object", "a list"):
        if counts[nested] > MAX_MISMATCH_SHARE * counts.total():
            raise DataError(
                f"{file.name}: column {name!r} holds {nested}, which is not supported: write its parts as "
                "columns, or remove it"
            )
    needed = (1 - MAX_MISMATCH_SHARE) * counts.total()
    if is_code:
        return DATES if counts["text"] >= needed else ()
    if counts["text"] and counts["a number"] and counts["text"] + counts["a number"] >= needed:
        return KINDS["text"]
    type_, count = max(counts.items(), key=lambda item: item[1])
    return KINDS.get(type_, COLUMN_TYPES) if count >= needed else ()


def _parsed_row(line: str) -> dict[str, object] | str:
    """Return the object of a line, its numbers as they are written; or why it is not usable."""
    try:
        found = json.loads(line, parse_int=JsonNumber, parse_float=JsonNumber, object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        return "not JSON"
    return found if isinstance(found, dict) else f"{_type_name(found)}, not an object"


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is repeated")
    return found


def _type_name(value: object) -> str:
    match value:
        case dict():
            return "an object"
        case list():
            return "a list"
        case bool():
            return "true or false"
        case JsonNumber() | float():
            return "a number"
        case str():
            return "text"
        case _:
            return "null"


def _text(value: object) -> str | None:
    match value:
        case None | str():
            return value
        case bool():
            return "true" if value else "false"
        case _:
            return str(value)
