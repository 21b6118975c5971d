"""Tokens that are the bytes of UTF-8. Two bytes that UTF-8 never uses mark where documents start, and
padding."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoestring.core.datasets import Vocabulary

Tokens = np.ndarray[Any, np.dtype[np.unsignedinteger[Any]]]

START, PADDING, SIZE = 0xFE, 0xFF, 0x100


class ByteTokens:
    """Documents as their bytes."""

    vocabulary = Vocabulary(kind="bytes", size=SIZE, start=START, padding=PADDING, bytes_per_token=1.0)
    dtype = np.dtype(np.uint8)

    token_bytes: np.ndarray[Any, np.dtype[np.int32]] = np.ones(SIZE, np.int32)
    """The bytes of text that each token stands for: int32[vocabulary]."""

    def __init__(self) -> None:
        self.token_bytes[[START, PADDING]] = 0

    def encode(self, document: bytes) -> Tokens:
        """Return the tokens of a document."""
        return np.frombuffer(document, np.uint8)
