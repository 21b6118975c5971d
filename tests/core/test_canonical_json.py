"""Records are written byte for byte as the standard library writes JSON, since their hashes depend on it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, JsonValue

from shoestring.core.record import record_bytes

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


class RecordOfAny(BaseModel):
    value: JsonValue


@given(value=VALUES)
def test_a_record_is_written_as_the_standard_library_writes_it_with_sorted_keys(value: Any) -> None:
    assert (
        record_bytes(RecordOfAny(value=value)).decode()
        == json.dumps({"value": value}, sort_keys=True, indent=1, allow_nan=False) + "\n"
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [-float("inf")]])
def test_numbers_that_json_cannot_represent_are_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        record_bytes(RecordOfAny.model_construct(value=value))
