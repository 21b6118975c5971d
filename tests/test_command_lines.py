"""The command lines of scenarios and benches, which run elsewhere, are taken by the command's parser."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_lines import VALUE, problem, shell_lines
from documented import ROOT
from python_lines import UNKNOWN, PythonLines

FOLDERS = ("tests/engine_scenarios", "tests/kind", "tests/kubeflow", "bench")
FROM_PAGES = ROOT / "tests/kind/kind_documentation.py"
"""Its lines are those of the pages, which test_docs.py parses."""
SHELL = """\
N=2 shoestring run "$RECIPE" \\
  --seed ${N} 2>> log.txt | tee out  # shoestring none
cat > file <<'END'
shoestring none
END
(cd shoestring; python -m shoestring watch $(shoestring runs --json | jq -r .id)) && .venv/bin/shoestring gc
kubectl --namespace shoestring exec reaper -- shoestring reap --for 30 > reaped
"""
CODE = """\
from commands import shoestring

LINE = [sys.executable, "-m", "shoestring"]

class Base:
    @property
    def where(self):
        return ("--on", self.context)

    def read(self, *words, is_json=False):
        return shoestring(*words, *self.where, *(("--json",) if is_json else ()))

class Derived(Base):
    def report(self, name):
        out = ("--out", f"{name}/out")
        self.read("report", name, *out)

def start(command, more):
    return Popen([*LINE, command, *more])

def use(base: Derived):
    base.read("runs")
    start("gc", sys.argv)
    start("exec", ["--", *sys.argv])
"""


def test_the_parser_takes_every_command_line_of_the_scenarios_and_benches() -> None:
    paths = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    lines = set(PythonLines(paths).lines())
    assert len(lines) > 50
    unknown = {path for path, words in lines if UNKNOWN in words[: (*words, "--").index("--")]}
    assert unknown == {FROM_PAGES}, "write the words of these command lines where they can be read"
    wrong = [(str(path), words, problem(words)) for path, words in lines if path != FROM_PAGES]
    assert [each for each in wrong if each[-1]] == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("runs --recipe flights", "No such option: --recipe"),
        ("runs compare one", "Missing argument 'second'"),
        ("upload --run", "Missing option '--host'"),
        ("run flights --deadline soon", "should be a valid number"),
        ("run flights --seed", "Option '--seed' requires an argument"),
        ("watch one two", "unexpected extra argument"),
        ("ledger shew", "No such command 'shew'"),
        ("ledger", "Usage: shoestring ledger"),
        ("sweep", "was renamed"),
        ("run nowhere.yaml --world nowhere --deadline 5", ""),
        ("exec --budget 1 -- python --epochs 3", ""),
        ("data flights --json", ""),
        ("plan --help", ""),
    ],
)
def test_what_the_parser_rejects_is_named(line: str, message: str) -> None:
    found = problem(line.split())
    assert (message in found) if message else not found


def test_the_commands_of_shell_text_are_found() -> None:
    assert list(map(" ".join, shell_lines(SHELL))) == [
        "runs --json",
        f"run {VALUE} --seed {VALUE}",
        f"watch {VALUE}",
        "gc",
        "reap --for 30",
    ]


def test_the_commands_of_python_code_are_found(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text(CODE.replace("LINE", "SHOESTRING"))
    assert {" ".join(words) for _, words in PythonLines([tmp_path / "code.py"]).lines()} == {
        f"report {VALUE} --out {VALUE}/out --on {VALUE} --json",
        f"report {VALUE} --out {VALUE}/out --on {VALUE}",
        f"runs --on {VALUE} --json",
        f"runs --on {VALUE}",
        f"gc {UNKNOWN}",
        f"exec -- {UNKNOWN}",
    }
