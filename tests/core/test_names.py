"""A name that becomes a part of a store's key is checked where it enters."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from shoestring.core.types import Need, Pool

OUTSIDE = ["../../x", "..", ".", "/x", "a//b", "a\\b", "a\nb", "", "x" * 300]


@pytest.mark.parametrize("name", [*OUTSIDE, "a/b", "a b", "-a", "a" * 64])
def test_a_stage_has_a_name_that_keys_and_labels_can_contain(name: str) -> None:
    for wrong in ({"stage": name}, {"stage": "own", "after": (name,)}):
        with pytest.raises(ValidationError):
            Need.model_validate(wrong)
    assert Need(stage="own_stage-2", after=("ingest",)).stage == "own_stage-2"


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_pool_has_a_name_that_keys_can_contain(name: str) -> None:
    for wrong in ({"name": name}, {"name": "cpu", "node_pool": name}):
        with pytest.raises(ValidationError):
            Pool.model_validate({"cores": 1, "memory_gb": 4.0} | wrong)
    assert Pool(name="gpu pool/1gpu", node_pool="gpu pool", cores=1, memory_gb=4.0).cores == 1
