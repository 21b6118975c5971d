"""What a failed local run says first."""

from __future__ import annotations

from pathlib import Path

from shoestring.pipelines.local_runner import first_error

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
