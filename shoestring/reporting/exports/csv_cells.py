"""Cells of a CSV file that a spreadsheet program opens."""

from __future__ import annotations

import re

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""First characters of cells that spreadsheet programs compute.
https://owasp.org/www-community/attacks/CSV_Injection
"""
NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")


def plain_cell(text: str) -> str:
    """Return a cell that no spreadsheet program takes for a formula. Numbers stay as they are.

    The apostrophe is the sign by which these programs mark a cell as text.
    """
    return f"'{text}" if text.startswith(FORMULA_STARTS) and not NUMBER.fullmatch(text) else text
