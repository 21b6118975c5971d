"""A loop is one line, row or page with its items within: for watch, the report, explain and comparisons."""

from __future__ import annotations

import io
import re
from decimal import Decimal
from pathlib import Path

import pytest
from commands import shoestring
from recorded_run import RUN_ID, Recording
from run_stories import looped

from shoestring.core.types import Need
from shoestring.reporting.actuals import compute_actuals
from shoestring.reporting.html.page import page
from shoestring.reporting.loop_stories import LoopStory, in_loops
from shoestring.reporting.run_reader import read_run_story
from shoestring.reporting.runs.run_comparison import compare_runs
from shoestring.reporting.runs.run_text import comparison_text
from shoestring.reporting.terminal.live import MAX_ITEMS, LiveView, follow
from shoestring.reporting.terminal.output import TerminalConsole


def ended(run: Recording) -> Recording:
    """End what runs, and the fifth item."""
    run.turn_to("work.2").end(2.0)
    run.turn_to("work.3").end(4.0)
    run.route("work.4")
    run.end(6.0)
    run.close()
    return run


def many(folder: Path, items: int) -> Recording:
    """Record a run whose loop has begun all of its items."""
    run = Recording(folder, "1")
    run.needs = (Need(stage="work", after=(), setup_s=6.0, items=items),)
    run.start()
    for number in range(items):
        run.route(f"work.{number}")
    return run


def lines_of(run: Recording) -> list[str]:
    out = io.StringIO()
    follow(run.store, RUN_ID, run.clock, lambda: True, out)
    return out.getvalue().splitlines()


def test_in_a_log_a_loop_begins_once_and_each_item_has_one_line_when_it_has_ended(tmp_path: Path) -> None:
    run = ended(looped(tmp_path))
    all_lines = lines_of(run)
    stated_usd = sum(Decimal(re.findall(r"\$([\d.]+)", f"{line} $0")[0]) for line in all_lines)
    assert stated_usd == read_run_story(run.store, RUN_ID).spent_usd
    lines = [line for line in all_lines if line.startswith("work")]
    assert lines[0] == "work: 5 items"
    assert [re.sub(r" on .*, ", " ", line) for line in lines[1:]] == [
        "work.0: done $0.000072 (1 of 5)",
        "work.1: failed $0.000034 (2 of 5)",
        "work.2: done $0.000023 (3 of 5)",
        "work.3: done $0.000045 (4 of 5)",
        "work.4: done $0.000067 (5 of 5)",
    ]


def test_an_item_that_is_retried_is_counted_once(tmp_path: Path) -> None:
    run = looped(tmp_path)
    run.route("work.1")
    run.end(6.0)
    (loop,) = [each for each in in_loops(read_run_story(run.store, RUN_ID).stages) if each.name == "work"]
    assert isinstance(loop, LoopStory)
    assert (loop.count, loop.states_text) == (5, "2 of 5 done, 2 running, 1 waiting")
    (line,) = [line for line in lines_of(run) if line.startswith("work.1")]
    assert line.endswith("(2 of 5)")


def test_items_are_in_the_order_of_their_numbers_and_few_have_a_line(tmp_path: Path) -> None:
    run = many(tmp_path, 12)
    story = read_run_story(run.store, RUN_ID)
    assert [stage.name for stage in story.stages] == [f"work.{number}" for number in range(12)]
    out = io.StringIO()
    view = LiveView(run.store, RUN_ID, run.clock)
    TerminalConsole(out, width=120, color_system=None).print(view.table(120))
    lines = out.getvalue().splitlines()
    assert "0 of 12 done, 12 placed" in lines[1]
    assert [line.split()[0] for line in lines[2 : 2 + MAX_ITEMS]] == [f"work.{n}" for n in range(MAX_ITEMS)]
    assert lines[2 + MAX_ITEMS].strip() == f"and {12 - MAX_ITEMS} more"


