"""Check that the current code makes a recorded decision again, byte for byte."""

from __future__ import annotations

import difflib

from pydantic import ValidationError

from shoestring.core.errors import UsageError
from shoestring.core.record import record_bytes
from shoestring.routing.decide import choose
from shoestring.routing.decision import Decision


def replay(data: bytes) -> str | None:
    """Make a recorded decision again from its question and candidates. Return None if identical, else a
    unified diff.

    Raises:
        UsageError: the bytes do not hold a decision.
    """
    try:
        recorded = Decision.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(step) for step in first["loc"]) or "the file"
        raise UsageError(
            f"this is not a decision: {field}: {first['msg']}; give the JSON file that a route step wrote"
        ) from None
    remade = record_bytes(choose(recorded.question, recorded.candidates))
    if remade == data:
        return None
    before, after = data.decode().splitlines(keepends=True), remade.decode().splitlines(keepends=True)
    return (
        "".join(difflib.unified_diff(before, after, "recorded", "remade"))
        or "the lines are equal, the line endings differ\n"
    )
