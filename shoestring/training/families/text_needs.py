"""The memory that families for texts share: the logits of the tokens, most of it with a large vocabulary."""

from __future__ import annotations

from typing import Any

from shoestring.training.families.data_shape import DataShape
from shoestring.training.families.gpu_needs import FORWARD_SHARE, StepSize, on_gpu, predicting
from shoestring.training.frameworks.text_batches import text_rows_at_once

TRAIN_LOGIT_COPIES, EVALUATE_LOGIT_COPIES = 4, 2
"""Copies of the logits that are in memory at once: of a batch in a step of training, and in evaluation of one
row where it is long (short rows are computed several at a time, which takes less than MEMORY_GB)."""

MEMORY_GB, MICRO_BATCH_GB = 1.2, 1.0
"""The memory of any training, and what a micro-batch may take on cores: with more rows at once it would be no
faster."""


def micro_batch(step: StepSize) -> int:
    """Return the rows that a step on cores computes at once, at most a batch. There, memory is known before:
    where it ends, the kernel kills, and nothing is raised."""
    return max(1, min(step.batch_rows, int(1e9 * MICRO_BATCH_GB / (4 * step.values))))


def evaluated_on_gpu(step: StepSize, layers: int, shape: DataShape) -> dict[str, Any]:
    """Return the fields of a `Need` for a GPU in evaluation, with the values of one layer in memory. `step`:
    of training."""
    size = predicting(step, text_rows_at_once(shape.row_tokens, shape.vocabulary))
    return {**on_gpu(size, 1 / (FORWARD_SHARE * layers)), "step_us": 0.0}


def text_memory_gb(shape: DataShape, rows: int) -> float:
    """Return the memory of a training or an evaluation with this many copies of the logits of a row."""
    return MEMORY_GB + 4 * rows * shape.row_tokens * shape.vocabulary / 1e9
