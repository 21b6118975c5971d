"""A live view of a run, from what its pods write to the store: the same on a laptop and a cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from shoestring.core.interfaces import Clock, Store
from shoestring.reporting import number_text
from shoestring.reporting.run_reader import RunReader
from shoestring.reporting.run_story import RunStory, StageStory
from shoestring.reporting.summary import attempt_seconds, end_reason, placed_attempt

POLL_INTERVAL_S = 0.5
# An attempt counts as silent after this many heartbeat intervals: a busy machine is late by one or two.
SILENT_INTERVALS = 5
BAR_CELLS = 16
WIDE_CELLS = 116
COLUMN_ALIGNMENT: tuple[Literal["left", "right"], ...] = (
    "left",
    "left",
    "left",
    "right",
    "left",
    "left",
    "right",
)


@dataclass(frozen=True, slots=True)
class StageLine:
    """The line of one stage. `silent_s`: seconds since an overdue heartbeat. `unit`: of `samples` and
    `total`.
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
        }


def stage_lines(story: RunStory, now: datetime) -> tuple[StageLine, ...]:
    return tuple(_stage_line(story, stage, now) for stage in story.stages)


def _stage_line(story: RunStory, stage: StageStory, now: datetime) -> StageLine:
    attempt = placed_attempt(stage)
    choice = attempt.decision.choice if attempt else None
    heartbeat = attempt.heartbeat if attempt else None
    outcome = attempt.receipt.outcome if attempt and attempt.receipt else None
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
        budget_usd=choice.budget_usd if choice else None,
        quality=heartbeat.quality if heartbeat else {},
        seconds=sum(map(attempt_seconds, stage.attempts)) + max(0.0, since_s),
        silent_s=since_s if heartbeat and since_s > SILENT_INTERVALS * heartbeat.interval_s else None,
    )


class LiveView:
    """Polls one run and renders it as a table, as log lines or as JSON."""

    def __init__(self, store: Store, run_id: str, clock: Clock) -> None:
        self._reader, self._clock = RunReader(store, run_id), clock
        self.poll()

    def poll(self) -> None:
        """Read the current state. Raises UnknownName if there is no such run."""
        now = self._clock.now()
        self.story = self._reader.read()
        self.stage_lines = stage_lines(self.story, now)
        self.wall_s = self.story.wall_s(now)

    @property
    def is_over(self) -> bool:
        """True when nothing more will come: its ledger account is closed, or was never opened."""
        return self.story.status == "refused" or (
            bool(self.story.start_accounts) and self.story.start_accounts[-1].account.closed
        )

    def table(self, width: int) -> RenderableType:
        """Return a line for the run and one for each stage. Below `WIDE_CELLS` cells, lines are shorter."""
        story = self.story
        spent = f"{number_text.dollars(story.spent_usd)} of {number_text.dollars(story.budget_usd)}"
        run = Table.grid(padding=(0, 2, 0, 0))
        bar = [_bar(story.spent_usd, story.budget_usd)] if width >= WIDE_CELLS else []
        run.add_row(Text(story.run_id, "bold"), story.status, *bar, spent, number_text.duration(self.wall_s))
        stages = Table.grid(padding=(0, 2, 0, 0))
        for justify in COLUMN_ALIGNMENT:
            stages.add_column(justify=justify, no_wrap=True)
        for line in self.stage_lines:
            stages.add_row(
                *_line_cells(line, width >= WIDE_CELLS), style="dim" if line.state == "waiting" else None
            )
        reason = end_reason(story)
        return Group(run, stages, Text(reason)) if reason else Group(run, stages)


def _line_cells(line: StageLine, wide: bool) -> tuple[RenderableType, ...]:
    """Return the cells of a line: stage, state, placement, progress, dollars, quality, time."""
    if line.budget_usd is None:
        return line.stage, line.state, "", "", "", "", ""
    state = (
        f"silent {number_text.duration(line.silent_s)}"
        if line.silent_s
        else f"{line.state} ({line.phase})"
        if line.phase and wide
        else line.state
    )
    spent = number_text.dollars(line.spent_usd)
    return (
        Text(line.stage),
        Text(state),
        Text(f"{line.pool} {line.market}" if wide else line.pool),
        progress_text(line, wide),
        f"{spent} of {number_text.dollars(line.budget_usd)}" if wide and line.budget_usd else spent,
        Text(quality_text(line)),
        number_text.duration(line.seconds),
    )


