"""A blend as it is stored. No library of a member is needed to take it apart."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from shoestring.data.families import FamilySettings, settings_of


def blend_bytes(
    settings: Sequence[FamilySettings], members: Sequence[bytes], weights: Sequence[float]
) -> bytes:
    """Return a blend as it is stored: a line of JSON, and the weights of each member as its family stores
    them."""
    content = {
        "weights": [*weights],
        "members": [each.model_dump(mode="json") for each in settings],
        "bytes": [len(each) for each in members],
    }
    return _json(content) + b"\n" + b"".join(members)


def taken_apart(weights: bytes) -> tuple[bytes, list[tuple[FamilySettings, bytes]]]:
    """Return the line of a stored blend, and the settings and weights of each member."""
    line, _, rest = weights.partition(b"\n")
    content = json.loads(line)
    ends = [0, *accumulate(content["bytes"])]
    members = [
        (settings_of(section), rest[start:end])
        for section, start, end in zip(content["members"], ends, ends[1:], strict=False)
    ]
    return line, members


def put_together(line: bytes, member: Callable[[int, FamilySettings], bytes]) -> bytes:
    """Return the stored blend of such a line. `member`: returns the weights of a member by number, from 1."""
    content = json.loads(line)
    members = [member(at, settings_of(section)) for at, section in enumerate(content["members"], 1)]
    return _json({**content, "bytes": [*map(len, members)]}) + b"\n" + b"".join(members)


def _json(content: dict[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()
