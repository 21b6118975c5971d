"""Where the seconds of the tests go: by file, whole runs, processes started, and properties.

python bench/tests_table.py [PYTEST ARGUMENTS]

Runs what `make tests` runs, or the tests that the arguments name, and prints the table below pytest's output.
A test is in the first kind that fits: it starts a whole run (`shoestring run` or `exec`, or the local
engine), it starts any process, it is a property. The seconds of a test are those of its set-up, call and
teardown; those that a fixture of the session takes are in the first test that asks for it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from machine import describe

from shoestring.backends.fork_server import ForkServer

ARGUMENTS = ["-q", "-n", "3", "--dist", "worksteal", "-m", "not kind and not kubeflow"]
ARGUMENTS += ["--hypothesis-profile", "ci"]
RUNS = ("run", "exec")
KINDS = ("whole runs", "other processes", "properties", "others")
FILES = 25
STARTED: list[tuple[str, ...]] = []
"""The words of the processes that this one has started since the last report."""


def note_processes() -> None:
    """Note the words of each process that is started or forked from now on."""
    start_forked, start_popen = ForkServer.start, subprocess.Popen.__init__

    def forked(self: Any, request: Any, streams: Any) -> Any:
        STARTED.append(("shoestring", *request.arguments))
        return start_forked(self, request, streams)

    def popen(self: Any, args: Any, *others: Any, **named: Any) -> None:
        STARTED.append((args,) if isinstance(args, str) else tuple(map(str, args)))
        start_popen(self, args, *others, **named)

    ForkServer.start, subprocess.Popen.__init__ = forked, popen  # type: ignore[method-assign]


def is_run(words: tuple[str, ...]) -> bool:
    if any("step_server" in word for word in words):
        return True
    return any(first.endswith("shoestring") and second in RUNS for first, second in pairwise(words))


class Worker:
    """In each worker: writes what a test started into the properties of its reports."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        started, STARTED[:] = list(STARTED), []
        is_property = hasattr(getattr(item, "obj", None), "hypothesis")
        kind = "whole runs" if any(map(is_run, started)) else "other processes" if started else ""
        report.user_properties = [
            ("kind", kind or ("properties" if is_property else "others")),
            ("runs", sum(map(is_run, started))),
            ("started", len(started)),
        ]
        return report


@dataclass
class Test:
    """A test, with what was noted of its set-up, call and teardown."""

    kind: str = KINDS[-1]
    runs: int = 0
    started: int = 0
    seconds: float = 0.0


class Table:
    """In the process that reports: adds up and prints."""

    def __init__(self) -> None:
        self.tests: dict[str, Test] = defaultdict(Test)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test, found = self.tests[report.nodeid], dict[str, Any](report.user_properties)
        test.seconds += report.duration
        test.runs += found["runs"]
        test.started += found["started"]
        test.kind = min(test.kind, found["kind"], key=KINDS.index)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        write, tests = terminalreporter.write_line, list(self.tests.values())
        write(describe())
        write(f"{'':44} {'tests':>6} {'runs':>5} {'started':>8} {'seconds':>8}")
        for kind in KINDS:
            self._line(write, kind, [test for test in tests if test.kind == kind])
        by_file = defaultdict(list)
        for name, test in self.tests.items():
            by_file[name.split("::")[0]].append(test)
        longest = sorted(by_file, key=lambda name: -sum(test.seconds for test in by_file[name]))
        for name in longest[:FILES]:
            self._line(write, name.removeprefix("tests/"), by_file[name])
        self._line(write, "all", tests)

    def _line(self, write: Callable[[str], None], name: str, tests: Iterable[Test]) -> None:
        tests, total_s = list(tests), sum(test.seconds for test in self.tests.values())
        runs, started = sum(test.runs for test in tests), sum(test.started for test in tests)
        seconds = sum(test.seconds for test in tests)
        write(f"{name[-44:]:44} {len(tests):6} {runs:5} {started:8} {seconds:8.0f} {seconds / total_s:5.0%}")


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get("PYTEST_XDIST_WORKER") or not config.getoption("numprocesses", None):
        note_processes()
        config.pluginmanager.register(Worker())
    if not os.environ.get("PYTEST_XDIST_WORKER"):
        config.pluginmanager.register(Table())


if __name__ == "__main__":
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    sys.exit(
        subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "tests_table", *ARGUMENTS, *sys.argv[1:]], check=False
        ).returncode
    )
