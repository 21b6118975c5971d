"""A live view of a run, from what its pods write to the store: the same on a laptop and a cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any, Literal, TextIO

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from shoestring.core.interfaces import Clock, Store
from shoestring.core.text import shown_line
from shoestring.reporting import number_text
from shoestring.reporting.loop_stories import LoopStory, in_loops
from shoestring.reporting.run_reader import RunReader
from shoestring.reporting.run_story import DONE, StageStory
from shoestring.reporting.stage_lines import (
    StageLine,
    StateLines,
    phase_text,
    progress_text,
    quality_text,
    stage_lines,
)
from shoestring.reporting.terminal.output import TerminalConsole

POLL_INTERVAL_S = 0.5
BAR_CELLS = 16
MAX_ITEMS = 8
"""The most items of a loop that have a line of their own."""
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


class LiveView:
    """Polls one run and renders it as a table, as log lines or as JSON."""

    def __init__(self, store: Store, run_id: str, clock: Clock) -> None:
        self._reader, self._clock = RunReader(store, run_id), clock
        self.poll()

    def poll(self, *, has_ended: bool = False) -> None:
        """Read the current state. `has_ended`: nothing runs it any more. Raises UnknownName if there is no
        such run.
        """
        now = self._clock.now()
        self.story = self._reader.read()
        self.stage_lines = stage_lines(self.story, now)
        self.wall_s = self.story.wall_s(now)
        is_interrupted = has_ended and self.story.status == "running"
        self.status = "interrupted" if is_interrupted else self.story.status

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
        run.add_row(Text(story.run_id, "bold"), self.status, *bar, spent, number_text.duration(self.wall_s))
        stages = Table.grid(padding=(0, 2, 0, 0))
        for justify in COLUMN_ALIGNMENT:
            stages.add_column(justify=justify, no_wrap=True)
        for is_dim, cells in self._rows(width >= WIDE_CELLS):
            stages.add_row(*cells, style="dim" if is_dim else None)
        if story.overhead_usd:
            stages.add_row("overhead", "", "", "", number_text.dollars(story.overhead_usd))
        return Group(run, stages)

    def _rows(self, wide: bool) -> Iterator[tuple[bool, tuple[RenderableType, ...]]]:
        """Yield the cells of a line for each stage and each loop, and whether it is dim. Below a loop are its
        items that are not done.
        """
        lines = {line.stage: line for line in self.stage_lines}
        for each in in_loops(self.story.stages):
            if isinstance(each, StageStory):
                yield each.state == "waiting", _line_cells(lines[each.name], wide)
                continue
            yield False, _loop_cells(each, [lines[item.name] for item in each.items], wide)
            open_items = [item for item in each.items if item.state not in DONE]
            for item in open_items[:MAX_ITEMS]:
                name, *cells = _line_cells(lines[item.name], wide)
                yield False, (f"  {name}", *cells)
            if more := len(open_items[MAX_ITEMS:]):
                yield True, (f"  and {more:,} more",)


def _line_cells(line: StageLine, wide: bool) -> tuple[RenderableType, ...]:
    """Return the cells of a line: stage, state, placement, progress, dollars, quality, time."""
    if line.budget_usd is None:
        return line.stage, line.state, "", "", "", "", ""
    state = (
        f"silent {number_text.duration(line.silent_s)}"
        if line.silent_s
        else f"{line.state} ({phase_text(line)})"
        if line.phase and wide
        else line.state
    )
    spent = number_text.dollars(line.spent_usd)
    return (
        line.stage,
        state,
        f"{line.pool} {line.market}" if wide else line.pool,
        progress_text(line, wide),
        f"{spent} of {number_text.dollars(line.budget_usd)}" if wide and line.budget_usd else spent,
        quality_text(line),
        number_text.duration(line.seconds),
    )


def _loop_cells(loop: LoopStory, items: list[StageLine], wide: bool) -> tuple[RenderableType, ...]:
    """Return the cells of the line of a loop: those of all its items together."""
    places = sorted({f"{each.pool} {each.market}" if wide else each.pool for each in items if each.pool})
    spent_usd = sum((each.spent_usd for each in items), Decimal(0))
    budget_usd = sum((each.budget_usd or Decimal(0) for each in items), Decimal(0))
    spent = number_text.dollars(spent_usd)
    return (
        loop.name,
        loop.states_text if wide else loop.states_text.partition(",")[0],
        places[0] if len(places) == 1 else number_text.quantity(len(places), "pool") if places else "",
        "",
        f"{spent} of {number_text.dollars(budget_usd)}" if wide and budget_usd else spent,
        "",
        number_text.duration(sum(each.seconds for each in items)),
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
            has_ended, is_over = done(), view.is_over
            view.poll(has_ended=has_ended)
            print_changes()
            if has_ended or is_over:
                return
            clock.sleep(POLL_INTERVAL_S)


@contextmanager
def _on_terminal(view: LiveView, out: TextIO) -> Iterator[Callable[[], None]]:
    console = TerminalConsole(out)
    with Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live:
        yield lambda: live.update(view.table(console.width), refresh=True)


@contextmanager
def _state_lines(view: LiveView, out: TextIO) -> Iterator[Callable[[], None]]:
    lines = StateLines(view.story)

    def print_changes() -> None:
        for line in lines.changes(view.story, view.stage_lines, is_over=view.is_over):
            print(shown_line(line), file=out, flush=True)

    yield print_changes


@contextmanager
def _json_lines(view: LiveView, out: TextIO) -> Iterator[Callable[[], None]]:
    last_seen: dict[str, dict[str, Any]] = {}

    def print_changes() -> None:
        story = view.story
        run = {
            "stage": None,
            "state": view.status,
            "spent_usd": str(story.spent_usd),
            "overhead_usd": str(story.overhead_usd),
            "budget_usd": str(story.budget_usd),
        }
        for line in [*(line.as_json() for line in view.stage_lines), run]:
            key = str(line["stage"])
            # `seconds` alone always changes.
            if {**last_seen.get(key, {}), "seconds": 0} != {**line, "seconds": 0}:
                last_seen[key] = line
                print(json.dumps({"run_id": story.run_id, **line}), file=out, flush=True)

    yield print_changes
