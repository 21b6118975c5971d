"""Reading records that another version wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shoestring.backends.folder_store import FolderStore
from shoestring.core.errors import DataError
from shoestring.data.run_records import read_record, read_records
from shoestring.routing.decision import Decision

KEY = "runs/r/decisions/ingest-1.json"


def test_a_record_of_another_version_is_refused_for_its_version_only(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.put(KEY, json.dumps({"schema_version": 1, "candidates": [], "unknown": 3}).encode())
    with pytest.raises(DataError) as refused:
        read_record(store, KEY, Decision)
    message = str(refused.value)
    assert (
        "schema version 1 is not readable" in message
        and "use the version of Shoestring that wrote it" in message
    )
    assert len(message) < 250
    found, (note,) = read_records(store, [KEY], Decision)
    assert found == [] and note.startswith("1 of 1 records were skipped") and message in note
