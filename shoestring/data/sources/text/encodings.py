"""The encoding of a text file: stated, shown by its first bytes, or guessed; and its text as valid UTF-8."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterable
from itertools import islice, pairwise
from statistics import fmean
from typing import Protocol

from shoestring.core.errors import DataError

UTF8 = "utf-8"

GUESSED_LINES = 200
"""The encoding is guessed from the first lines that are not UTF-8."""

BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, UTF8),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
MARK = "\ufeff"
REPLACED = "\ufffd"
"""The character for bytes that are not text."""

MIN_ZERO_SHARE = 0.3
"""UTF-16 without a mark has a zero byte for each character of ASCII, all at odd or all at even places."""

WESTERN = "äöüßéèêëàâçñóíúáåæøîïôûãõœ"
LETTERS = {
    "cp1252": WESTERN,
    "cp1250": "áéíóúýčďěňřšťůžłąęćńśźżőűöüäßăâîşţđ",
    "iso8859_2": "áéíóúýčďěňřšťůžłąęćńśźżőűöüäßăâîşţđ",
    "cp1254": "çğıİöşüâîû",
    "cp850": WESTERN,
    "mac_roman": WESTERN,
}
"""The letters beyond ASCII that are common in languages for which these encodings are used. Of two that fit
equally well, the first is taken."""
VOWELS = tuple("aeiouáéíóú")
SYMBOLS = "€£§°–—‘’“”„…«»½¼¾²³µ·©®×±"

SCRIPTS = (
    "cp1251",
    "koi8_r",
    "cp1253",
    "cp1255",
    "cp1256",
    "cp932",
    "gb18030",
    "big5",
    "cp949",
    "euc_jp",
    "cp874",
)
"""Encodings of text in which most letters are beyond ASCII."""

MIN_PLAUSIBLE = 0.5
FIRST_GUESS_BONUS = 0.25
"""cp1252, which holds Latin-1, is by far the most frequent."""
DENSE = re.compile(rb"[\x80-\xff]{3,}")
"""Bytes of text in another script. Western text has two such bytes in a row at most, as in Größe."""


def find_encoding(head: bytes, name: str, stated: str | None) -> str:
    """Return the encoding of a file that begins with `head`. Raises DataError if none is likely."""
    if stated is not None:
        return codecs.lookup(stated).name
    for mark, encoding in BYTE_ORDER_MARKS:
        if head.startswith(mark):
            return encoding
    if wide := _zero_bytes(head):
        return wide
    return UTF8 if is_utf8(head) else foreign_encoding(head, name)


def _zero_bytes(head: bytes) -> str:
    for encoding, zeros in (("utf-16-le", head[1::2]), ("utf-16-be", head[::2])):
        if len(zeros) and zeros.count(0) >= max(MIN_ZERO_SHARE * len(zeros), 0.9 * head.count(0), 1):
            return encoding
    return ""


def is_utf8(data: bytes) -> bool:
    """Return whether bytes are UTF-8; the last character may be cut."""
    try:
        codecs.getincrementaldecoder(UTF8)().decode(data)
    except UnicodeDecodeError:
        return False
    return True


def foreign_encoding(data: bytes, name: str) -> str:
    """Return the encoding of text that is not all UTF-8; UTF-8 if most of its lines beyond ASCII are, so
    that the others are damaged. Raises DataError if none is likely."""
    beyond = [line for line in data.splitlines() if not line.isascii()]
    foreign = [line for line in beyond if not is_utf8(line)]
    if len(foreign) < len(beyond) / 2:
        return UTF8
    if guess := guess_encoding(foreign):
        return guess
    raise DataError(
        f"{name} is not UTF-8 text, and no other encoding fits it: state its encoding, such as "
        "`read: {encoding: cp437}` in the source of the table, or save the file as UTF-8"
    )


def guess_encoding(lines: Iterable[bytes]) -> str:
    """Return the likely encoding of lines of which some are not UTF-8; empty if none is likely."""
    foreign = b"\n".join(islice((line for line in lines if not is_utf8(line)), GUESSED_LINES))
    if not foreign:
        return ""
    for mark, encoding in BYTE_ORDER_MARKS:
        if foreign.startswith(mark):
            return encoding
    beyond = sum(byte > 0x7F for byte in foreign)
    dense = sum(map(len, DENSE.findall(foreign)))
    if dense < beyond / 2:
        scores = {encoding: _plausibility(foreign, encoding) for encoding in LETTERS}
        scores["cp1252"] += FIRST_GUESS_BONUS
        best = max(scores, key=scores.__getitem__)
        if scores[best] >= MIN_PLAUSIBLE:
            return best
    return _script_encoding(foreign)


def _plausibility(foreign: bytes, encoding: str) -> float:
    """Return how common the characters beyond ASCII are, from 0 to 1."""
    try:
        text = foreign.decode(encoding)
    except UnicodeDecodeError:
        return 0.0
    found = [each.start() for each in re.finditer(r"[^\x00-\x7f]", text)]
    places = ((text[at - 1 : at], text[at], text[at + 1 : at + 2]) for at in found)
    return fmean(_commonness(*place, LETTERS[encoding]) for place in places)


def _commonness(before: str, character: str, after: str, letters: str) -> float:
    if character == "ñ" and after not in VOWELS:
        return 0.0  # It is the ń of Gdańsk, read as cp1252.
    if character in letters:
        return 1.0
    if character.lower() in letters:  # A capital within a word of small letters is none.
        return 0.0 if before.islower() else 0.95
    if character in SYMBOLS:
        return 0.0 if (before.isalpha() or after.isalpha()) and character in "£€" else 0.8
    return 0.2 if character.isalpha() else 0.0


def _script_encoding(foreign: bytes) -> str:
    from charset_normalizer import from_bytes

    found = sorted(
        from_bytes(foreign, cp_isolation=[*SCRIPTS]),
        key=lambda each: (each.chaos, -each.coherence, _oddities(str(each)), _order(each.encoding)),
    )
    return codecs.lookup(found[0].encoding).name if found else ""


def _order(encoding: str) -> int:
    return SCRIPTS.index(encoding) if encoding in SCRIPTS else len(SCRIPTS)


def _oddities(text: str) -> int:
    """Return the capitals that follow a small letter, of which KOI8-R read as cp1251 is full, and the narrow
    katakana, of which other encodings read as cp932 are."""
    pairs = pairwise(text)
    capitals = sum(first.islower() and second.isupper() for first, second in pairs)
    return capitals + sum("\uff61" <= each <= "\uff9f" for each in text)


class ByteStream(Protocol):
    """What gives the next bytes of a file, at most `size`; empty at the end."""

    def read(self, size: int, /) -> bytes: ...


class Utf8Stream(io.RawIOBase):
    """The text of a stream in some encoding as valid UTF-8, without a byte-order mark.

    A file that begins with ASCII and goes on in another encoding is read in that encoding from there on.
    Bytes that are no text are replaced.

    Args:
        encoding: that of the text read so far.
        is_damaged: bytes were replaced.
    """

    def __init__(self, stream: ByteStream, name: str, encoding: str) -> None:
        self._stream, self._name, self.encoding = stream, name, encoding
        self.is_damaged = False
        self._is_start, self._is_ascii, self._rest = True, True, b""
        self._decoder = codecs.getincrementaldecoder(encoding)("replace")

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Return the text of the next `size` bytes, which may be longer; empty at the end. Raises
        DataError."""
        while True:
            raw = self._stream.read(size)
            data = self._plain(raw) if self.encoding == UTF8 else self._decoded(raw, is_last=not raw)
            if self._is_start and data:
                self._is_start = False
                if data.startswith(codecs.BOM_UTF8):
                    data = data[len(codecs.BOM_UTF8) :]
            if data or not raw:
                return data

    def _plain(self, raw: bytes) -> bytes:
        """Return what is UTF-8 already, which is several times as fast as decoding it."""
        if not self._rest and raw.isascii():
            return raw
        data, self._rest = self._rest + raw, b""
        try:
            data.decode()
        except UnicodeDecodeError as error:
            if raw and error.end == len(data) and error.reason == "unexpected end of data":
                data, self._rest = data[: error.start], data[error.start :]
            else:
                self._is_ascii &= data[: error.start].isascii()
                return self._changed(data, is_last=not raw)
        self._is_ascii &= data.isascii()
        return data

    def _changed(self, data: bytes, *, is_last: bool) -> bytes:
        """Return text that is not UTF-8: in another encoding, or damaged."""
        if self._is_ascii:
            self.encoding = foreign_encoding(data, self._name)
        self._decoder = codecs.getincrementaldecoder(self.encoding)("replace")
        if self.encoding == UTF8:
            self.is_damaged = True
            cut = len(data) if is_last else data.rfind(b"\n") + 1 or len(data)
            data, self._rest = data[:cut], data[cut:]
            return data.decode(errors="replace").encode()
        return self._decoded(data, is_last=is_last)

    def _decoded(self, raw: bytes, *, is_last: bool) -> bytes:
        text = self._decoder.decode(raw, is_last)
        if REPLACED in text:
            self.is_damaged = True
        return text.removeprefix(MARK).encode() if self._is_start else text.encode()
