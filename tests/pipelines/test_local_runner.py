"""The first lines about a failed local run."""

import json
import logging
from pathlib import Path

import pytest
from commands import SMALL_RECIPE, shoestring
from kfp import dsl

from shoestring.pipelines.local_runner import TRACEBACK, first_error, redirect_output, run_locally

LOG = """\
04:18:21.125 - INFO - Running pipeline: 'dedupe-rows'
    Traceback (most recent call last):
      File "stage.py", line 38, in __call__
        return rows["absent"]
    KeyError: 'absent'
    Traceback (most recent call last):
      File "supervisor.py", line 298, in raise_unless_done
        raise StageFailed(result.reason)
    shoestring.core.errors.StageFailed: dedupe failed: KeyError: 'absent'

04:18:28.666 - ERROR - Task 'dedupe' finished with status FAILURE
"""


def test_the_error_of_the_stage_comes_first_with_its_frames(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_text(LOG)
    assert first_error(log).splitlines() == [
        "KeyError: 'absent'",
        "",
        "Traceback (most recent call last):",
        '  File "stage.py", line 38, in __call__',
        '    return rows["absent"]',
        "KeyError: 'absent'",
        "",
        f"the whole log: {log}",
    ]


def test_a_log_without_a_traceback_gives_its_end(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_text("".join(f"line {number}\n" for number in range(100)))
    assert first_error(log).splitlines()[-2:] == ["line 99", f"the whole log: {log}"]
    assert len(first_error(log).splitlines()) == 21


def test_a_log_that_was_cut_off_in_a_traceback_gives_what_there_is(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_text('Traceback (most recent call last):\n  File "stage.py", line 1\n')
    assert 'File "stage.py", line 1' in first_error(log)


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def fail(log: str) -> None:
    from pathlib import Path

    Path(log).write_text("a pod" + Path(log).read_text())
    raise ValueError("it fails")


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def note(log: str) -> None:
    from pathlib import Path

    Path(log).write_text(Path(log).read_text() + ", the exit step")


@dsl.pipeline(name="failing")
def failing(log: str) -> None:
    """Would run its step three times, in a group as routed stages are."""
    with dsl.ExitHandler(note(log=log)):
        fail(log=log).set_retry(2)


def test_a_step_with_a_retry_policy_runs_once(tmp_path: Path) -> None:
    """The policy is for Kubeflow. Here nothing may run twice."""
    pods = tmp_path / "pods"
    pods.touch()
    assert not run_locally({"log": str(pods)}, tmp_path / "log.txt", failing)
    assert pods.read_text() == "a pod, the exit step", (tmp_path / "log.txt").read_text()
    assert "it fails" in (tmp_path / "log.txt").read_text()


def test_a_log_that_is_closed_keeps_no_handler(tmp_path: Path) -> None:
    root = logging.getLogger()
    before, root.handlers[:] = root.handlers[:], []
    try:
        with (tmp_path / "log.txt").open("w") as out, redirect_output(out):
            logging.warning("from a library")
        assert root.handlers == []
        assert "from a library" in (tmp_path / "log.txt").read_text()
    finally:
        root.handlers[:] = before


def test_a_run_that_its_first_route_step_refuses_to_begin_has_one_error(
    laptop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOESTRING_STORE", str(tmp_path / "store"))
    source = {"rows": {"path": str(tmp_path / "absent.csv")}}
    recipe = json.dumps({"name": "mine", "source": source, "target": {"column": "y"}})
    log = tmp_path / "log.txt"
    assert not run_locally({"recipe": recipe, "run_id": "mine", "world": str(laptop)}, log)
    reason = f"there is no file or folder {tmp_path / 'absent.csv'}"
    assert first_error(log).startswith(f"shoestring: {reason}")
    text = log.read_text()
    assert (text.count(TRACEBACK), text.count(reason)) == (0, 2), text
    assert f"mine was never begun, so there is nothing to settle: {reason}" in text


@pytest.mark.slow
def test_text_of_a_recipe_like_a_placeholder_of_kfp_arrives_as_it_is_written(
    laptop: Path, tmp_path: Path
) -> None:
    missing = "read: {missing: ['{{$.pipeline_job_name}}', '{{$.price}}']}"
    (tmp_path / "mine.yaml").write_text(SMALL_RECIPE.replace("planes.csv}", f"planes.csv, {missing}}}"))
    line = ("run", tmp_path / "mine.yaml", "--world", laptop, "--store", tmp_path / "store", "--json")
    ran = shoestring(*line, folder=tmp_path)
    assert (ran.code, len(ran.json["stages"])) == (0, 4), ran.err
