"""Wait for something on a cluster."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def wait_for(find: Callable[[], Found | None], what: str, timeout_s: float = 120.0) -> Found:
    """Call `find` until it returns something other than None, and return that."""
    end_s = time.monotonic() + timeout_s
    while (found := find()) is None:
        assert time.monotonic() < end_s, f"not within {timeout_s} s: {what}"
        time.sleep(0.5)
    return found
