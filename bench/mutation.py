"""Mutants: one statement of a module, changed by an operator (see bench/mutants.py)."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
GUARDED = ("shoestring/routing", "shoestring/spending", "shoestring/runtime/supervisor")

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
    """One changed statement, with its first line before and after."""

    path: str
    line: int
    operator: str
    before: str
    after: str


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
    node.__class__, node.__dict__ = new.__class__, new.__dict__


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
