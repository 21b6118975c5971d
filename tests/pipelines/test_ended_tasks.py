"""External components that fail on one machine: the run is failed, with the last line of the component."""

import html
from pathlib import Path

import pytest
from commands import shoestring
from kfp import dsl
from local_runs import run_few

from shoestring.core.types import Need
from shoestring.pipelines.ended_tasks import failure_text
from shoestring.pipelines.routed import RunParameters, routed, settle_step, stages_from

STAGES = (
    Need(stage="first", after=(), setup_s=1.0),
    *(Need(stage=name, after=("first",), setup_s=1.0) for name in ("quits", "dies", "raises", "works")),
    Need(stage="later", after=("first", "raises"), setup_s=1.0),
)
DONE = "it is not metered: its engine knows how it ended"
ENDS = {
    "first": ("done", DONE),
    "works": ("done", DONE),
    "quits": ("failed", "exit code 1"),
    "dies": ("failed", "killed by SIGKILL: step 3 of 8"),
    "raises": ("failed", "exit code 1: ValueError: there are no rows > 0"),
}
"""The end of each stage that is started: `later` is not."""


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def work(text: str) -> str:
    print("not flushed")
    if "no" in text:
        raise ValueError(f"there are {text}")
    return "rows"


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def leave(number: int) -> None:
    import os
    import sys

    if number < 0:
        print("step 3 of 8", flush=True)
        os.kill(os.getpid(), -number)
    sys.exit(number)


@dsl.pipeline(name="branches")
def branches(recipe: str, run_id: str, world: str) -> None:
    """After a stage that works, three branches fail, one of them in a condition, and one works."""
    run = RunParameters(world, run_id, recipe, budget_usd="", deadline_s=0.0, seed=0)
    with dsl.ExitHandler(settle_step(run), name="spend"):
        first = routed(work, stages_from(STAGES, "first"), run, text="rows")
        routed(work, stages_from(STAGES, "works"), run, text="rows")
        routed(leave, stages_from(STAGES, "quits"), run, number=1)
        routed(leave, stages_from(STAGES, "dies"), run, number=-9)
        with dsl.If(first.output == "rows"):
            raises = routed(work, stages_from(STAGES, "raises"), run, text="no rows > 0")
            routed(work, stages_from(STAGES, "later"), run, text=raises.output)


def test_a_run_whose_external_components_fail_is_failed_with_the_last_line_of_each(
    laptop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_few(branches, laptop, tmp_path, monkeypatch)
    assert not run.succeeded
    assert {each.stage: (each.state, each.reason) for each in run.story.attempts} == ENDS, run.log
    assert run.story.start_accounts[-1].account.closed
    summary = run.summary
    # KFP's local runner takes branches in any order.
    assert summary.reason in [
        f"{name} failed: {text}" for name, (state, text) in ENDS.items() if state != "done"
    ]
    (listed,) = shoestring("runs", "--json", "--store", tmp_path / "store", "--world", laptop).json
    assert (listed["status"], listed["reason"]) == ("failed", summary.reason)
    report = (tmp_path / "store" / "runs" / "r" / "report.html").read_text()
    assert html.escape(summary.reason[1:]) in report


BEGIN = """\
    [KFP Executor 2026-11-29 16:00:00,120 INFO]: Got executor_input:
    {
        "inputs": {}
    }
"""
ERROR = """\
    Traceback (most recent call last):
      File "ephemeral_component.py", line 9, in work
        raise ValueError(text)
    ValueError: no rows
    of table a
"""


@pytest.mark.parametrize(
    ("code", "printed", "reason"),
    [
        (1, BEGIN, "exit code 1"),
        (-9, BEGIN + "    step 3 of 8\n    \n\n", "killed by SIGKILL: step 3 of 8"),
        (
            3,
            BEGIN + "    [KFP Executor 2026-11-29 16:00:01,5 ERROR]: no rows\n    \n\n",
            "exit code 3: no rows",
        ),
        (
            1,
            BEGIN + ERROR.replace("rows", "columns") + ERROR + "    step 3\n",
            "exit code 1: ValueError: no rows",
        ),
        (
            1,
            "    ERROR: No matching distribution found for x\n    \n\n",
            "exit code 1: ERROR: No matching distribution found for x",
        ),
        (1, BEGIN + "    " + "x" * 10_000, "exit code 1: " + "x" * 500),
    ],
)
def test_the_reason_is_how_it_ended_and_the_last_line_of_its_last_traceback_or_else_of_what_it_printed(
    code: int, printed: str, reason: str
) -> None:
    assert failure_text(code, printed) == reason