def test_the_report_has_one_row_for_a_loop_and_folds_its_items(tmp_path: Path) -> None:
    story = read_run_story(ended(looped(tmp_path)).store, RUN_ID)
    html = page(story)
    assert "<summary>The items of work: 4 of 5 done, 1 failed</summary>" in html
    stages = html.partition('id="stages"')[2].partition("</section>")[0]
    shown, _, folded = stages.partition("<details>")
    rows = re.findall(r"<th[^>]*row[^>]*>([\w.]+)<small>", shown)
    assert rows == ["first", "work", "joined", "Overhead"]
    assert re.findall(r"<th[^>]*row[^>]*>([\w.]+)<small>", folded) == [f"work.{n}" for n in range(5)]
    spent = sum(story.stage_spent_usd(stage) for stage in story.stages if stage.name.startswith("work"))
    assert f"${spent:.6f}" in shown
    decisions = html.partition('id="decisions"')[2].partition("</section>")[0]
    shown, _, folded = decisions.partition("<summary>4 other decisions for items of work</summary>")
    assert "<h3>work.0: cpu-1" in shown and "<h3>work.1: cpu-1" not in shown
    assert all(f"<h3>work.{number}: cpu-1" in folded for number in range(1, 5))
    assert "work (4 items)" in shown
    hindsight = html.partition('id="hindsight"')[2].partition("</section>")[0]
    assert "4 choices for items of work" in hindsight


def test_actuals_and_energy_have_a_loop_as_one_stage(tmp_path: Path) -> None:
    story = read_run_story(ended(looped(tmp_path)).store, RUN_ID)
    groups = {each.group["stage"]: each for each in compute_actuals(story.charges, ("stage",)).groups}
    assert {name: each.attempts for name, each in groups.items()} == {"first": 1, "work": 5, "overhead": 1}


def test_a_comparison_has_one_line_for_the_items_of_a_loop(tmp_path: Path) -> None:
    one = read_run_story(looped(tmp_path / "one").store, RUN_ID)
    other = read_run_story(ended(looped(tmp_path / "other")).store, RUN_ID)
    lines = [line.split() for line in comparison_text(compare_runs(one, other)).splitlines()]
    (first,), (second,) = (
        [line for line in lines if line[:2] == ["work", "first"]],
        [line for line in lines if line[:1] == ["second"] and line[-1] == "failed"],
    )
    assert " ".join(first[-6:]) == "1 done, 1 failed, 2 running"
    assert " ".join(second[-4:]) == "4 done, 1 failed"
    assert "placed differently: work" in comparison_text(compare_runs(one, other))


@pytest.mark.parametrize(
    ("arguments", "pages", "rows"),
    [
        ((), ["first", "work.0"], 4),
        (("--stage", "work"), ["work.0"], 4),
        (("--stage", "work.3"), ["work.3"], 0),
        (("--last",), ["work.3"], 0),
    ],
)
def test_explain_prints_the_page_of_the_first_item_and_a_table_of_all(
    arguments: tuple[str, ...], pages: list[str], rows: int, laptop: Path, tmp_path: Path
) -> None:
    looped(tmp_path)
    ran = shoestring("explain", RUN_ID, *arguments, "--store", tmp_path, "--world", laptop)
    assert ran.code == 0, ran.err
    assert re.findall(r"^(\S+), attempt 1 of run", ran.out, re.M) == pages
    assert len(re.findall(r"^  work\.\d-1  cpu-1 on-demand", ran.out, re.M)) == rows
    as_json = shoestring("explain", RUN_ID, *arguments, "--store", tmp_path, "--world", laptop, "--json")
    found = as_json.json if isinstance(as_json.json, list) else [as_json.json]
    assert len(found) == max(len(pages) - 1 + rows, 1)


def test_explain_names_the_stages_and_not_each_item_where_none_is_found(laptop: Path, tmp_path: Path) -> None:
    looped(tmp_path)
    ran = shoestring("explain", RUN_ID, "--stage", "wrok", "--store", tmp_path, "--world", laptop)
    assert ran.code == 2 and ran.err.strip().endswith("known: first, work"), ran
