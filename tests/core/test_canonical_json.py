"""Records are written byte for byte as the standard library writes JSON, since their hashes depend on it, and
arguments without the templates of an engine.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, JsonValue

from shoestring.core.record import argument_json, record_bytes

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


BRACES = st.text('{}\\u07b"$=. a')
OF_BRACES = st.recursive(
    BRACES | st.none() | st.integers(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(BRACES, inner, max_size=4),
    max_leaves=20,
)


@given(value=OF_BRACES)
def test_an_argument_is_the_same_value_and_holds_no_template(value: Any) -> None:
    for text in (argument_json({"value": value}), argument_json(RecordOfAny(value=value))):
        assert json.loads(text) == {"value": value}
        assert "{{" not in text


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [-float("inf")]])
def test_numbers_that_json_cannot_represent_are_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        record_bytes(RecordOfAny.model_construct(value=value))
