"""A recorded decision is made again from the record alone, by the current code."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from examples import examples
from hypothesis import given
from routing_cases import laptop_question, questions

import shoestring
from shoestring.core.errors import UsageError
from shoestring.core.record import record_bytes
from shoestring.routing.algorithm import ALGORITHM_VERSION
from shoestring.routing.analysis.replay import replay
from shoestring.routing.decide import decide
from shoestring.routing.question import Question

REPLAY = """
import sys
from pathlib import Path
import shoestring.routing.analysis.replay as here
assert here.__file__.startswith(sys.argv[2]), here.__file__
found = here.replay(Path(sys.argv[1]).read_bytes())
print("identical" if found.verdict == "same" else found.text)
"""


@examples(50)
@given(questions())
def test_a_decision_replays_to_the_same_bytes(question: Question) -> None:
    assert replay(record_bytes(decide(question))).verdict == "same"


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
        (
            "pricing/learned/learning.py",
            "PRIOR_LOG_SD = 0.5",
            "PRIOR_LOG_SD = 0.6",
            '+   "prior_log_sd": "0.6",',
        ),
        (
            "routing/planner/best_plans.py",
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


def test_slower_throughput_code_fails_the_replay_though_the_candidates_are_recorded(tmp_path: Path) -> None:
    core_s = "core_s = need.cpu_us_per_row / 1e6 / pools.core_speed"
    difference = replayed_by_changed_code(
        tmp_path, "pricing/throughput.py", core_s, core_s.replace("1e6", "1e4")
    )
    assert difference.startswith("--- recorded")


def test_an_edited_record_fails_the_replay() -> None:
    data = json.loads(record_bytes(decide(laptop_question())))
    data["choice"]["pool"] = "cpu-2"
    found = replay(as_bytes(data))
    assert found.verdict == "differs" and '-  "pool": "cpu-2",\n+  "pool": "cpu-1",' in found.text


def as_bytes(data: object) -> bytes:
    return (json.dumps(data, sort_keys=True, indent=1) + "\n").encode()


def change_price(question: dict[str, Any]) -> None:
    question["quotes"][-1]["usd_per_hour"] = "0.000001"


def change_rows(question: dict[str, Any]) -> None:
    question["rows"] *= 1000


def change_need(question: dict[str, Any]) -> None:
    question["needs"][-1]["cpu_us_per_row"] /= 100


def change_speed(question: dict[str, Any]) -> None:
    question["pools"][-1]["cores"] = 64


def change_preference(question: dict[str, Any]) -> None:
    question["preferences"]["version"] += 1


@pytest.mark.parametrize("change", [change_price, change_rows, change_need, change_speed, change_preference])
def test_a_changed_question_fails_the_replay_though_the_choice_is_the_recorded_one(
    change: Callable[[dict[str, Any]], None],
) -> None:
    data = json.loads(record_bytes(decide(laptop_question())))
    change(data["question"])
    found = replay(as_bytes(data))
    assert found.verdict == "differs" and found.text.startswith("--- recorded")


def test_a_decision_of_another_algorithm_is_not_replayable_and_not_called_different() -> None:
    data = json.loads(record_bytes(decide(laptop_question())))
    data["algorithm"]["algorithm_version"] = ALGORITHM_VERSION - 1
    found = replay(as_bytes(data))
    assert found.verdict == "not-replayable"
    assert f"version {ALGORITHM_VERSION - 1} of the algorithm made it" in found.text


def test_the_same_values_in_other_bytes_fail_the_replay() -> None:
    data = record_bytes(decide(laptop_question()))
    assert replay(json.dumps(json.loads(data)).encode()).verdict == "differs"
    assert replay(data.replace(b"\n", b"\r\n")).verdict == "differs"


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff", b'{"schema_version": 2}', b"[1]"])
def test_bytes_that_are_no_decision_are_refused_with_a_hint(data: bytes) -> None:
    with pytest.raises(UsageError, match="not a decision"):
        replay(data)
