"""The name of an attempt: it is printed as STAGE-N and parsed back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoestring.core.attempt_id import AttemptId

STAGES = st.from_regex(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", fullmatch=True)


@given(STAGES, st.integers(1, 10**6))
def test_a_printed_attempt_is_parsed_back(stage: str, number: int) -> None:
    attempt = AttemptId("r", stage, number)
    assert AttemptId.parse("r", str(attempt)) == attempt


def test_attempts_at_a_stage_are_ordered_by_number() -> None:
    names = ["train-10", "train-2", "train-1"]
    assert [each.number for each in sorted(AttemptId.parse("r", name) for name in names)] == [1, 2, 10]


@pytest.mark.parametrize("text", ["", "train", "train-", "-1", "train-one", "train-1.json"])
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not STAGE-N"):
        AttemptId.parse("r", text)
