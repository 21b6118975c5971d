"""The profile of a script's loop, or of a recipe's, where `shoestring exec --profile` asks for one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from shoestring.core.errors import DataError
from shoestring.core.record import record_bytes
from shoestring.spending.budget_file import BUDGET_VARIABLE, PROFILE_VARIABLE, BudgetFile, read_budget_file
from shoestring.training.profiling.loop_profile import LIMIT_SHARE, LoopProfile, Setting, Tools

Value = TypeVar("Value")


class ProfiledLoop:
    """Profiles the first steps of a loop, and writes the profile to a file."""

    def __init__(self, profile: LoopProfile, path: Path) -> None:
        self._profile, self._path = profile, path
        self._loading_s = 0.0

    @property
    def is_done(self) -> bool:
        return self._profile.profile is not None

    def loaded(self, load: Callable[[], Value]) -> Value:
        """Return what is loaded for a step, and count the wait."""
        began_s = time.monotonic()
        found = load()
        self._loading_s = time.monotonic() - began_s
        return found

    def begin_step(self, rows: int, loading_s: float | None = None) -> None:
        """Begin a step, for which the loop has waited some seconds. None: those of what was loaded last. The
        step after the last of the profile writes it; a disk that is full leaves none."""
        self._profile.begin_step(rows, self._loading_s if loading_s is None else loading_s)
        if self._profile.profile is not None:
            with suppress(OSError):
                self._path.write_bytes(record_bytes(self._profile.profile))

    def end_step(self) -> None:
        self._profile.end_step()

    @property
    def until_done(self) -> ProfiledLoop | None:
        """This, until its profile is written."""
        return None if self.is_done else self


def profiled_loop(
    tools: Callable[[], Tools], settings: Callable[[], Sequence[Setting]], share: float = LIMIT_SHARE
) -> ProfiledLoop | None:
    """Return what profiles this process's loop; None: no profile is asked for, or its budget is not known.
    `share`: of the budget that it may take."""
    path, budget_path = os.environ.get(PROFILE_VARIABLE), os.environ.get(BUDGET_VARIABLE)
    if not path or not budget_path:
        return None
    try:
        budget = read_budget_file(Path(budget_path))
    except DataError:
        return None
    limit_s = min(budget.seconds_left, share * whole_s(budget))
    return ProfiledLoop(LoopProfile(tools(), limit_s, budget.usd_per_hour, settings()), Path(path))


def whole_s(budget: BudgetFile) -> float:
    """Return the seconds of a whole budget, of which a share is gone."""
    return budget.seconds_left / max(1e-9, 1 - budget.share_gone)


def thread_settings(get: Callable[[], int], set_threads: Callable[[int], Any], cores: int) -> list[Setting]:
    """Return other numbers of threads to try: half of them, and twice as many where there are cores."""
    now = get()
    found = sorted({max(1, now // 2), min(cores, 2 * now)} - {now})
    return [
        Setting(
            "threads",
            f"{count} thread{'s' * (count > 1)} instead of {now}",
            lambda count=count: set_threads(count),  # type: ignore[misc]
            lambda: set_threads(now),
        )
        for count in found
    ]