def _bar(part_usd: Decimal, whole_usd: Decimal) -> RenderableType:
    """Return a bar of dollars. It is only drawn, so floats are precise enough."""
    return ProgressBar(
        total=float(whole_usd) or 1.0,
        completed=float(part_usd),
        width=BAR_CELLS,
        style="dim",
        complete_style="bold",
        finished_style="bold",
    )


def progress_text(line: StageLine, wide: bool = True) -> str:
    if not (line.samples or line.total):
        return ""
    of = f" of {number_text.short_count(line.total)}" if line.total and wide else ""
    return f"{number_text.short_count(line.samples)}{of} {line.unit}"


def quality_text(line: StageLine) -> str:
    return ", ".join(f"{name} {number_text.score(value)}" for name, value in line.quality.items())


def state_text(line: StageLine) -> str:
    """Return a change of state as a log line."""
    where = f" on {line.pool} {line.market}" if line.pool else ""
    spent = f"{number_text.dollars(line.spent_usd)}"
    match line.state:
        case "placed" | "running":
            budget = (
                f", {number_text.dollars(line.budget_usd)} to spend" if line.budget_usd is not None else ""
            )
            return f"{line.stage}: {line.state}{where}{budget}"
        case "refused" | "waiting":
            return f"{line.stage}: {line.state}"
        case "reused":
            return f"{line.stage}: reused from the cache"
        case _:
            details = "".join(f", {each}" for each in (progress_text(line), quality_text(line)) if each)
            return (
                f"{line.stage}: {line.state}{where}, {number_text.duration(line.seconds)}, {spent}{details}"
            )


def follow(
    store: Store, run_id: str, clock: Clock, done: Callable[[], bool], out: TextIO, *, as_json: bool = False
) -> None:
    """Show a run on `out` until `done()`, or until its ledger account is closed.

    On a terminal the view is live; otherwise each change of state is a line. `as_json`: one JSON object per
    line, for each change of any value.

    Raises:
        UnknownName: there is no such run.
    """
    view = LiveView(store, run_id, clock)
    display = (
        _json_lines(view, out)
        if as_json
        else _on_terminal(view, out)
        if out.isatty()
        else _state_lines(view, out)
    )
    with display as print_changes:
        while True:
            # Checked before polling, so that the last changes are shown too.
            finished = done() or view.is_over
            view.poll()
            print_changes()
            if finished:
                return
            clock.sleep(POLL_INTERVAL_S)


@contextmanager
def _on_terminal(view: LiveView, out: TextIO) -> Iterator[Callable[[], None]]:
    console = Console(file=out)
    with Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live:
        yield lambda: live.update(view.table(console.width), refresh=True)


@contextmanager
def _state_lines(view: LiveView, out: TextIO) -> Iterator[Callable[[], None]]:
    last_seen: dict[str, tuple[str, int]] = {}

    def print_changes() -> None:
        for line in view.stage_lines:
            if last_seen.get(line.stage, ("waiting", 0)) != (line.state, line.attempt):
                last_seen[line.stage] = (line.state, line.attempt)
                print(state_text(line), file=out, flush=True)

    yield print_changes


@contextmanager
def _json_lines(view: LiveView, out: TextIO) -> Iterator[Callable[[], None]]:
    last_seen: dict[str, dict[str, Any]] = {}

    def print_changes() -> None:
        story = view.story
        run = {
            "stage": None,
            "state": story.status,
            "spent_usd": str(story.spent_usd),
            "budget_usd": str(story.budget_usd),
        }
        for line in [*(line.as_json() for line in view.stage_lines), run]:
            key = str(line["stage"])
            # `seconds` alone always changes.
            if {**last_seen.get(key, {}), "seconds": 0} != {**line, "seconds": 0}:
                last_seen[key] = line
                print(json.dumps({"run_id": story.run_id, **line}), file=out, flush=True)

    yield print_changes
