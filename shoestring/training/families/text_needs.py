"""The memory that families for texts share: the logits of the tokens, most of it with a large vocabulary."""

from __future__ import annotations

from shoestring.training.families.data_shape import DataShape

TRAIN_LOGIT_COPIES, EVALUATE_LOGIT_COPIES = 4, 2
"""Copies of the logits that are in memory at once: of a batch in a step of training, and in evaluation of one
row where it is long (short rows are computed several at a time, which takes less than MEMORY_GB)."""

MEMORY_GB = 1.2


def text_memory_gb(shape: DataShape, rows: int) -> float:
    """Return the memory of a training or an evaluation with this many copies of the logits of a row."""
    return MEMORY_GB + 4 * rows * shape.row_tokens * shape.vocabulary / 1e9
