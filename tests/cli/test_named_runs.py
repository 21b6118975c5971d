"""Every command that names a run takes Kubeflow's id of it, and prints what it prints for the run's id."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from commands import Ran
from stored_lab import Lab

from shoestring.cli import COMMANDS, app
from shoestring.core import store_layout
from shoestring.core.record import record_bytes
from shoestring.runtime.records.run_setup import EngineJob

JOB = "0d3f7c52-8a41-4d0b-9c57-2f1de0a6b7c8"
GIVES_AN_ID = {*COMMANDS["Called by engines"], "upload"}
"""Commands whose `--run-id` is the id that a run gets."""

OTHERS: dict[tuple[str, ...], tuple[str, ...]] = {
    ("approve", "RUN"): ("--by", "Ann", "--usd", "0.000001", "--until", "2100-01-01"),
    ("runs", "compare", "RUN"): ("OTHER",),
    ("runs", "compare", "OTHER", "RUN"): (),
    ("explain", "OTHER", "--against", "RUN"): ("--stage", "train"),
    ("predict", "RUN"): (__file__, "--json"),
    ("export", "onnx", "RUN"): ("--out", "model.onnx"),
}
"""What a command needs beside the run. A command that needs nothing else has no row."""
CODES = {("predict", "RUN"): 1, ("export", "onnx", "RUN"): 1, ("exec", "--resume", "RUN"): 2}
"""Exit codes other than 0: a data set of version 4 has no dictionaries, which a model's folder needs, and
`exec` resumes no run of a recipe.
"""


def names_a_run(parameter: Any) -> bool:
    text = getattr(parameter, "help", None) or ""
    return parameter.name in {"run_id", "resume"} or bool(re.search(r"\bid of (a|the|another) run\b", text))


def lines(node: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield each command line that names a run, once for each argument or option that does."""
    for name, child in getattr(node, "commands", {}).items():
        if words or name not in GIVES_AN_ID:
            yield from lines(child, (*words, name))
    before: tuple[str, ...] = ()
    for parameter in node.params:
        if parameter.param_type_name == "argument":
            if names_a_run(parameter):
                yield (*words, *before, "RUN")
            before = (*before, "OTHER")
        elif names_a_run(parameter):
            yield (*words, *(before if words not in (("run",), ("exec",)) else ()), parameter.opts[0], "RUN")


LINES = list(lines(typer.main.get_command(app)))


def test_the_commands_that_name_a_run_are_found() -> None:
    assert {line[0] for line in LINES} == {
        *("run", "exec", "watch", "data", "where", "explain", "replay", "report", "runs", "hindsight"),
        *("ledger", "approve", "predict", "export"),
    }
    assert set(OTHERS) <= set(LINES)


@pytest.fixture
def make_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Lab]:
    """Return a function that makes the same store in the same place, without what a command left of it."""
    monkeypatch.chdir(tmp_path)

    def make() -> Lab:
        for folder in ("lab", "runs"):
            shutil.rmtree(tmp_path / folder, ignore_errors=True)
        (tmp_path / "lab").mkdir()
        lab = Lab(tmp_path / "lab")
        lab.store.put(store_layout.job(JOB), record_bytes(EngineJob(run_id=lab.store.done)))
        return lab

    return make


def printed(lab: Lab, line: tuple[str, ...], run: str) -> Ran:
    if line[0] == "approve":
        lab.store.open_account(lab.store.done)
    values = {"RUN": run, "OTHER": lab.store.stopped}
    words = (values.get(word, word) for word in (*line, *OTHERS.get(line, ())))
    return lab(*words, code=CODES.get(line, 0))


@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_kubeflows_id_of_a_run_stands_for_its_own(make_lab: Callable[[], Lab], line: tuple[str, ...]) -> None:
    lab = make_lab()
    by_its_own = printed(lab, line, lab.store.done)
    assert by_its_own.out or by_its_own.err
    assert printed(make_lab(), line, JOB) == by_its_own


def test_a_runs_own_id_counts_before_kubeflows_id_of_another(make_lab: Callable[[], Lab]) -> None:
    lab = make_lab()
    own = lab("explain", lab.store.stopped)
    lab.store.put(store_layout.job(lab.store.stopped), record_bytes(EngineJob(run_id=lab.store.done)))
    assert lab("explain", lab.store.stopped) == own


def test_a_name_that_is_too_long_for_the_store_is_no_run(make_lab: Callable[[], Lab]) -> None:
    name = "x" * 197
    assert f"there is no run called '{name}'" in make_lab()("explain", name, code=2).err
