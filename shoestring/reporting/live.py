"""A run as it goes, by what its pods write into the store: the same on a laptop and a cluster."""

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
from shoestring.reporting.run_story import RunReader, RunStory, Stage
from shoestring.reporting.summary import attempt_seconds, placed, sentence

POLL_INTERVAL_S = 0.5
# So many intervals without a heartbeat, and the view says so: a busy machine is late by one or two.
SILENT_INTERVALS = 5
BAR_CELLS = 16
WIDE_CELLS = 116
JUSTIFIED: tuple[Literal["left", "right"], ...] = ("left", "left", "left", "right", "left", "left", "right")


@dataclass(frozen=True, slots=True)
class Line:
    """What the view says of one stage. `silent_s`: seconds since a heartbeat that is overdue."""

    stage: str
    state: str
    attempt: int
    pool: str
    market: str
    phase: str
    samples: int
    total: int | None
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
            "spent_usd": str(self.spent_usd),
            "budget_usd": None if self.budget_usd is None else str(self.budget_usd),
            "quality": self.quality,
            "seconds": round(self.seconds, 3),
        }


def lines(story: RunStory, now: datetime) -> tuple[Line, ...]:
    return tuple(_line(story, stage, now) for stage in story.stages)


def _line(story: RunStory, stage: Stage, now: datetime) -> Line:
    attempt = placed(stage)
    choice = attempt.decision.choice if attempt else None
    beat = attempt.heartbeat if attempt else None
    outcome = attempt.receipt.outcome if attempt and attempt.receipt else None
    running = stage.state == "running" and beat is not None
    since_s = (now - beat.at).total_seconds() if running and beat else 0.0
    return Line(
        stage=stage.name,
        state=stage.state,
        attempt=attempt.number if attempt else 0,
        pool=choice.pool if choice else "",
        market=choice.market if choice else "",
        phase=(beat.phase if beat.state == "running" else beat.state) if running and beat else "",
        samples=outcome.samples or outcome.rows if outcome else beat.samples if beat else 0,
        total=beat.total if running and beat else None,
        spent_usd=story.stage_spent_usd(stage),
        budget_usd=choice.budget_usd if choice else None,
        quality=beat.quality if beat else {},
        seconds=sum(map(attempt_seconds, stage.attempts)) + max(0.0, since_s),
        silent_s=since_s if beat and since_s > SILENT_INTERVALS * beat.interval_s else None,
    )


class LiveView:
    """Looks at one run and says what it sees, as a table, in words or as JSON."""

    def __init__(self, store: Store, run_id: str, clock: Clock) -> None:
        self._reader, self._clock = RunReader(store, run_id), clock
        self.look()

    def look(self) -> None:
        """Raises UnknownName: there is no such run."""
        now = self._clock.now()
        self.story = self._reader.look()
        self.lines = lines(self.story, now)
        self.wall_s = self.story.wall_s(now)

    @property
    def is_over(self) -> bool:
        """Nothing more will come: its books are closed, or were never opened."""
        return self.story.status == "refused" or (
            bool(self.story.books) and self.story.books[-1].account.closed
        )

    def table(self, width: int) -> RenderableType:
        """A line for the run and one for each stage. Below `WIDE_CELLS` it says less of each."""
        story = self.story
        spent = f"{number_text.dollars(story.spent_usd)} of {number_text.dollars(story.budget_usd)}"
        run = Table.grid(padding=(0, 2, 0, 0))
        bar = [_bar(story.spent_usd, story.budget_usd)] if width >= WIDE_CELLS else []
        run.add_row(Text(story.run_id, "bold"), story.status, *bar, spent, number_text.duration(self.wall_s))
        stages = Table.grid(padding=(0, 2, 0, 0))
        for justify in JUSTIFIED:
            stages.add_column(justify=justify, no_wrap=True)
        for line in self.lines:
            stages.add_row(
                *_cells(line, width >= WIDE_CELLS), style="dim" if line.state == "waiting" else None
            )
        said = sentence(story)
        return Group(run, stages, Text(said)) if said else Group(run, stages)


