"""Tables out of published packages, listed in tables.json with their source and with what they mean."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from messy_cases import Case, Kind, Reading, Value

FOLDER = Path(__file__).parent


def listed() -> list[dict[str, Any]]:
    """Return the records of tables.json."""
    found: list[dict[str, Any]] = json.loads((FOLDER / "tables.json").read_text(encoding="utf-8"))
    return found


def real_cases() -> list[Case]:
    return [
        Case(
            name=each["name"],
            kind="real tables",
            file=each["file"],
            data=(FOLDER / "files" / each["file"]).read_bytes(),
            reading=reading_from(each["reading"]) if "reading" in each else None,
            refusal=tuple(each.get("refusal", ())),
            read=each.get("read", {}),
            kinds=each.get("kinds", {}),
            target=each.get("target", ""),
        )
        for each in listed()
    ]


def reading_from(record: dict[str, Any]) -> Reading:
    kinds: list[Kind] = [kind for _, kind in record["columns"]]
    return Reading(
        columns=tuple((name, kind) for name, kind in record["columns"]),
        rows=record["rows"],
        known={int(row): values_from(values, kinds) for row, values in record["known"].items()},
        missing=record["missing"],
        left_out=frozenset(record.get("left_out", ())),
    )


def values_from(values: Sequence[Value], kinds: Sequence[Kind]) -> list[Value]:
    return [
        datetime.fromisoformat(value) if kind == "time" and isinstance(value, str) else value
        for value, kind in zip(values, kinds, strict=True)
    ]
