"""The rows of a CSV file as Arrow can read them: UTF-8, without header and comments, quotes doubled."""

from __future__ import annotations

import io
import re
from typing import IO

import pyarrow as pa

from shoestring.data.sources.text.dialect import Dialect, is_comment, lines_of
from shoestring.data.sources.text.encodings import Utf8Stream

TAIL_BYTES = 1 << 14
"""The end of the text that is kept."""


class TableText(io.RawIOBase):
    """The rows in a stream of text, without its first `skipped_bytes`. It ends where it is stopped.

    `has_late_escapes`: quotes follow a backslash, though not at the start of the file.
    """

    def __init__(self, stream: Utf8Stream, dialect: Dialect, skipped_bytes: int) -> None:
        self._stream, self._dialect, self._to_skip = stream, dialect, skipped_bytes
        self._is_plain = not (dialect.comment or dialect.has_escapes or dialect.has_padding)
        self._ready, self._cut, self._is_quoted = b"", b"", False
        self.is_stopped = self.has_late_escapes = False
        quote = re.escape(dialect.quote.encode())
        is_watched = bool(quote) and not dialect.has_escapes
        self._escape = re.compile(rb"[^\\]\\" + quote + rb"[^,;|\t\r\n]") if is_watched else None
        self._tail = b""

    @property
    def tail(self) -> str:
        """The end of the text so far."""
        return self._tail.decode(errors="ignore")

    def stop(self) -> None:
        self.is_stopped = True

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Return at most `size` bytes; empty at the end."""
        while not self._ready and not self.is_stopped:
            data = self._stream.read(size)
            is_last = not data
            if self._escape is not None and b"\\" in data and self._escape.search(data):
                self.has_late_escapes = True
            if self._to_skip:
                skipped = min(self._to_skip, len(data))
                data, self._to_skip = data[skipped:], self._to_skip - skipped
            self._ready = data if self._is_plain else self._rewritten(data, is_last=is_last)
            if is_last:
                break
        if self.is_stopped:
            return b""
        if size < 0 or len(self._ready) <= size:
            found, self._ready = self._ready, b""
        else:
            found, self._ready = self._ready[:size], self._ready[size:]
        self._tail = (self._tail + found[-TAIL_BYTES:])[-TAIL_BYTES:]
        return found

    def read_buffer(self, size: int) -> pa.Buffer:
        """Return what `read` returns in memory of Arrow, which calls this, where both are there."""
        data = self.read(size)
        buffer = pa.allocate_buffer(len(data))
        memoryview(buffer).cast("B")[:] = data
        return buffer

    def _rewritten(self, data: bytes, *, is_last: bool) -> bytes:
        """Return the whole lines of the text so far, as Arrow can read them."""
        data = self._cut + data
        end = len(data) if is_last else max(data.rfind(b"\n"), data.rfind(b"\r", 0, -1)) + 1
        self._cut = data[end:]
        text = data[:end].decode()
        if self._dialect.comment:
            text = self._without_comments(text)
        return self._dialect.plain(text).encode()

    def _without_comments(self, text: str) -> str:
        lines = lines_of(text)
        comments = is_comment(lines, self._dialect, is_quoted=self._is_quoted)
        kept = "".join(line for line, each in zip(lines, comments, strict=True) if not each)
        if self._dialect.quote:
            self._is_quoted ^= bool(kept.count(self._dialect.quote) % 2)
        return kept


class ReusedBuffer:
    """The bytes of a stream in one buffer, which the next `read` fills again: use them before. A new buffer
    of 8 MB has 2,000 pages, which the system would have to clear each time."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._buffer = stream, bytearray()

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes; empty at the end."""
        if len(self._buffer) != size:
            self._buffer = bytearray(size)
        count = self._stream.readinto(self._buffer)  # type: ignore[attr-defined]
        # A bytearray, which is read as bytes are.
        return self._buffer if count == size else self._buffer[:count]  # type: ignore[return-value]
