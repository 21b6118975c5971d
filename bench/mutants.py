"""Claim: the suite finds at least 27 of 30 mutants of the code that guards money.

python bench/mutants.py [--mutants 30] [--seed 1] [--results FILE] [--list]

Each mutant changes one statement of a function in `routing/`, `spending/` or `runtime/supervisor/`, drawn by
the seed from all statements to which an operator applies. The operators:

    compare     < and <=, > and >=, == and !=, `in` and `not in`, `is` and `is not` are exchanged
    arithmetic  + and -, * and /, // and %, << and >> are exchanged; `min` and `max`
    logic       `and` and `or` are exchanged; `not x` becomes `x`
    condition   the condition of an `if`, a `while` or a conditional expression is negated
    constant    an integer grows by one, a float by a tenth, True and False are exchanged (but not in
        `zip(strict=True)`)
    delete      an assignment to an attribute or an item, an augmented assignment, a call or a raise becomes
        `pass`
    return      the returned value becomes None

A mutant runs in a copy of the repository: first the tests of its own package, then all quick tests, then the
slow ones, without those that read the source itself (SOURCE_TESTS). It is found when one of them fails or
runs into its time limit. Before a suite counts, it has to pass on a copy without a mutant. With --results,
finished mutants and suites are kept in FILE, a JSON line each, and are not run again.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from mutation import ROOT, Mutant, draw, modules

NEAREST = {
    "shoestring/routing": ("tests/routing",),
    "shoestring/spending": ("tests/spending",),
    "shoestring/runtime/supervisor": ("tests/runtime",),
}
SOURCE_TESTS = ("tests/test_house.py", "tests/test_prose.py")
"""They check lines and words of the source, which a mutant's module has lost: it is written from its tree."""

TIMEOUT_S = 1800
WANTED_SHARE = 0.9
PASSED = (0, 5)
"""Exit codes of pytest: all passed, and none was collected."""


@dataclass(frozen=True)
class Result:
    mutant: Mutant
    found_by: str


def suites(path: str) -> list[tuple[str, list[str]]]:
    """Return the tests that a mutant of this module must survive, the nearest first."""
    nearest = next(list(tests) for folder, tests in NEAREST.items() if path.startswith(folder))
    workers = ["-n", str(os.cpu_count() or 1), "--dist", "worksteal"]
    quick, slow = ([*workers, "-m", f"{which} and not kind"] for which in ("not slow", "slow"))
    ignored = [f"--ignore={each}" for each in SOURCE_TESTS]
    return [
        (" ".join(nearest), [*quick, *nearest]),
        ("the quick tests", [*quick, *ignored]),
        ("the slow tests", [*slow, *ignored]),
    ]


@contextmanager
def copy_of_repository(changed: Mapping[str, str]) -> Iterator[Path]:
    """Yield a copy of the tracked files, as they are in the working tree, with the texts in `changed`."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        copy = Path(scratch) / "shoestring"
        for name in filter(None, listed.stdout.split("\0")):
            if (ROOT / name).exists():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, copy / name)
        for name, text in changed.items():
            (copy / name).write_text(text)
        for command in (["init", "--quiet"], ["add", "--all"]):
            subprocess.run(["git", *command], cwd=copy, check=True)
        yield copy


def failure(copy: Path, options: list[str]) -> str:
    """Run tests of a copy; return the first test that failed, or that time was up; empty: all passed.

    Raises:
        SystemExit: another process ended the tests.
    """
    environment = os.environ | {"PYTHONPATH": str(copy)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *options]
    with (
        tempfile.TemporaryFile("w+") as output,
        subprocess.Popen(
            command, cwd=copy, env=environment, stdout=output, stderr=output, start_new_session=True
        ) as pytest,
    ):
        try:
            code = pytest.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(pytest.pid, signal.SIGKILL)
            return "timed out"
        if code < 0:
            sys.exit(f"pytest was ended by signal {-code}: run this again with the same --results")
        if code in PASSED:
            return ""
        output.seek(0)
        failed = [line.strip() for line in output if line.startswith(("FAILED", "ERROR"))]
    return failed[0][:200] if failed else f"pytest ended with {code}"


def run_mutant(mutant: Mutant, text: str, results: Results) -> Result:
    """Return which part of the suite finds the mutant. Raises SystemExit: it fails without a mutant, too."""
    for name, options in suites(mutant.path):
        results.check_suite(name, options)
        with copy_of_repository({mutant.path: text}) as copy:
            if found := failure(copy, options):
                return Result(mutant, f"{name}: {found}")
    return Result(mutant, "")


class Results:
    """Finished mutants, and the suites that passed without one, with the file that keeps them."""

    def __init__(self, path: Path | None) -> None:
        self.path, self.suites, self.mutants = path, set[str](), dict[Mutant, Result]()
        for line in map(json.loads, path.read_text().splitlines() if path and path.exists() else ()):
            if "suite" in line:
                self.suites.add(line["suite"])
            else:
                mutant = Mutant(**line["mutant"])
                self.mutants[mutant] = Result(mutant, line["found_by"])

    def _write(self, line: object) -> None:
        if self.path:
            with self.path.open("a") as file:
                file.write(json.dumps(line) + "\n")

    def add(self, result: Result) -> None:
        """Record a finished mutant."""
        self.mutants[result.mutant] = result
        self._write(asdict(result))

    def check_suite(self, name: str, options: list[str]) -> None:
        """Run a suite without a mutant, once. Raises SystemExit: it fails, so it cannot find any."""
        if name in self.suites:
            return
        unchanged = {
            str(path.relative_to(ROOT)): ast.unparse(ast.parse(path.read_text())) for path in modules()
        }
        with copy_of_repository(unchanged) as copy:
            if failed := failure(copy, options):
                sys.exit(f"{name} fail without a mutant: {failed}")
        self.suites.add(name)
        self._write({"suite": name})


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mutants", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--results", type=Path, help="file of finished mutants")
    parser.add_argument("--list", action="store_true", help="print the mutants and run nothing")
    options = parser.parse_args()
    results, found = Results(options.results), 0
    for mutant, text in draw(options.mutants, options.seed):
        change = f"  - {mutant.before[:200]}\n  + {mutant.after[:200]}"
        print(f"{mutant.path}:{mutant.line} {mutant.operator}\n{change}", flush=True)
        if options.list:
            continue
        if mutant not in results.mutants:
            results.add(run_mutant(mutant, text, results))
        found_by = results.mutants[mutant].found_by
        found += bool(found_by)
        print(f"  found by {found_by}" if found_by else "  SURVIVED", flush=True)
    if not options.list:
        print(f"{found} of {options.mutants} mutants found (seed {options.seed})")
    return 0 if options.list or found >= WANTED_SHARE * options.mutants else 1


if __name__ == "__main__":
    sys.exit(main())
