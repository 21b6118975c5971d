"""The limits of a running stage, in a file by which the supervisor updates its child."""

from __future__ import annotations

import threading
import time
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
