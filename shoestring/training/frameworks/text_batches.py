"""The rows of texts that a network computes at once outside a training step."""

from __future__ import annotations

MAX_ROWS, MAX_LOGITS = 8192, 1 << 24
"""At most this many rows, and logits, which are 64 MB."""


def text_rows_at_once(row_tokens: int, vocabulary: int) -> int:
    """Return the rows whose logits fit. `vocabulary`: the logits of each token of a row."""
    return max(1, min(MAX_ROWS, MAX_LOGITS // max(1, row_tokens * vocabulary)))
