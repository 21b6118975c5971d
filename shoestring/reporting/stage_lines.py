"""The states of a run's stages, as lines that a person or a script reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal

from shoestring.core.attempt_id import declared_stage
from shoestring.core.receipt import GpuUse, TimeShares
from shoestring.core.types import StageOutcome
from shoestring.reporting import number_text
from shoestring.reporting.charges import OVERHEAD
from shoestring.reporting.loop_stories import LoopStory, loops_of
from shoestring.reporting.run_story import RunStory, StageStory
from shoestring.reporting.summary import attempt_seconds, placed_attempt

# An attempt counts as silent after this many heartbeat intervals: a busy machine is late by one or two.
SILENT_INTERVALS = 5
LEFT_OUT = ("quarantined_rows", "rows_left_out")
ENDED = frozenset({"done", "reused", "stopped", "failed", "lost"})


@dataclass(frozen=True, slots=True)
class StageLine:
    """The line of one stage.

    `budget_usd`: what the stage may spend, with extensions; `extended_usd`: these alone. `silent_s`: seconds
    since an overdue heartbeat. `unit`: of `samples` and `total`. `is_held`: its reservation is not settled.
    `time_shares`: where the time of a training that runs goes. `gpu`: of a stage that runs. `left_out`: rows
    that ingest or preprocess did not use. `family`: that the route step of a training chose.
    """

    stage: str
    state: str
    attempt: int
    pool: str
    market: str
    phase: str
    samples: int
    total: int | None
    unit: Literal["samples", "rows"]
    spent_usd: Decimal
    budget_usd: Decimal | None
    quality: dict[str, float]
    seconds: float
    silent_s: float | None
    extended_usd: Decimal
    is_held: bool
    time_shares: TimeShares | None
    gpu: GpuUse | None = None
    left_out: int = 0
    family: str = ""

    def as_json(self) -> dict[str, Any]:
        return {
            "stage": self.stage,
            "state": self.state,
            "attempt": self.attempt,
            "pool": self.pool,
            "market": self.market,
            "phase": self.phase,
            "samples": self.samples,
            "total": self.total,
            "unit": self.unit,
            "spent_usd": str(self.spent_usd),
            "budget_usd": None if self.budget_usd is None else str(self.budget_usd),
            "quality": self.quality,
            "seconds": round(self.seconds, 3),
            "family": self.family or None,
            "time_shares": self.time_shares.model_dump() if self.time_shares else None,
            "gpu": self.gpu.model_dump() if self.gpu else None,
        }


def stage_lines(story: RunStory, now: datetime) -> tuple[StageLine, ...]:
    return tuple(_stage_line(story, stage, now) for stage in story.stages)


def _stage_line(story: RunStory, stage: StageStory, now: datetime) -> StageLine:
    attempt = placed_attempt(stage)
    choice = attempt.decision.choice if attempt else None
    heartbeat = attempt.heartbeat if attempt else None
    outcome = attempt.receipt.outcome if attempt and attempt.receipt else None
    extended_usd = story.extended_usd(attempt) if attempt else Decimal(0)
    running = stage.state == "running" and heartbeat is not None
    since_s = (now - heartbeat.at).total_seconds() if running and heartbeat else 0.0
    return StageLine(
        stage=stage.name,
        state=stage.state,
        attempt=attempt.number if attempt else 0,
        pool=choice.pool if choice else "",
        market=choice.market if choice else "",
        phase=(heartbeat.phase if heartbeat.state == "running" else heartbeat.state)
        if running and heartbeat
        else "",
        samples=outcome.samples or outcome.rows if outcome else heartbeat.samples if heartbeat else 0,
        total=heartbeat.total if running and heartbeat else None,
        unit="samples" if stage.elastic else "rows",
        spent_usd=story.stage_spent_usd(stage),
        budget_usd=choice.budget_usd + extended_usd if choice else None,
        quality=_validated(outcome) or (heartbeat.quality if heartbeat else {}),
        seconds=sum(map(attempt_seconds, stage.attempts)) + max(0.0, since_s),
        extended_usd=extended_usd,
        is_held=attempt is not None and story.is_held(attempt),
        time_shares=heartbeat.time_shares if running and heartbeat else None,
        gpu=heartbeat.gpu if running and heartbeat else None,
        family=chosen.name if attempt and (chosen := attempt.decision.question.family) else "",
        left_out=int(sum(outcome.metrics.get(name, 0) for name in LEFT_OUT)) if outcome else 0,
        silent_s=since_s if heartbeat and since_s > SILENT_INTERVALS * heartbeat.interval_s else None,
    )


def _validated(outcome: StageOutcome | None) -> dict[str, float]:
    """Return the validation losses of a trained model, which are not those of the last progress if it is a
    blend."""
    metrics = outcome.metrics if outcome else {}
    return {name.removeprefix("val_"): loss for name, loss in metrics.items() if name.startswith("val_")}


def progress_text(line: StageLine, wide: bool = True) -> str:
    if not (line.samples or line.total):
        return ""
    of = f" of {number_text.short_count(line.total)}" if line.total and wide else ""
    return f"{number_text.short_count(line.samples)}{of} {line.unit}"


def phase_text(line: StageLine) -> str:
    """Return the phase, the bottleneck of a training with its share of the time, and how busy GPUs are."""
    parts = [line.phase]
    if line.time_shares is not None:
        bottleneck = line.time_shares.bottleneck
        parts.append(f"{bottleneck} {line.time_shares.share_of(bottleneck):.0%}")
    if line.gpu is not None and line.gpu.busy is not None:
        parts.append(f"GPU {line.gpu.busy:.0%}")
    return "; ".join(parts)


def quality_text(line: StageLine) -> str:
    return ", ".join(f"{name} {number_text.score(value)}" for name, value in line.quality.items())


def place_text(line: StageLine) -> str:
    return f" on {line.pool} {line.market}" if line.pool else ""


def begin_text(line: StageLine) -> str:
    """Return a log line for an attempt that is placed or runs, or for a stage that did not begin."""
    if line.state not in ("placed", "running"):
        return f"{line.stage}: {line.state}"
    budget = f", {number_text.dollars(line.budget_usd)} to spend" if line.budget_usd is not None else ""
    family = f" as {line.family}" if line.family else ""
    return f"{line.stage}: {line.state}{place_text(line)}{family}{budget}"


def end_text(line: StageLine, spent_usd: Decimal, seconds: float) -> str:
    """Return a log line for a stage that ended, with the dollars and seconds that no line stated before."""
    if line.state == "reused":
        paid = f", {number_text.dollars(spent_usd)}" if spent_usd else ""
        return f"{line.stage}: reused from the cache{paid}"
    left_out = f"{number_text.quantity(line.left_out, 'row')} left out" if line.left_out else ""
    details = "".join(f", {each}" for each in (progress_text(line), left_out, quality_text(line)) if each)
    raised = ""
    if line.extended_usd and line.budget_usd is not None:
        budget, more = (number_text.dollars(amount) for amount in (line.budget_usd, line.extended_usd))
        raised = f" of {budget}, raised by {more}"
    return (
        f"{line.stage}: {line.state}{place_text(line)}, {number_text.duration(seconds)}, "
        f"{number_text.dollars(spent_usd)}{raised}{details}"
    )


class StateLines:
    """Log lines of one start of a run. Their dollars add up to what the run spent. Of the items of a loop,
    only the ends are lines.
    """

    def __init__(self, story: RunStory) -> None:
        """Begin before the last start: what earlier starts spent is one line."""
        self._seen: dict[str, tuple[str, int]] = {}
        self._ended_items: dict[str, set[str]] = {}
        before = story.start_accounts[:-1]
        self._told_usd = story.spent_by_stage_usd(before)
        self._told_s = {
            stage.name: sum(attempt_seconds(each) for each in stage.attempts if each.start_account in before)
            for stage in story.stages
        }

    def changes(self, story: RunStory, stage_lines: Sequence[StageLine], *, is_over: bool) -> Iterator[str]:
        """Yield a line for each change since the last call. At the end, overhead has a line."""
        if not self._seen and any(self._told_usd.values()):
            yield f"before this start: {number_text.dollars(sum(self._told_usd.values(), Decimal(0)))} spent"
        loops = loops_of(story.stages)
        for line in stage_lines:
            seen, key = self._seen.get(line.stage, ("waiting", 0)), (line.state, line.attempt)
            # The ledger was read before the receipts: what is not settled in it has its line a poll later.
            if seen == key or (line.is_held and line.state in ENDED and not is_over):
                continue
            self._seen[line.stage] = key
            if loop := loops.get(declared_stage(line.stage)):
                yield from self._item_lines(line, loop)
            else:
                yield self._line(line)
        if is_over:
            for line in stage_lines:
                if corrected_usd := self._untold_usd(line.stage, line.spent_usd):
                    amount = number_text.dollars(corrected_usd)
                    yield f"{line.stage}: {amount}, corrected to the times of its pod"
            if overhead_usd := self._untold_usd(OVERHEAD, story.overhead_usd):
                yield f"overhead: {number_text.dollars(overhead_usd)}, routing and settling"

    def _item_lines(self, line: StageLine, loop: LoopStory) -> Iterator[str]:
        """Yield a line for a loop of which no line was, and one for an item that has ended."""
        if loop.name not in self._ended_items:
            yield f"{loop.name}: {number_text.quantity(loop.count, 'item')}"
        ended = self._ended_items.setdefault(loop.name, set())
        if line.state not in ("placed", "running"):
            ended.add(line.stage)
            yield f"{self._line(line)} ({len(ended):,} of {loop.count:,})"

    def _line(self, line: StageLine) -> str:
        if line.state not in ENDED:
            return begin_text(line)
        seconds = line.seconds - self._told_s.get(line.stage, 0.0)
        self._told_s[line.stage] = line.seconds
        return end_text(line, self._untold_usd(line.stage, line.spent_usd), seconds)

    def _untold_usd(self, name: str, spent_usd: Decimal) -> Decimal:
        """Return what no line has stated yet, and count it as stated."""
        untold_usd = spent_usd - self._told_usd.get(name, Decimal(0))
        self._told_usd[name] = spent_usd
        return untold_usd
