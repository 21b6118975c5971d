"""The reference pages equal those that the code generates."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
SPEC = importlib.util.spec_from_file_location("reference", DOCS / "reference.py")
assert SPEC and SPEC.loader
reference = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(reference)


@pytest.mark.parametrize("name", list(reference.PAGES))
def test_a_reference_page_is_up_to_date(name: str) -> None:
    assert (DOCS / name).read_text() == reference.PAGES[name](), "run `make reference`"


def test_every_page_of_the_docs_is_in_the_index() -> None:
    index = (DOCS / "index.md").read_text()
    assert [
        page.name for page in DOCS.glob("*.md") if page.name != "index.md" and f"({page.name})" not in index
    ] == []
