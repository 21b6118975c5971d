"""When the router chooses shards: few passes over what a store sends, or no room for a copy."""

from __future__ import annotations

from typing import Any

from routing_cases import PACKED, PARQUET, PREPROCESS, TRAIN, laptop_question

from shoestring.core.types import Format
from shoestring.pricing.format_speeds import StoreFetch
from shoestring.routing.decide import decide

SHARDS = PARQUET.model_copy(update={"format": Format.SHARDS})


def chosen(passes: float, room_bytes: int = 10**12, **changes: Any) -> Format | None:
    need = TRAIN.model_copy(update={"passes": passes, "min_passes": passes})
    question = laptop_question(
        needs=(PREPROCESS, need),
        speeds=(PACKED, PARQUET, SHARDS),
        fetching=StoreFetch(bytes_per_s=10**6, room_bytes=room_bytes),
        **changes,
    )
    choice = decide(question).choice
    assert choice is not None
    return choice.format


def test_shards_are_written_for_a_share_of_a_pass_and_a_file_for_several() -> None:
    assert chosen(0.2) is Format.SHARDS
    assert chosen(3) is Format.PARQUET


def test_shards_are_written_where_a_copy_has_no_room() -> None:
    assert chosen(3, room_bytes=1) is Format.SHARDS
