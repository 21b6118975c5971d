"""The settings that a recipe on texts has where it names none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shoestring.core.datasets import TEXT_COLUMN

TARGET = {"column": TEXT_COLUMN, "task": "next_token"}
"""What a recipe on texts predicts."""

KEYS_OF_TABLES = ("max_embedding_dim", "bins", "category_dropout")
"""Training settings that recipes on texts had in version 4, where nothing read them."""


def with_text_defaults(data: Any) -> Any:
    """Return the keys of a recipe with those that texts imply; of any other recipe as they are."""
    if not isinstance(data, dict) or not isinstance(tables := data.get("source"), dict):
        return data
    if not any(isinstance(table, dict) and table.get("text") is not None for table in tables.values()):
        return data
    train = {"train": text_section(data["train"])} if "train" in data else {}
    return {"target": TARGET, **data, **train}


def text_section(train: Any) -> Any:
    """Return the section `train` of a recipe on texts with the family, unless it names one."""
    if not isinstance(train, Mapping) or "family" in train:
        return train
    return {"family": "text_net", **{key: train[key] for key in train if key not in KEYS_OF_TABLES}}


def require_texts_alone(target: Mapping[str, Any], given: Mapping[str, bool]) -> None:
    """Check that a recipe on texts has nothing that only tables have. Raises ValueError.

    `given`: what it may not have, and whether it has.
    """
    if target != {"above": None, **TARGET}:
        raise ValueError("texts have no target, since their next byte is predicted: remove `target`")
    if extra := [name for name, is_given in given.items() if is_given]:
        raise ValueError(f"texts are used alone: remove {' and '.join(extra)}")
