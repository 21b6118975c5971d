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
slow ones. It is found when one of them fails or runs into its time limit. With --results, finished mutants
are kept in FILE, a JSON line each, and are not run again.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
GUARDED = ("shoestring/routing", "shoestring/spending", "shoestring/runtime/supervisor")
NEAREST = {
    "shoestring/routing": ("tests/routing",),
    "shoestring/spending": ("tests/spending",),
    "shoestring/runtime/supervisor": ("tests/runtime",),
}
TIMEOUT_S = 1800
WANTED_SHARE = 0.9

EXCHANGED: tuple[tuple[type[ast.AST], type[ast.AST]], ...] = (
    (ast.Lt, ast.LtE),
    (ast.Gt, ast.GtE),
    (ast.Eq, ast.NotEq),
    (ast.In, ast.NotIn),
    (ast.Is, ast.IsNot),
    (ast.Add, ast.Sub),
    (ast.Mult, ast.Div),
    (ast.FloorDiv, ast.Mod),
    (ast.LShift, ast.RShift),
    (ast.And, ast.Or),
)
PAIRS = dict(EXCHANGED) | {second: first for first, second in EXCHANGED}


@dataclass(frozen=True)
class Mutant:
    """One changed statement.

    `statement` and `site` number the statement in its module, and the place in it.
    """

    path: str
    line: int
    operator: str
    before: str
    after: str


@dataclass(frozen=True)
class Result:
    mutant: Mutant
    found_by: str


def statements(tree: ast.Module) -> Iterator[tuple[ast.AST, str, int]]:
    """Yield every statement inside a function, as its parent, the field of the parent and the index there."""
    for function in ast.walk(tree):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        for parent in ast.walk(function):
            for field in ("body", "orelse", "finalbody"):
                children = getattr(parent, field, None)
                if not isinstance(children, list):
                    continue
                for index, child in enumerate(children):
                    if isinstance(child, ast.stmt) and not is_docstring(child):
                        yield parent, field, index


def is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def own_expressions(node: ast.stmt) -> Iterator[ast.AST]:
    """Yield the expressions of a statement, without those of the statements inside it and without
    annotations.
    """
    waiting: list[ast.AST] = [node]
    while waiting:
        found = waiting.pop()
        yield found
        for name, child in ast.iter_fields(found):
            if name in ("annotation", "returns", "decorator_list", "type_comment"):
                continue
            if isinstance(found, ast.keyword) and found.arg == "strict":
                continue
            children = child if isinstance(child, list) else [child]
            waiting += [
                each
                for each in children
                if isinstance(each, ast.AST) and not isinstance(each, (ast.stmt, ast.ExceptHandler))
            ]


Change = Callable[[], None]


def changes(parent: ast.AST, field: str, index: int) -> list[tuple[str, Change]]:
    """Return every change that an operator can make to one statement."""
    node: ast.stmt = getattr(parent, field)[index]
    found: list[tuple[str, Change]] = []

    def replaced(new: ast.stmt) -> Change:
        return lambda: getattr(parent, field).__setitem__(index, ast.copy_location(new, node))

    if isinstance(node, ast.AugAssign) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        found.append(("delete", replaced(ast.Pass())))
    if isinstance(node, ast.Raise):
        found.append(("delete", replaced(ast.Pass())))
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], (ast.Attribute, ast.Subscript)):
        found.append(("delete", replaced(ast.Pass())))
    if isinstance(node, ast.Return) and node.value is not None and not is_none(node.value):
        found.append(("return", replaced(ast.Return(ast.Constant(None)))))
    for each in own_expressions(node):
        found += expression_changes(each)
    return found


def is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def expression_changes(node: ast.AST) -> list[tuple[str, Change]]:
    """Return the changes inside one expression."""
    found: list[tuple[str, Change]] = []
    if isinstance(node, ast.Compare):
        for index, operator in enumerate(node.ops):
            new = PAIRS[type(operator)]()
            # type: ignore[misc]
            found.append(("compare", lambda i=index, new=new: node.ops.__setitem__(i, new)))
    elif isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in PAIRS:
        found.append(("arithmetic", lambda: setattr(node, "op", PAIRS[type(node.op)]())))
    elif isinstance(node, ast.BoolOp):
        found.append(("logic", lambda: setattr(node, "op", PAIRS[type(node.op)]())))
    elif isinstance(node, (ast.If, ast.While, ast.IfExp)):
        found.append(("condition", lambda: setattr(node, "test", ast.UnaryOp(ast.Not(), node.test))))
    elif isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute)):
        field = "id" if isinstance(node.func, ast.Name) else "attr"
        other = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum"}.get(
            getattr(node.func, field)
        )
        if other:
            found.append(("arithmetic", lambda: setattr(node.func, field, other)))
    elif isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
        value = node.value
        new_value = (
            not value
            if isinstance(value, bool)
            else value + 1
            if isinstance(value, int)
            else value * 1.1 + 0.1
        )
        found.append(("constant", lambda: setattr(node, "value", new_value)))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        found.append(("logic", lambda: replace_in_place(node, node.operand)))
    return found


