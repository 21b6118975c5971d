"""The limits of a running stage: in a file by which the supervisor updates its child, and in what it tells
the watcher of a command.
"""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from shoestring.core.money import Usd
from shoestring.core.record import Record
from shoestring.spending.meter import Meter

LIMITS_FILE = "spend_limits.json"
READ_EVERY_S = 0.1


class SpendLimits(Record):
    """The content of `spend_limits.json` in a stage's scratch folder: the limit, price changes and deadline
    of its Meter.
    """

    limit_usd: Usd
    rate_changes: tuple[tuple[float, Usd], ...] = ()
    deadline_s: float | None = None


@dataclass(frozen=True, slots=True)
class WatchedCommand:
    """A command of `shoestring exec`. `child_pid`: the process of its stage; 0: that has not begun. `ends_s`:
    when its reservation is gone, on the monotonic clock. `scratch`: the folder whose name is in its
    environment.
    """

    run_id: str = ""
    attempt: str = ""
    child_pid: int = 0
    ends_s: float = math.inf
    scratch: str = ""


class LimitsReader:
    """Keeps a child's meter at the limits that its supervisor wrote last."""

    def __init__(self, path: Path, meter: Meter) -> None:
        self._path, self._meter, self._last = path, meter, b""
        threading.Thread(target=self._read_forever, daemon=True).start()

    def read(self) -> None:
        content = self._path.read_bytes() if self._path.exists() else b""
        if content and content != self._last:
            limits, self._last = SpendLimits.model_validate_json(content), content
            self._meter.update(limits.limit_usd, limits.rate_changes, limits.deadline_s)

    def _read_forever(self) -> None:
        while True:
            self.read()
            time.sleep(READ_EVERY_S)