def _cells(line: Line, wide: bool) -> tuple[RenderableType, ...]:
    """Stage, state, place, samples, dollars, quality, time."""
    if line.budget_usd is None:
        return line.stage, line.state, "", "", "", "", ""
    state = (
        f"silent {number_text.duration(line.silent_s)}"
        if line.silent_s
        else f"{line.state} ({line.phase})"
        if line.phase
        else line.state
    )
    spent = number_text.dollars(line.spent_usd)
    return (
        Text(line.stage),
        Text(state),
        Text(f"{line.pool} {line.market}" if wide else line.pool),
        samples(line, wide),
        f"{spent} of {number_text.dollars(line.budget_usd)}" if wide and line.budget_usd else spent,
        Text(quality(line)),
        number_text.duration(line.seconds),
    )


def _bar(part_usd: Decimal, whole_usd: Decimal) -> RenderableType:
    """For the eye only, so a float will do."""
    return ProgressBar(
        total=float(whole_usd) or 1.0,
        completed=float(part_usd),
        width=BAR_CELLS,
        style="dim",
        complete_style="bold",
        finished_style="bold",
    )


def samples(line: Line, wide: bool = True) -> str:
    of = f" of {number_text.short_count(line.total)}" if line.total and wide else ""
    return f"{number_text.short_count(line.samples)}{of}" if line.samples or line.total else ""


def quality(line: Line) -> str:
    return ", ".join(f"{name} {number_text.score(value)}" for name, value in line.quality.items())


def state_text(line: Line) -> str:
    """One change of state, as a line of a log."""
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
            seen = "".join(f", {each}" for each in (samples(line), quality(line)) if each)
            return f"{line.stage}: {line.state}{where}, {number_text.duration(line.seconds)}, {spent}{seen}"


def follow(
    store: Store, run_id: str, clock: Clock, done: Callable[[], bool], out: TextIO, *, as_json: bool = False
) -> None:
    """Show a run on `out` until `done()`, or until its books are closed: live on a terminal, else a line for each change of state.

    `as_json`: one JSON object a line, for each change of anything.

    Raises:
        UnknownName: there is no such run.
    """
    view = LiveView(store, run_id, clock)
    show = (
        _json_lines(view, out)
        if as_json
        else _on_terminal(view, out)
        if out.isatty()
        else _state_lines(view, out)
    )
    with show as again:
        while True:
            # Asked before looking: what happened until then is shown too.
            over = done() or view.is_over
            view.look()
            again()
            if over:
                return
            clock.sleep(POLL_INTERVAL_S)


@contextmanager
def _on_terminal(view: LiveView, out: TextIO) -> Iterator[Callable[[], None]]:
    console = Console(file=out)
    with Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live:
        yield lambda: live.update(view.table(console.width), refresh=True)


@contextmanager
def _state_lines(view: LiveView, out: TextIO) -> Iterator[Callable[[], None]]:
    seen: dict[str, tuple[str, int]] = {}

    def again() -> None:
        for line in view.lines:
            if seen.get(line.stage, ("waiting", 0)) != (line.state, line.attempt):
                seen[line.stage] = (line.state, line.attempt)
                print(state_text(line), file=out, flush=True)

    yield again


@contextmanager
def _json_lines(view: LiveView, out: TextIO) -> Iterator[Callable[[], None]]:
    seen: dict[str, dict[str, Any]] = {}

    def again() -> None:
        story = view.story
        run = {
            "stage": None,
            "state": story.status,
            "spent_usd": str(story.spent_usd),
            "budget_usd": str(story.budget_usd),
        }
        for line in [*(line.as_json() for line in view.lines), run]:
            key = str(line["stage"])
            # The seconds alone always change.
            if {**seen.get(key, {}), "seconds": 0} != {**line, "seconds": 0}:
                seen[key] = line
                print(json.dumps({"run_id": story.run_id, **line}), file=out, flush=True)

    yield again
