"""The live view, compared with golden files.

After an intended change, check the output of the failing test and update golden/.
"""

from __future__ import annotations

import io
import itertools
import json
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from recorded_run import ROWS, RUN_ID, Recording
from run_stories import STORIES, failed, resumed, running

from shoestring.core.receipt import TimeShares
from shoestring.core.record import record_bytes
from shoestring.reporting.stage_lines import StateLines
from shoestring.reporting.terminal.live import LiveView, follow
from shoestring.reporting.terminal.output import TerminalConsole
from shoestring.spending.heartbeat import Heartbeat

GOLDEN = Path(__file__).parent / "golden"


def rendered(run: Recording, width: int) -> str:
    out = io.StringIO()
    TerminalConsole(out, width=width, color_system=None).print(
        LiveView(run.store, RUN_ID, run.clock).table(width)
    )
    return "".join(line.rstrip() + "\n" for line in out.getvalue().splitlines())


@pytest.mark.parametrize("width", [130, 80])
@pytest.mark.parametrize("name", ["running", "refused", "failed", "resumed", "looped"])
def test_the_view_equals_its_golden_file(name: str, width: int, tmp_path: Path) -> None:
    assert rendered(STORIES[name](tmp_path), width) == (GOLDEN / f"{name}-{width}.txt").read_text()


def test_a_pod_without_heartbeats_is_shown_as_silent(tmp_path: Path) -> None:
    run = running(tmp_path)
    run.clock.sleep(30)
    assert "silent 30.0 s" in rendered(run, 130)


def test_the_bottleneck_of_a_running_training_is_shown_with_its_share(tmp_path: Path) -> None:
    run = running(tmp_path)
    (path,) = tmp_path.glob("runs/*/heartbeats/train-1.json")
    beat = Heartbeat.model_validate_json(path.read_bytes())
    shares = TimeShares(read=0.02, decode=0.06, transfer=0.31, compute=0.61)
    run.store.put(
        str(path.relative_to(tmp_path)), record_bytes(beat.model_copy(update={"time_shares": shares}))
    )
    assert f"running ({beat.phase}; transfer 31%)" in rendered(run, 130)
    (line,) = [each for each in LiveView(run.store, RUN_ID, run.clock).stage_lines if each.time_shares]
    assert line.as_json()["time_shares"] == shares.model_dump()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def play(run: Recording) -> Iterator[None]:
    """Play a short run, one step at a time."""
    run.start()
    run.route("ingest", cached="cache/1.json")
    yield
    run.end(0.2, rows=ROWS)
    run.route("preprocess")
    yield
    for _ in range(3):
        run.beat(1.0, samples=100_000, total=ROWS)
        yield
    run.end(7.0, rows=ROWS)
    run.close()


class PlayingClock:
    """A clock that advances the run whenever it sleeps."""

    def __init__(self, run: Recording) -> None:
        self._run, self._steps = run, play(run)
        next(self._steps)

    def now(self) -> object:
        return self._run.clock.now()

    def monotonic_s(self) -> float:
        return self._run.clock.monotonic_s()

    def sleep(self, seconds: float) -> None:
        self._run.clock.sleep(seconds)
        next(self._steps, None)


def followed(
    folder: Path, out: io.StringIO, *, as_json: bool = False, done: Callable[[], bool] = lambda: False
) -> str:
    run = Recording(folder)
    follow(run.store, RUN_ID, PlayingClock(run), done, out, as_json=as_json)  # type: ignore[arg-type]
    return out.getvalue()


def test_without_a_terminal_each_change_of_state_is_one_line(tmp_path: Path) -> None:
    assert followed(tmp_path, io.StringIO()).splitlines() == [
        "ingest: placed on cpu-1 on-demand, $0 to spend",
        "ingest: reused from the cache",
        "preprocess: placed on cpu-1 on-demand, $0.000088 to spend",
        "preprocess: running on cpu-1 on-demand, $0.000088 to spend",
        "preprocess: done on cpu-1 on-demand, 7.00 s, $0.000078, 337k rows",
        "overhead: $0.000061, routing and settling",
    ]


def dollars_in(lines: list[str]) -> Decimal:
    """Return the sum of the dollars that the lines of ended stages, overhead and earlier starts state."""
    stated = [line for line in lines if "to spend" not in line]
    return sum((Decimal(re.findall(r"\$([\d.]+)", f"{line} $0")[0]) for line in stated), Decimal(0))


