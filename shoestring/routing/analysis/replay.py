"""Make a recorded decision again from its question, and compare every byte."""

from __future__ import annotations

import difflib
from typing import Literal

from pydantic import ValidationError

from shoestring.core.errors import UsageError
from shoestring.core.record import SCHEMA_VERSION, Record, record_bytes
from shoestring.routing.algorithm import ALGORITHM_VERSION
from shoestring.routing.decide import decide
from shoestring.routing.decision import Decision


class Replay(Record):
    """The result of a replay. `text` is a unified diff, or why the decision cannot be replayed.

    same: the same decision, byte for byte; differs: the current code makes another one of the question, so
    the code or the record was changed; not-replayable: another version of the algorithm made it.
    """

    verdict: Literal["same", "differs", "not-replayable"]
    text: str = ""


def replay(data: bytes) -> Replay:
    """Enumerate the offers of a recorded question and choose among them again.

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
    version = recorded.algorithm.algorithm_version
    if version != ALGORITHM_VERSION:
        return Replay(
            verdict="not-replayable",
            text=f"not replayable: version {version} of the algorithm made it, and this code has version "
            f"{ALGORITHM_VERSION}; replay it with the code of that time",
        )
    decision = decide(recorded.question)
    if recorded.schema_version != SCHEMA_VERSION:
        # A decision of the version before is the same one in this form.
        data = record_bytes(recorded)
    remade = record_bytes(decision.model_copy(update={"schema_version": recorded.schema_version}))
    if remade == data:
        return Replay(verdict="same")
    before, after = data.decode().splitlines(keepends=True), remade.decode().splitlines(keepends=True)
    difference = "".join(difflib.unified_diff(before, after, "recorded", "remade"))
    return Replay(verdict="differs", text=difference or "the lines are equal, the line endings differ\n")
