"""Where a budget comes from: seconds that a script names, or the file of the command's meter."""

from __future__ import annotations

import math
import warnings
from decimal import Decimal
from pathlib import Path
from typing import Protocol

from shoestring.core.errors import DataError, UsageError
from shoestring.core.money import usd
from shoestring.spending.budget_file import read_budget_file
from shoestring.training.own_loop.files import SPENT_FILE, read_spent_s, write_json
from shoestring.training.own_loop.pace import BudgetReading
from shoestring.training.own_loop.reader_mark import mark_end

# The meter replaces its file each second. After this time without, it is said once.
OLD_FILE_S = 60.0
PHASE_DONE = "the phase is done"
"""Why a phase ends whose budget has not."""


class BudgetSource(Protocol):
    """`has_meter`: a meter ends the script by SIGTERM, and by SIGKILL after its grace."""

    has_meter: bool

    def read(self, now_s: float) -> BudgetReading:
        """Return what is left. `now_s`: of the monotonic clock."""
        ...

    def note_end(self) -> None:
        """Note that the script has seen the end of its budget."""
        ...

    def write_spent(self, now_s: float) -> None:
        """Write what is gone, where no meter counts it."""
        ...


class TimeBudget:
    """Seconds that a script named. `folder`: of the file with those of earlier attempts; None: no file."""

    has_meter = False

    def __init__(self, total_s: float, began_s: float, folder: Path | None = None) -> None:
        self.total_s, self._began_s, self._folder = total_s, began_s - read_spent_s(folder), folder

    def write_spent(self, now_s: float) -> None:
        if self._folder is not None:
            write_json(self._folder / SPENT_FILE, {"spent_s": round(self.spent_s(now_s), 3)})

    def note_end(self) -> None:
        """Do nothing: no meter asks."""

    def spent_s(self, now_s: float) -> float:
        """Return the seconds that all attempts have spent."""
        return now_s - self._began_s

    def read(self, now_s: float) -> BudgetReading:
        share_gone = min(1.0, self.spent_s(now_s) / self.total_s)
        left_s = max(0.0, self.total_s - self.spent_s(now_s))
        return BudgetReading(share_gone, left_s, left_s <= 0, "" if left_s else "the budget is used up")


class MeteredBudget:
    """The budget in the file of a meter. Between two writes, the share rises linearly to 1.

    A file that cannot be read keeps the last one valid. Raises DataError if there is no last one.
    """

    has_meter = True

    def __init__(self, path: Path, now_s: float) -> None:
        self._path, self._is_old, self._is_end_noted = path, False, False
        self._stamp = self._stamp_now()
        self._file, self._read_s = read_budget_file(path), now_s

    def read(self, now_s: float) -> BudgetReading:
        if (stamp := self._stamp_now()) != self._stamp:
            self._read_again(stamp, now_s)
        elif now_s - self._read_s > OLD_FILE_S and not self._is_old:
            self._is_old = True
            warnings.warn(
                f"{self._path} has not changed for {OLD_FILE_S:.0f} s: the budget is extrapolated from it",
                stacklevel=2,
            )
        file = self._file
        left_s = max(0.0, file.seconds_left - (now_s - self._read_s))
        gone = 1 - (1 - file.share_gone) * left_s / file.seconds_left if file.seconds_left else 1.0
        if file.should_stop or left_s <= 0:
            return BudgetReading(gone, left_s, True, file.stop_reason or "the budget is used up")
        return BudgetReading(gone, left_s)

    def write_spent(self, now_s: float) -> None:
        """Do nothing: the meter counts."""

    def note_end(self) -> None:
        if not self._is_end_noted:
            self._is_end_noted = True
            mark_end(self._path)

    def _stamp_now(self) -> tuple[int, int, int] | None:
        """Return what differs between two files, or None where there is none."""
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino, found.st_size

    def _read_again(self, stamp: tuple[int, int, int] | None, now_s: float) -> None:
        try:
            self._file = read_budget_file(self._path)
        except DataError:
            return
        self._stamp, self._read_s, self._is_old = stamp, now_s, False


class PhaseBudget:
    """A budget until a share of it is gone. `until`: that share, in (0, 1]."""

    def __init__(self, whole: BudgetSource, until: float) -> None:
        self._whole, self._until, self.has_meter = whole, until, whole.has_meter

    def read(self, now_s: float) -> BudgetReading:
        found = self._whole.read(now_s)
        if found.should_stop or found.share_gone >= self._until:
            return BudgetReading(1.0, 0.0, True, found.stop_reason if found.should_stop else PHASE_DONE)
        left_s = found.seconds_left * (self._until - found.share_gone) / (1 - found.share_gone)
        return BudgetReading(found.share_gone / self._until, left_s, stop_reason=PHASE_DONE)

    def note_end(self) -> None:
        self._whole.note_end()

    def write_spent(self, now_s: float) -> None:
        self._whole.write_spent(now_s)


def named_seconds(
    seconds: float | None, dollars: str | int | Decimal | None, usd_per_hour: str | int | Decimal | None
) -> float:
    """Return the seconds of a budget that a script named. Raises UsageError."""
    if (seconds is None) == (dollars is None) or (dollars is None) != (usd_per_hour is None):
        raise UsageError(
            'a budget is Budget(seconds=600), or Budget(usd="0.50", usd_per_hour="0.08") with the price of '
            "this machine"
        )
    if seconds is None:
        try:
            left_usd, price_usd = usd(dollars), usd(usd_per_hour)
        except ValueError as error:
            raise UsageError(f"a budget's usd and usd_per_hour: {error}") from None
        if price_usd <= 0:
            raise UsageError(f"usd_per_hour is {price_usd}: without a price, name Budget(seconds=600)")
        seconds = float(left_usd / price_usd * 3600)
    if not (math.isfinite(seconds) and seconds > 0):
        raise UsageError(f"{seconds:g} seconds are not a budget: it must be above 0")
    return float(seconds)