@pytest.mark.parametrize("name", ["done", "resumed", "failed", "stopped", "extended"])
def test_the_lines_add_up_to_what_the_run_spent(name: str, tmp_path: Path) -> None:
    run, out = STORIES[name](tmp_path), io.StringIO()
    follow(run.store, RUN_ID, run.clock, lambda: False, out)
    assert dollars_in(out.getvalue().splitlines()) == LiveView(run.store, RUN_ID, run.clock).story.spent_usd


def test_a_failed_attempt_and_its_retry_each_state_their_own_dollars(tmp_path: Path) -> None:
    run, lines = Recording(tmp_path), list[str]()
    run.start()
    state_lines = StateLines(LiveView(run.store, RUN_ID, run.clock).story)
    for seconds, status in ((4.0, "failed"), (6.0, "done")):
        run.route("ingest")
        run.end(seconds, status)  # type: ignore[arg-type]
        view = LiveView(run.store, RUN_ID, run.clock)
        lines += state_lines.changes(view.story, view.stage_lines, is_over=False)
    assert lines == [
        "ingest: failed on cpu-1 on-demand, 4.00 s, $0.000045",
        "ingest: done on cpu-1 on-demand, 6.00 s, $0.000065",
    ]


def test_a_raised_budget_is_shown(tmp_path: Path) -> None:
    run, out = STORIES["extended"](tmp_path), io.StringIO()
    follow(run.store, RUN_ID, run.clock, lambda: False, out)
    assert "preprocess: done on cpu-1 on-demand, 8.90 s, $0.000099 of $0.000128, raised by $0.000040" in (
        out.getvalue()
    )
    assert "$0.000099 of $0.000128" in rendered(run, 130)


def test_as_json_each_line_is_an_object_and_none_repeats_the_one_before(tmp_path: Path) -> None:
    lines = [json.loads(line) for line in followed(tmp_path, io.StringIO(), as_json=True).splitlines()]
    assert all(line["run_id"] == RUN_ID and isinstance(line["spent_usd"], str) for line in lines)
    for stage in ("ingest", "preprocess", "train", None):
        changes = [{**line, "seconds": 0} for line in lines if line["stage"] == stage]
        assert changes
        assert all(one != other for one, other in itertools.pairwise(changes))
    assert lines[-1]["state"] == "stopped"


def test_on_a_terminal_the_last_frame_is_the_end_of_the_run(tmp_path: Path) -> None:
    drawn = followed(tmp_path, Terminal())
    assert "preprocess  done" in drawn.rpartition("running")[2]


def test_following_a_run_that_is_over_shows_it_once_and_returns(tmp_path: Path) -> None:
    for story in (failed, resumed):
        run, out = story(tmp_path / story.__name__), io.StringIO()
        follow(run.store, RUN_ID, run.clock, lambda: False, out)
        found = LiveView(run.store, RUN_ID, run.clock).story
        stages = sum(bool(stage.attempts) for stage in found.stages)
        assert len(out.getvalue().splitlines()) == len(found.start_accounts) + stages


def test_following_ends_when_done_returns_true(tmp_path: Path) -> None:
    assert followed(tmp_path, io.StringIO(), done=lambda: True).splitlines() == [
        "ingest: placed on cpu-1 on-demand, $0 to spend"
    ]


@pytest.mark.parametrize("has_ended", [True, False])
def test_a_run_that_nothing_runs_any_more_is_shown_as_interrupted(tmp_path: Path, has_ended: bool) -> None:
    run = running(tmp_path)
    view, expected = LiveView(run.store, RUN_ID, run.clock), "interrupted" if has_ended else "running"
    view.poll(has_ended=has_ended)
    out = io.StringIO()
    TerminalConsole(out, width=130, color_system=None).print(view.table(130))
    assert out.getvalue().split()[:2] == [RUN_ID, expected]


def test_the_last_json_line_of_an_interrupted_run_says_so(tmp_path: Path) -> None:
    run, out = running(tmp_path), io.StringIO()
    follow(run.store, RUN_ID, run.clock, lambda: True, out, as_json=True)
    last = json.loads(out.getvalue().splitlines()[-1])
    assert (last["stage"], last["state"]) == (None, "interrupted")
