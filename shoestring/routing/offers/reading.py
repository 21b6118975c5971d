"""How stages read data sets: copied to the stage's volume once, or streamed from the store in every pass."""

from __future__ import annotations

from shoestring.core.types import Format, Need
from shoestring.pricing.format_speeds import FormatSpeed
from shoestring.routing.candidates import NONE, StoredFormats
from shoestring.routing.dag import Dag
from shoestring.routing.question import Question


def read_passes(need: Need, stored: Format | None) -> float:
    """Return how often a stage gets the bytes of a data set from the store: shards that are read in random
    order in every pass that it makes at most, all others once, since a loader keeps what it decoded.
    """
    return need.passes if stored is Format.SHARDS and need.reads == "shuffled" else 1.0


def read_seconds(question: Question, need: Need, speed: FormatSpeed, row_bytes: int) -> float:
    """Return the seconds for getting and decoding a row, in all passes."""
    seconds = speed.scan_ns_per_row / 1e9 + row_bytes / speed.scan_bytes_per_s
    if question.fetching is not None:
        seconds += row_bytes * speed.size_ratio / question.fetching.bytes_per_s
    return seconds * read_passes(need, speed.format)


def writable_formats(question: Question, dag: Dag, formats: StoredFormats, stage: int) -> tuple[int, ...]:
    """Return the indices of the formats that a stage may write: shards alone if a later stage reads the data
    set in random order and cannot copy it to its volume.
    """
    row_bytes, fetching = question.needs[stage].writes_bytes_per_row, question.fetching
    if not row_bytes:
        return (NONE,)
    everything = tuple(range(len(formats)))
    is_shuffled = any(
        need.reads == "shuffled" and stage in dag.sources[later] for later, need in enumerate(question.needs)
    )
    if fetching is None or not is_shuffled or question.rows * row_bytes <= fetching.room_bytes:
        return everything
    return tuple(each for each in everything if formats[each][0] is Format.SHARDS) or everything
