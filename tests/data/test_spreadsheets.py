"""Spreadsheets are refused with the names of their sheets, before anything is paid."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from data_files import recipe_of

from shoestring.core.errors import RecipeError
from shoestring.data.sources.files import estimate_size

MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
TABLE = "urn:oasis:names:tc:opendocument:xmlns:table:1.0"


def excel(path: Path, *sheets: str) -> Path:
    names = "".join(f'<sheet name="{name}" sheetId="{index}"/>' for index, name in enumerate(sheets, 1))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr(
            "xl/workbook.xml",
            f'<?xml version="1.0"?><workbook xmlns="{MAIN}"><sheets>{names}</sheets></workbook>',
        )
    return path


def refusal(path: Path) -> str:
    with pytest.raises(RecipeError) as found:
        estimate_size(recipe_of(path))
    return str(found.value)


def test_a_workbook_is_refused_with_its_sheets(tmp_path: Path) -> None:
    found = refusal(excel(tmp_path / "Sales.XLSX", "2024", "R&amp;D", "c", "d", "e", "f", "g"))
    assert "Sales.XLSX is a spreadsheet with the sheets '2024', 'R&D', 'c', 'd', 'e' and 2 more" in found
    assert "save the sheet with the rows as CSV" in found
    assert "with the sheet 'one'," in refusal(excel(tmp_path / "one.xlsm", "one"))


def test_an_opendocument_sheet_is_refused_with_its_sheets_even_if_it_is_long(tmp_path: Path) -> None:
    cells = "<t:table-row/>" * 2_000_000
    with zipfile.ZipFile(tmp_path / "a.ods", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(
            "content.xml",
            f'<d xmlns:t="{TABLE}"><t:table t:name="first">{cells}</t:table><t:table t:name="last"/></d>',
        )
    assert "a.ods is a spreadsheet with the sheet 'first'," in refusal(tmp_path / "a.ods")


@pytest.mark.parametrize("data", [b"PK", b"\xd0\xcf\x11\xe0" * 200, b""])
@pytest.mark.parametrize("suffix", ["xlsx", "xls", "xlsb", "ods"])
def test_one_whose_sheets_cannot_be_read_is_refused_as_well(tmp_path: Path, data: bytes, suffix: str) -> None:
    (tmp_path / f"a.{suffix}").write_bytes(data)
    assert f"a.{suffix} is a spreadsheet, which is not read" in refusal(tmp_path / f"a.{suffix}")


def test_one_beside_tables_is_refused_and_the_lock_of_an_open_one_is_not(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"x,y\n1,2\n3,4\n5,6\n")
    (tmp_path / "~$book.xlsx").write_bytes(b"lock")
    (tmp_path / ".hidden").mkdir()
    excel(tmp_path / ".hidden" / "book.xlsx", "x")
    assert estimate_size(recipe_of(tmp_path)).rows_estimate == 3
    (tmp_path / "more").mkdir()
    excel(tmp_path / "more" / "book.xlsx", "Orders")
    assert "more/book.xlsx is a spreadsheet with the sheet 'Orders'" in refusal(tmp_path)
