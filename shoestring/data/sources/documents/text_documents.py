"""The documents of plain-text files: a file each, or the pieces between separators.

A document is kept as it is written, without a byte-order mark. It is UTF-8, and holds no zero byte.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import IO

import pyarrow as pa

from shoestring.core.datasets import TEXT_COLUMN
from shoestring.data.source import TextSettings
from shoestring.data.sources.data_file import DataFile, open_unpacked
from shoestring.data.sources.quarantine import SHOWN_ROWS, Quarantine
from shoestring.data.sources.text.encodings import guess_encoding
from shoestring.data.split_settings import SPLIT_COLUMN, split_of_name

PATH_COLUMN = "path"

MAX_DOCUMENT_BYTES = 64 << 20
"""The longest document that is read."""

BATCH_BYTES = 16 << 20
BATCH_DOCUMENTS = 4096
READ_BYTES = 1 << 20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class TextDocuments:
    """A table with a row for each document: its bytes, and the name of its file; where files are named by
    their split, that as well."""

    def __init__(self, settings: TextSettings, files: Sequence[DataFile]) -> None:
        split = [(SPLIT_COLUMN, pa.string())] if files and files[0].splits else []
        self.schema = pa.schema([(TEXT_COLUMN, pa.binary()), (PATH_COLUMN, pa.string()), *split])
        self.names = self.schema.names
        self.files = files
        self._separator = settings.separator.encode()
        self._guesses = 0

    def batches(self, quarantine: Quarantine) -> Iterator[pa.Table]:
        """Yield the documents, and quarantine those that are no text or too long. A file without text is one
        empty document. Raises DataError.
        """
        texts: list[bytes] = []
        paths: list[str] = []
        size_bytes = 0
        for file in self.files:
            for number, path, text in self.documents(file, quarantine):
                if reason := self._misfit(text):
                    quarantine.add(file.name, number, reason, "")
                    continue
                texts.append(text or b"")
                paths.append(path)
                size_bytes += len(texts[-1])
                if size_bytes >= BATCH_BYTES or len(texts) == BATCH_DOCUMENTS:
                    yield self._table(texts, paths)
                    texts, paths, size_bytes = [], [], 0
        yield self._table(texts, paths)

    def _table(self, texts: Sequence[bytes], paths: Sequence[str]) -> pa.Table:
        splits = [[split_of_name(path.partition("#")[0]) for path in paths]] if len(self.names) > 2 else []
        return pa.table([texts, paths, *splits], self.schema)

    def peek(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """Yield these columns of the documents that can be used."""
        for rows in self.batches(Quarantine("", io.StringIO())):
            yield rows.select(list(names))

    def documents(self, file: DataFile, quarantine: Quarantine) -> Iterator[tuple[int, str, bytes | None]]:
        """Yield the documents of a file, each with its number and path; None in place of one that is too
        long. Blank pieces between separators are none. Raises DataError."""
        found = 0
        with open_unpacked(file) as stream:
            for index, piece in enumerate(_pieces(stream, self._separator)):
                text = piece.removeprefix(BYTE_ORDER_MARK) if piece is not None and not index else piece
                if text is None or text.strip():
                    found += 1
                    yield found, file.name, text
        if not found:
            yield 1, file.name, b""

    def _misfit(self, text: bytes | None) -> str:
        """Return why a document cannot be used; empty if it can."""
        if text is None:
            return (
                f"a document of more than {MAX_DOCUMENT_BYTES >> 20} MB: divide it by `text.separator`, "
                r'such as "\n"'
            )
        try:
            text.decode()
        except UnicodeDecodeError:
            # A guess takes a tenth of a second. Only the first documents are shown.
            self._guesses += 1
            guess = guess_encoding(text.splitlines(keepends=True)) if self._guesses <= SHOWN_ROWS else ""
            return f"not UTF-8 text, seems to be {guess}" if guess else "not UTF-8 text"
        return "zero bytes, so no text, or UTF-16" if b"\0" in text else ""


def _pieces(stream: IO[bytes], separator: bytes) -> Iterator[bytes | None]:
    """Yield what lies between the separators; None in place of a piece that is too long. An empty separator
    divides nothing."""
    if not separator:
        text = stream.read(MAX_DOCUMENT_BYTES + 1)
        yield None if len(text) > MAX_DOCUMENT_BYTES else text
        return
    piece, tail = PieceOfText(), b""
    while block := stream.read(READ_BYTES):
        *ended, last = (tail + block).split(separator)
        for each in ended:
            piece.add(each)
            yield piece.take()
        # The end may be the start of a separator.
        end = max(0, len(last) - len(separator) + 1)
        piece.add(last[:end])
        tail = last[end:]
    piece.add(tail)
    yield piece.take()


class PieceOfText:
    """A piece that arrives in blocks. One that is too long is not kept."""

    def __init__(self) -> None:
        self._blocks: list[bytes] = []
        self._size_bytes = 0

    def add(self, block: bytes) -> None:
        self._size_bytes += len(block)
        if self._size_bytes > MAX_DOCUMENT_BYTES:
            self._blocks.clear()
        else:
            self._blocks.append(block)

    def take(self) -> bytes | None:
        """Return the piece, and begin another; None: it was too long."""
        found = None if self._size_bytes > MAX_DOCUMENT_BYTES else b"".join(self._blocks)
        self._blocks, self._size_bytes = [], 0
        return found
