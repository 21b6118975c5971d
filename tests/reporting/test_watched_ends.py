"""`shoestring watch` of a run that is over: its end, once, and its exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import shoestring
from recorded_run import RUN_ID
from run_stories import STORIES

from shoestring.reporting.run_reader import read_run_story
from shoestring.reporting.summary import summarise_run


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("done", "done"),
        ("refused", "refused"),
        ("refused_on_the_way", "stopped"),
        ("failed", "failed"),
        ("stopped", "stopped"),
    ],
)
def test_a_run_that_is_over_is_shown_with_its_end_and_its_code(
    name: str, status: str, laptop: Path, tmp_path: Path
) -> None:
    run = STORIES[name](tmp_path)
    summary = summarise_run(read_run_story(run.store, RUN_ID))
    assert summary.status == status
    words = ("watch", RUN_ID, "--world", laptop, "--store", tmp_path)
    ran, as_json = shoestring(*words), shoestring(*words, "--json")
    assert [ran.code, as_json.code] == [int(status != "done")] * 2
    spent = f"{RUN_ID}: {status}, ${summary.spent_usd} of ${summary.budget_usd} spent"
    assert ran.out.count(spent) == int(status != "refused")
    assert ran.err == as_json.err == (f"shoestring: {summary.reason}\n" if summary.reason else "")
    *_, last, end = map(json.loads, as_json.out.splitlines())
    assert (last["stage"], last["state"], end) == (None, status, summary.model_dump(mode="json"))