def replace_in_place(node: ast.AST, new: ast.AST) -> None:
    node.__class__, node.__dict__ = new.__class__, new.__dict__  # type: ignore[assignment]


def modules() -> list[Path]:
    return sorted(path for folder in GUARDED for path in (ROOT / folder).rglob("*.py"))


def draw(count: int, seed: int) -> list[tuple[Mutant, str]]:
    """Draw mutants with the text of their modules: a statement among all, then one of its changes."""
    dice = random.Random(seed)
    trees = {path: ast.parse(path.read_text()) for path in modules()}
    places = [
        (path, number)
        for path, tree in trees.items()
        for number, place in enumerate(statements(tree))
        if changes(*place)
    ]
    drawn = []
    for path, number in dice.sample(places, count):
        tree = ast.parse(path.read_text())
        parent, field, index = list(statements(tree))[number]
        node = getattr(parent, field)[index]
        before = ast.unparse(node).splitlines()[0]
        options = changes(parent, field, index)
        operator, change = options[dice.randrange(len(options))]
        change()
        after = ast.unparse(getattr(parent, field)[index]).splitlines()[0]
        name = str(path.relative_to(ROOT))
        drawn.append(
            (Mutant(name, node.lineno, operator, before, after), ast.unparse(ast.fix_missing_locations(tree)))
        )
    return drawn


def suites(path: str) -> list[tuple[str, list[str]]]:
    """Return the tests that a mutant of this module must survive, the nearest first."""
    own = next(list(tests) for folder, tests in NEAREST.items() if path.startswith(folder))
    quick = ["-n", str(os.cpu_count() or 1), "-m", "not kind and not slow"]
    return [
        (" ".join(own), [*quick, *own]),
        ("the quick tests", quick),
        ("the slow tests", ["-n", str(os.cpu_count() or 1), "-m", "slow and not kind"]),
    ]


def run_mutant(mutant: Mutant, text: str) -> Result:
    """Run the suite on a copy of the repository with the mutant; return which part of the suite found it."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "shoestring"
        ignored = shutil.ignore_patterns(
            ".git", ".venv", "__pycache__", "runs", "compiled", ".*_cache", ".hypothesis"
        )
        shutil.copytree(ROOT, copy, ignore=ignored)
        (copy / mutant.path).write_text(text)
        environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
        for name, options in suites(mutant.path):
            command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *options]
            try:
                done = subprocess.run(
                    command, cwd=copy, env=environment, capture_output=True, timeout=TIMEOUT_S, check=False
                )
            except subprocess.TimeoutExpired:
                return Result(mutant, f"{name}: timed out")
            if done.returncode not in (0, 5):
                failed = [
                    line
                    for line in done.stdout.decode(errors="replace").splitlines()
                    if line.startswith(("FAILED", "ERROR"))
                ]
                return Result(mutant, f"{name}: {failed[0] if failed else 'stopped'}"[:200])
    return Result(mutant, "")


def known(results: Path | None) -> dict[Mutant, Result]:
    if results is None or not results.exists():
        return {}
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    return {(mutant := Mutant(**line["mutant"])): Result(mutant, line["found_by"]) for line in lines}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mutants", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--results", type=Path, help="file of finished mutants")
    parser.add_argument("--list", action="store_true", help="print the mutants and run nothing")
    options = parser.parse_args()
    earlier, found = known(options.results), 0
    for mutant, text in draw(options.mutants, options.seed):
        print(
            f"{mutant.path}:{mutant.line} {mutant.operator}\n  - {mutant.before}\n  + {mutant.after}",
            flush=True,
        )
        if options.list:
            continue
        result = earlier.get(mutant) or run_mutant(mutant, text)
        if options.results and mutant not in earlier:
            with options.results.open("a") as file:
                file.write(json.dumps(asdict(result)) + "\n")
        found += bool(result.found_by)
        print(f"  found by {result.found_by}" if result.found_by else "  SURVIVED", flush=True)
    if not options.list:
        print(f"{found} of {options.mutants} mutants found (seed {options.seed})")
    return 0 if options.list or found >= WANTED_SHARE * options.mutants else 1


if __name__ == "__main__":
    sys.exit(main())
