"""Will the money reach to the planned end? A forecast from what was spent and done so far, and what to change when it drifts.

Pure: values in, values out. A window is so many steps; its pace is the seconds that a row of it took. The median of the last few windows
stands for the next ones, so that neither one slow step nor one quick window moves anything.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from statistics import median

from shoestring.config.adaptation import AdaptationLimits
from shoestring.core.money import usd
from shoestring.core.receipt import Lever, SpendForecast

WINDOW_STEPS = 16
WINDOWS = 5
# Windows before there is a plan, and between two changes; and of the latter, how many in a row have to be beyond the band.
FIRST_WINDOWS, DWELL_WINDOWS, AGREEING_WINDOWS = 3, 6, 2
# A forecast further than this from what there is to spend is drift. Training the same on a quiet machine, windows differ by a tenth.
DRIFT_BAND = 0.15
# What is left of the plan (its samples at the pace it was made at) below which the next lever is moved: 4/5, 2/3, 1/2.
VALIDATION_BELOW, BATCH_BELOW, POOL_BELOW = 0.8, 0.67, 0.5
# Looks that take less of the rest than this are not worth thinning out.
VALIDATION_TIME_SHARE = 0.05
# A larger batch is kept when rows take so much less time; else it only costs statistical efficiency.
BATCH_GAIN = 0.05


@dataclass(frozen=True, slots=True)
class TrainingPosition:
    """Where a run stands. `spent_s`: the seconds that what is spent would have bought at the price now. `left_s`: until money or time end,
    less leaving. A look is taken every `validation_every_rows` rows, takes `validation_s` and reads `validation_share` of signal validation."""

    samples: int
    max_samples: int
    spent_s: float
    left_s: float
    usd_per_hour: Decimal
    validation_s: float
    validation_every_rows: int
    validation_share: float
    batch_rows: int
    recipe_batch_rows: int
    annealing: bool


@dataclass(frozen=True, slots=True)
class PlanChange:
    """What to change. `to`: samples at the end, a share, or rows."""

    lever: Lever
    before: str
    after: str
    why: str
    to: float = 0.0


@dataclass(frozen=True, slots=True)
class SpendTracker:
    """What is remembered from window to window. `planned`: samples at the end; `settled`: the pace that it was planned by.

    `tried_s`, `tried_rows`: pace and batch before a larger one, while that is on trial; `refused`: it was no quicker; `asked`: for another
    place.
    """

    bounds: AdaptationLimits
    paces: tuple[float, ...] = ()
    planned: int = 0
    first_planned: int = 0
    settled: float = 0.0
    quiet: int = 0
    beyond: int = 0
    tried_s: float = 0.0
    tried_rows: int = 0
    refused: bool = False
    asked: bool = False

    @property
    def pace(self) -> float:
        """Seconds a row, looks aside."""
        return median(self.paces)

    def saw(self, seconds_a_row: float, at: TrainingPosition) -> tuple[SpendTracker, PlanChange | None]:
        """After one more window: what is remembered now, and the one thing to change, if any."""
        seen = replace(self, paces=(*self.paces, seconds_a_row)[-WINDOWS:], quiet=self.quiet + 1)
        if len(seen.paces) < FIRST_WINDOWS:
            return seen, None
        if not seen.planned:
            planned = seen.affordable(at)
            return replace(seen, planned=planned, first_planned=planned, settled=seen.pace, quiet=0), None
        seen = replace(
            seen, beyond=seen.beyond + 1 if abs(seen.ratio(at) - 1) > DRIFT_BAND and seen._can_move(at) else 0
        )
        if seen.quiet < DWELL_WINDOWS:
            return seen, None
        if seen.tried_s and seen.pace <= seen.tried_s * (1 - BATCH_GAIN):
            seen = replace(seen, tried_s=0.0)
        # While the learning rate comes down, nothing but where it ends may move.
        # Less gentle levers wait for the plan to be one that can be kept, where it may be changed; else for drift that lasts.
        further = not at.annealing and (not seen.beyond if self.bounds.length else seen.beyond >= AGREEING_WINDOWS)
        levers = (
            (seen._judge_batch, seen._length, seen._looks, seen._batch, seen._pool)
            if further
            else (seen._length,)
        )
        for lever in levers:
            if found := lever(at):
                after, move = found
                return replace(after, quiet=0, beyond=0), move
        return seen, None

    def eased(self, at: TrainingPosition) -> tuple[SpendTracker, PlanChange] | None:
        """The gentlest thing left that makes an epoch cheaper, whatever the plan says."""
        for lever in (self._looks, self._batch, self._pool):
            if found := lever(at, urgent=True):
                after, move = found
                return replace(after, quiet=0, beyond=0), move
        return None

    def affordable(self, at: TrainingPosition) -> int:
        """Samples at the end of the money, or of what there is to learn."""
        row_s = self.pace + at.validation_s / at.validation_every_rows
        return (
            at.max_samples
            if at.left_s == float("inf")
            else min(at.max_samples, at.samples + int(at.left_s / max(row_s, 1e-12)))
        )

    def needed_s(self, at: TrainingPosition, pace: float | None = None) -> float:
        """From here to the planned end."""
        return max(0, min(self.planned, at.max_samples) - at.samples) * (
            (self.pace if pace is None else pace) + at.validation_s / at.validation_every_rows
        )

    def ratio(self, at: TrainingPosition) -> float:
        """What will have been spent at the planned end, over all that may be."""
        whole_s = at.spent_s + at.left_s
        return (at.spent_s + self.needed_s(at)) / whole_s if 0 < whole_s < float("inf") else 1.0

    def forecast(self, at: TrainingPosition, spent_usd: Decimal) -> SpendForecast | None:
        """None before there is a plan."""
        if not self.planned:
            return None
        ends = [
            spent_usd + _usd(at, self.needed_s(at, pace))
            for pace in (self.pace, min(self.paces), max(self.paces))
        ]
        finite = at.left_s < float("inf")
        return SpendForecast(
            planned_samples=self.planned,
            samples_per_s=round(1 / self.pace, 3),
            usd=ends[0],
            low_usd=ends[1],
            high_usd=ends[2],
            limit_usd=spent_usd + (_usd(at, at.left_s) if finite else ends[0] - spent_usd),
            needed_s=round(self.needed_s(at), 3),
            left_s=round(at.left_s, 3) if finite else None,
        )

    def _can_move(self, at: TrainingPosition) -> bool:
        """A plan that already holds all there is to learn cannot get longer."""
        return self.ratio(at) > 1 or self.planned < at.max_samples

    def _strain(self, at: TrainingPosition) -> float:
        """What is left of the first plan."""
        return self.affordable(at) / max(1, min(self.first_planned, at.max_samples))

    def _is_mild(self, at: TrainingPosition, below: float, urgent: bool) -> bool:
        return not urgent and self._strain(at) >= below

    def _length(self, at: TrainingPosition) -> tuple[SpendTracker, PlanChange] | None:
        planned = self.affordable(at)
        if not self.bounds.length or self.beyond < AGREEING_WINDOWS or planned == self.planned:
            return None
        why = (
            f"to the planned end it is {self.needed_s(at):,.1f} s, ${_usd(at, self.needed_s(at))}, and {at.left_s:,.1f} s, "
            f"${_usd(at, at.left_s)}, are left: {_rate(self.pace)} rows a second at ${at.usd_per_hour} an hour, "
            f"where {_rate(self.settled)} rows a second were planned with"
        )
        move = PlanChange("length", f"{self.planned:,} samples", f"{planned:,} samples", why, planned)
        return replace(self, planned=planned, settled=self.pace), move

    def _looks(self, at: TrainingPosition, *, urgent: bool = False) -> tuple[SpendTracker, PlanChange] | None:
        share = max(self.bounds.min_validation_share, at.validation_share / 2)
        taken = at.validation_s / at.validation_every_rows / (self.pace + at.validation_s / at.validation_every_rows)
        if self._is_mild(at, VALIDATION_BELOW, urgent) or share >= at.validation_share or taken < VALIDATION_TIME_SHARE:
            return None
        why = f"{self._left_of_plan(at)}, and looks at signal validation take {taken:.0%} of the rest"
        return self, PlanChange("looks", f"{at.validation_share:.0%} of signal validation", f"{share:.0%}", why, share)

    def _batch(self, at: TrainingPosition, *, urgent: bool = False) -> tuple[SpendTracker, PlanChange] | None:
        rows = min(2 * at.batch_rows, int(at.recipe_batch_rows * self.bounds.max_batch_factor), at.validation_every_rows)
        if self._is_mild(at, BATCH_BELOW, urgent) or self.refused or rows <= at.batch_rows:
            return None
        why = f"{self._left_of_plan(at)}; a larger batch inside its flat range may train more rows a second"
        return replace(self, tried_s=self.pace, tried_rows=at.batch_rows, paces=()), PlanChange(
            "batch", f"{at.batch_rows:,} rows", f"{rows:,} rows", why, rows
        )

    def _judge_batch(self, at: TrainingPosition) -> tuple[SpendTracker, PlanChange] | None:
        """Back to the batch before: rows are no quicker now."""
        if not self.tried_s:
            return None
        why = f"it trains {_rate(self.pace)} rows a second, and the batch before {_rate(self.tried_s)}: not {BATCH_GAIN:.0%} more"
        after = replace(self, tried_s=0.0, refused=True, paces=())
        return after, PlanChange(
            "batch", f"{at.batch_rows:,} rows", f"{self.tried_rows:,} rows", why, self.tried_rows
        )

    def _pool(self, at: TrainingPosition, *, urgent: bool = False) -> tuple[SpendTracker, PlanChange] | None:
        if not self.bounds.pool or self.asked or self._is_mild(at, POOL_BELOW, urgent):
            return None
        why = f"{self._left_of_plan(at)}, and what this place allows is done"
        return replace(self, asked=True), PlanChange("pool", "this place", "another, asked for", why)

    def _left_of_plan(self, at: TrainingPosition) -> str:
        return f"the money buys {self.affordable(at):,} of the {self.first_planned:,} samples first planned"


def _usd(at: TrainingPosition, seconds: float) -> Decimal:
    return usd(at.usd_per_hour * Decimal(str(round(seconds, 6))) / 3600)


def _rate(pace: float) -> str:
    return f"{1 / pace:,.0f}"
