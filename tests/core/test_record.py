"""Records of another schema version are refused with one sentence that names both versions."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from shoestring.core.record import SCHEMA_VERSION, record_bytes, validation_message
from shoestring.core.types import StockOut

STOCK_OUT = StockOut.model_validate(
    {
        "node_pool": "gpu",
        "market": "spot",
        "at": "2026-11-01T12:00:00Z",
        "until": "2026-11-01T12:15:00Z",
        "reason": "no node",
    }
)


@pytest.mark.parametrize("version", [1, SCHEMA_VERSION - 2, SCHEMA_VERSION + 1])
def test_the_message_names_both_versions_and_nothing_else(version: int) -> None:
    written = json.loads(record_bytes(STOCK_OUT)) | {"schema_version": version, "why": "an older field"}
    with pytest.raises(ValidationError) as refused:
        StockOut.model_validate(written)
    assert validation_message(refused.value) == (
        f"schema version {version} is not readable: "
        f"this version of Shoestring reads schema versions {SCHEMA_VERSION - 1} and {SCHEMA_VERSION}"
    )


def test_a_record_of_this_version_is_read_back() -> None:
    assert StockOut.model_validate_json(record_bytes(STOCK_OUT)) == STOCK_OUT


def test_a_record_of_the_version_before_is_read_and_keeps_its_bytes() -> None:
    written = json.loads(record_bytes(STOCK_OUT)) | {"schema_version": SCHEMA_VERSION - 1}
    read = StockOut.model_validate(written)
    assert json.loads(record_bytes(read)) == written
