"""The settings that a recipe on texts has where it names none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shoestring.core.datasets import TEXT_COLUMN

TARGET = {"column": TEXT_COLUMN, "task": "next_token"}
"""What a recipe on texts predicts."""

TRAIN = {"hidden": (64, 64, 64, 64), "batch_rows": 8, "learning_rate": 0.004, "dropout": 0.05}
"""The training settings for texts, tuned on 4 MB of English: a row is 512 samples."""


def with_text_defaults(data: Any) -> Any:
    """Return the keys of a recipe with those that texts imply; of any other recipe as they are."""
    if not isinstance(data, dict) or not isinstance(tables := data.get("source"), dict):
        return data
    if not any(isinstance(table, dict) and table.get("text") is not None for table in tables.values()):
        return data
    if not isinstance(train := data.get("train", {}), dict):
        return data
    return {"target": TARGET, **data, "train": {**TRAIN, **train}}


def require_texts_alone(target: Mapping[str, Any], given: Mapping[str, bool], hidden: Sequence[int]) -> None:
    """Check that a recipe on texts has nothing that only tables have. Raises ValueError.

    `given`: what it may not have, and whether it has.
    """
    if target != {"above": None, **TARGET}:
        raise ValueError("texts have no target, since their next byte is predicted: remove `target`")
    if extra := [name for name, is_given in given.items() if is_given]:
        raise ValueError(f"texts are used alone: remove {' and '.join(extra)}")
    if len({*hidden}) > 1:
        raise ValueError("train.hidden: all layers of a net for texts have the same number of units")
