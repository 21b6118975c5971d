"""Spreadsheets, which are not read: the error that names their sheets."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import suppress
from xml.etree import ElementTree

from shoestring.core.errors import RecipeError
from shoestring.data.sources.data_file import DataFile

SUFFIXES = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")

SHEETS = {"xl/workbook.xml": ("sheet", "name"), "content.xml": ("table", "name")}
"""Where the names of the sheets are, of Excel and of OpenDocument: the element and the attribute."""

MAX_XML_BYTES = 16 << 20
MAX_SHEETS = 5
"""The sheets that are named in the error."""


def is_spreadsheet(file: DataFile) -> bool:
    """Return whether a file is a spreadsheet by its name, and not the lock of an open one."""
    return file.name.lower().endswith(SUFFIXES) and not file.name.rpartition("/")[2].startswith("~$")


def spreadsheet_error(file: DataFile) -> RecipeError:
    """Return the error of a spreadsheet among the files of a source."""
    sheets = _sheets(file)
    more = f" and {len(sheets) - MAX_SHEETS} more" if len(sheets) > MAX_SHEETS else ""
    named = f" with the sheet{'s' * (len(sheets) > 1)} {', '.join(map(repr, sheets[:MAX_SHEETS]))}{more}"
    return RecipeError(
        f"{file.name} is a spreadsheet{named if sheets else ''}, which is not read: save the sheet with the "
        "rows as CSV, and name that file in the recipe, or put it where this one is"
    )


def _sheets(file: DataFile) -> list[str]:
    """Return the names of the sheets; none of a file that is damaged, or in a format without XML."""
    with (
        suppress(zipfile.BadZipFile, ElementTree.ParseError, OSError, NotImplementedError, RuntimeError),
        zipfile.ZipFile(file.start()) as archive,
    ):
        for member in SHEETS.keys() & {*archive.namelist()}:
            with archive.open(member) as stream:
                return [*_names(stream.read(MAX_XML_BYTES), *SHEETS[member])]
    return []


def _names(xml: bytes, tag: str, attribute: str) -> Iterator[str]:
    """Yield an attribute of all elements of a name, in the part of a document that was read. Raises
    ParseError."""
    parser: ElementTree.XMLPullParser[ElementTree.Element] = ElementTree.XMLPullParser(["start"])
    parser.feed(xml)
    for event in parser.read_events():
        element = event[-1]
        if isinstance(element, ElementTree.Element) and element.tag.rpartition("}")[2] == tag:
            yield from (text for name, text in element.items() if name.rpartition("}")[2] == attribute)
