"""Ways to change the files of a ledger."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from hypothesis import strategies as st

from shoestring.core.record import record_bytes
from shoestring.spending.ledger.entry import HashedEntry, hash_entry

BYTE_CHANGES = ("byte", "cut", "grow", "swap", "copy", "reformat")
STRAYS = ("00000099.json", "3.json", "000000003.json", "00000000.json", "notes", "x.json")


def tamper(data: st.DataObject, files: list[Path]) -> None:
    """Change one of the files in one of the possible ways."""
    way = data.draw(st.sampled_from([*BYTE_CHANGES, "delete", "reseal", "move"]))
    if way in BYTE_CHANGES:
        change_bytes(data, files, way)
    else:
        change_entry(data, files, way)


def change_bytes(data: st.DataObject, files: list[Path], way: str) -> None:
    path = data.draw(st.sampled_from(files))
    content = path.read_bytes()
    match way:
        case "byte":
            changed = bytearray(content)
            changed[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
            path.write_bytes(changed)
        case "cut":
            path.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
        case "grow":
            path.write_bytes(content + data.draw(st.binary(min_size=1, max_size=3)))
        case "swap":
            other = data.draw(st.sampled_from([other for other in files if other != path]))
            path.write_bytes(other.read_bytes())
        case "copy":
            shutil.copy(path, path.with_name(data.draw(st.sampled_from(STRAYS))))
        case "reformat":
            path.write_text(json.dumps(json.loads(content), sort_keys=True))


def change_entry(data: st.DataObject, files: list[Path], way: str) -> None:
    entries = [path for path in files if path.name != "head.json" and path.parent.name != "approvals"]
    path = data.draw(st.sampled_from(entries))
    match way:
        case "delete":
            path.unlink()
        case "reseal":
            entry = HashedEntry.model_validate_json(path.read_bytes()).entry
            reason = entry.reason + data.draw(st.text("abc", min_size=1))
            path.write_bytes(record_bytes(hash_entry(entry.model_copy(update={"reason": reason}))))
        case "move":
            folder = data.draw(st.sampled_from([other.parent for other in entries]))
            path.rename(folder / f"{len(files):08d}.json")
