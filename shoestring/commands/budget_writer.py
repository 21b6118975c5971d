"""Keeps the budget file of a running command up to date, and sees whether the command reads it."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from shoestring.core import store_layout
from shoestring.core.interfaces import Clock, Store
from shoestring.core.receipt import Receipt
from shoestring.core.record import record_bytes
from shoestring.data.run_records import read_records
from shoestring.data.scratch.scratch_files import write_whole
from shoestring.spending.budget_file import BudgetFile
from shoestring.spending.meter import Meter


@dataclass(frozen=True, slots=True)
class EarlierAttempts:
    """The dollars and the seconds of the earlier attempts."""

    usd: Decimal = Decimal(0)
    seconds: float = 0.0


class BudgetWriter:
    """Writes the budget of one attempt. `was_read`: the file was read after it was written."""

    def __init__(
        self, path: Path, run_id: str, attempt: int, meter: Meter, earlier: EarlierAttempts, grace_s: float
    ) -> None:
        self.was_read = False
        self._path, self._run_id, self._attempt = path, run_id, attempt
        self._meter, self._earlier, self._grace_s = meter, earlier, grace_s

    def write(self, clock: Clock, ends_s: float, *, should_stop: bool, reason: str = "") -> BudgetFile:
        """Replace the file, and return its content. `ends_s`: when `should_stop` will be true."""
        self._look()
        now_s, meter = clock.monotonic_s(), self._meter
        spent_usd = meter.spent_usd(now_s)
        left_s = max(0.0, ends_s - now_s)
        found = BudgetFile(
            run_id=self._run_id,
            attempt=self._attempt,
            usd_left=max(Decimal(0), meter.limit_usd - spent_usd),
            usd_per_hour=meter.current_usd_per_hour,
            seconds_left=round(left_s, 3),
            share_gone=round(self._share_gone(now_s, left_s), 6),
            should_stop=should_stop,
            stop_reason=reason,
            grace_s=self._grace_s,
            written_at=clock.now(),
        )
        write_whole(self._path, record_bytes(found))
        return found

    def _share_gone(self, now_s: float, left_s: float) -> float:
        """Return the share of the money or of the time to the deadline that is gone, the larger one: 1 where
        the command will be asked to end."""
        meter, earlier = self._meter, self._earlier
        if left_s <= 0:
            return 1.0
        spent_usd = float(earlier.usd + meter.spent_usd(now_s))
        rest_usd = float(meter.current_usd_per_hour) * left_s / 3600
        by_money = spent_usd / (spent_usd + rest_usd) if spent_usd + rest_usd else 0.0
        if meter.deadline_s is None:
            return by_money
        passed_s = earlier.seconds + now_s - meter.started_s
        return max(by_money, passed_s / (passed_s + left_s))

    def _look(self) -> None:
        try:
            info = self._path.stat()
        except OSError:
            return
        # A new file has the same three times. Linux renews the first when it is read after a change.
        self.was_read = self.was_read or info.st_atime_ns > info.st_mtime_ns


def earlier_attempts(store: Store, run_id: str, stage: str, attempt: int) -> EarlierAttempts:
    """Return what the attempts before this one cost, by their receipts."""
    if attempt == 1:
        return EarlierAttempts()
    found, _ = read_records(store, list(store.list(store_layout.receipts(run_id, stage))), Receipt)
    return EarlierAttempts(
        sum((each.spent_usd for each in found), EarlierAttempts().usd),
        sum((each.finished_at - each.started_at).total_seconds() for each in found),
    )
