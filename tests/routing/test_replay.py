"""A recorded decision is made again from the record alone, by the current code."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from examples import examples
from hypothesis import given
from routing_cases import laptop_question, questions

import shoestring
from shoestring.core.errors import UsageError
from shoestring.core.record import record_bytes
from shoestring.routing.analysis.replay import replay
from shoestring.routing.decide import decide
from shoestring.routing.question import Question

REPLAY = """
import sys
from pathlib import Path
import shoestring.routing.analysis.replay as here
assert here.__file__.startswith(sys.argv[2]), here.__file__
print(here.replay(Path(sys.argv[1]).read_bytes()) or "identical")
"""


@examples(50)
@given(questions())
def test_a_decision_replays_to_the_same_bytes(question: Question) -> None:
    assert replay(record_bytes(decide(question))) is None


def replayed_by_changed_code(folder: Path, name: str, before: str, after: str) -> str:
    """Replay a decision with a copy of the package in which a piece of text was replaced."""
    package = folder / "shoestring"
    shutil.copytree(Path(shoestring.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    source = package / name
    text = source.read_text()
    assert text.count(before) == 1
    source.write_text(text.replace(before, after))
    recorded = folder / "decision.json"
    recorded.write_bytes(record_bytes(decide(laptop_question())))
    command = [sys.executable, "-c", REPLAY, str(recorded), str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_the_same_code_elsewhere_replays_to_the_same_bytes(tmp_path: Path) -> None:
    assert (
        replayed_by_changed_code(
            tmp_path, "config/tariffs.py", "HOURS_PER_MONTH = 730.0", "HOURS_PER_MONTH = 730.0"
        )
        == "identical"
    )


@pytest.mark.parametrize(
    ("name", "before", "after", "line"),
    [
        (
            "config/tariffs.py",
            "HOURS_PER_MONTH = 730.0",
            "HOURS_PER_MONTH = 720.0",
            '+   "hours_per_month": "720.0",',
        ),
        ("pricing/learning.py", "PRIOR_LOG_SD = 0.5", "PRIOR_LOG_SD = 0.6", '+   "prior_log_sd": "0.6",'),
        (
            "routing/planner/partial_plans.py",
            "self.total, MAX_INT).min(initial=MAX_INT)",
            "self.total, -1).max(initial=-1)",
            '+  "pool": "cpu-2",',
        ),
    ],
)
def test_changed_code_fails_the_replay_and_the_difference_is_shown(
    tmp_path: Path, name: str, before: str, after: str, line: str
) -> None:
    assert line in replayed_by_changed_code(tmp_path, name, before, after).splitlines()


def test_an_edited_record_fails_the_replay() -> None:
    data = json.loads(record_bytes(decide(laptop_question())))
    data["choice"]["pool"] = "cpu-2"
    difference = replay((json.dumps(data, sort_keys=True, indent=1) + "\n").encode())
    assert difference is not None and '-  "pool": "cpu-2",\n+  "pool": "cpu-1",' in difference


def test_the_same_values_in_other_bytes_fail_the_replay() -> None:
    data = record_bytes(decide(laptop_question()))
    assert replay(json.dumps(json.loads(data)).encode()) is not None
    assert replay(data.replace(b"\n", b"\r\n")) is not None


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff", b'{"schema_version": 2}', b"[1]"])
def test_bytes_that_are_no_decision_are_refused_with_a_hint(data: bytes) -> None:
    with pytest.raises(UsageError, match="not a decision"):
        replay(data)
