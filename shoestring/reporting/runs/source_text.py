"""The source files of a recipe, compared with those of its newest data set, as text."""

from __future__ import annotations

from collections.abc import Iterator

from shoestring.data.lineage.file_states import FileCheck, FileState, SourceCheck
from shoestring.reporting.number_text import quantity, size, utc_time

MAX_FILES = 20
"""Files that are shown of each state; the JSON has all."""

STATES: dict[FileState, str] = {
    "rewritten": "changed, though its size and time (or version) are the same",
    "changed": "changed",
    "added": "added",
    "removed": "removed",
}
"""The states that are shown, worst first."""


def source_lines(found: SourceCheck) -> Iterator[str]:
    """Yield what was read, and the files that differ."""
    read = [each for each in found.files if each.state != "removed"]
    files = quantity(sum(each.files for each in read), "source file")
    read_bytes = size(sum(each.size_bytes or 0 for each in read))
    ingested = f", ingested {utc_time(found.ingested_at)}" if found.ingested_at else ""
    yield f"{files} of {found.recipe} read, {read_bytes}; compared with {found.dataset}{ingested}"
    if not found.differs:
        yield "  all are as they were"
        return
    for state, text in STATES.items():
        of_state = [each for each in found.files if each.state == state]
        yield from (f"  {_name(each)} {text}{_digests(each)}" for each in of_state[:MAX_FILES])
        if len(of_state) > MAX_FILES:
            yield f"  and {len(of_state) - MAX_FILES:,} more {state}; --json lists them"
    counts = ", ".join(f"{count:,} {state}" for state, count in sorted(found.counts.items()))
    yield f"{counts}: the next run reads what differs"


def _name(check: FileCheck) -> str:
    return check.name if check.files == 1 else f"{check.name} ({check.files:,} files together)"


def _digests(check: FileCheck) -> str:
    if check.state in ("changed", "rewritten"):
        return f": {check.recorded_sha256} -> {check.found_sha256}"
    return f": {check.found_sha256 or check.recorded_sha256}"
