"""Pack documents into rows of tokens, all of one length.

The documents of a split follow one another, each after a start token. A row begins with the last token of the
row before, as its context, so that each token of a document is predicted exactly once. The last row of a
part ends with padding.

Shape suffixes: R rows; T tokens of a row; S tokens of all documents.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from shoestring.core.datasets import GROUP_COLUMN, TARGET_COLUMN, TOKENS_COLUMN, Vocabulary
from shoestring.data.transforms.split import Groups
from shoestring.data.transforms.texts.byte_tokens import Tokens


class TokenCodec(Protocol):
    """Turns documents into tokens. `token_bytes` int32[vocabulary]: the bytes of text of each token."""

    dtype: np.dtype[Any]
    token_bytes: np.ndarray[Any, np.dtype[np.int32]]
    vocabulary: Vocabulary

    def encode(self, document: bytes) -> Tokens: ...


def pack_rows(documents: list[bytes], groups: Groups, tokens: TokenCodec, row_tokens: int) -> pa.Table:
    """Return the documents of one split as rows, in order. `groups`: int32[documents].

    `_tokens` holds uint8[T] or uint16[T]; `y` the bytes of text that the predicted tokens stand for; `_group`
    the group of the document that they begin with.
    """
    start = np.array([tokens.vocabulary.start], tokens.dtype)
    pieces = [each for document in documents for each in (start, tokens.encode(document))]
    stream_S = np.concatenate(pieces) if pieces else start
    group_S = np.repeat(groups, [1 + len(encoded) for encoded in pieces[1::2]])
    rows_RT = _rows(stream_S, row_tokens, tokens.vocabulary.padding)
    target_bytes_R = tokens.token_bytes[rows_RT[:, 1:]].sum(axis=1, dtype=np.int32)
    data = np.ascontiguousarray(rows_RT, tokens.dtype.newbyteorder("<")).view(np.uint8)
    width = row_tokens * tokens.dtype.itemsize
    return pa.table(
        {
            TARGET_COLUMN: _int32(target_bytes_R),
            TOKENS_COLUMN: pa.Array.from_buffers(pa.binary(width), len(data), [None, pa.py_buffer(data)]),
            GROUP_COLUMN: _int32(group_S[1 :: row_tokens - 1]),
        }
    )


def _rows(stream_S: Tokens, row_tokens: int, padding: int) -> Tokens:
    """Return rows [R, T], each of which begins with the last token of the row before."""
    step = row_tokens - 1
    count = -(-(len(stream_S) - 1) // step)
    padded = np.pad(stream_S, (0, count * step + 1 - len(stream_S)), constant_values=padding)
    if not count:
        return np.zeros((0, row_tokens), stream_S.dtype)
    windows: Any = np.lib.stride_tricks.sliding_window_view(padded, row_tokens)
    rows_RT: Tokens = windows[::step]
    return rows_RT


def _int32(values: np.ndarray[Any, np.dtype[np.int32]]) -> pa.Array:
    found = np.ascontiguousarray(values, np.int32)
    return pa.Array.from_buffers(pa.int32(), len(found), [None, pa.py_buffer(found)])
