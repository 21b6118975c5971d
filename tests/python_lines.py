"""Command lines of `shoestring` in Python code, as their words, by reading the code: nothing runs.

A line begins at a call of `shoestring` or `start_shoestring` of commands.py, or at a list with
`*SHOESTRING` or `"-m", "shoestring"`. Names in it are followed to what they were assigned, to the functions
and properties that return them, and to the calls of the function whose parameters they are. Every branch of
a condition is a line of its own. A value that is not written there is VALUE.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path

from command_lines import VALUE

UNKNOWN = "\0"
"""Stands for words that cannot be known."""

CALLED_AS = {"in_interpreter": "launch"}
"""The field of a class in which a function is kept that starts a command line."""

Words = tuple[str, ...]
Def = ast.FunctionDef


class NeedsCaller(Exception):
    """The words are a parameter of the function that is read."""


@dataclass(frozen=True)
class Scope:
    """A function whose code is read, None for a module's own. `called`: the call that binds its parameters,
    and the scope of that call.
    """

    path: Path
    module: ast.Module
    function: Def | None = None
    owner: ast.ClassDef | None = None
    called: tuple[ast.Call, Scope] | None = None

    @property
    def code(self) -> Def | ast.Module:
        return self.function or self.module

    @property
    def outermost(self) -> Scope:
        return self.called[1].outermost if self.called else self

    def called_from(self, call: ast.Call, scope: Scope) -> Scope:
        """Return the scope in which the outermost function is called there."""
        if self.called is None:
            return replace(self, called=(call, scope))
        return replace(self, called=(self.called[0], self.called[1].called_from(call, scope)))

    def bound(self, name: str) -> tuple[ast.expr, Scope] | None:
        """Return the argument for a parameter, and its scope; None: there is no such parameter.

        Raises NeedsCaller: no call is known.
        """
        if self.function is None:
            return None
        arguments = self.function.args
        names = [each.arg for each in arguments.args if each.arg != "self"]
        rest = arguments.vararg.arg if arguments.vararg else ""
        if name not in (*names, rest):
            return None
        if self.called is None:
            raise NeedsCaller
        call, scope = self.called
        found: dict[str, ast.expr] = dict(zip(names[::-1], arguments.defaults[::-1], strict=False))
        found |= zip(names, call.args, strict=False)
        found |= {each.arg or "": each.value for each in call.keywords}
        found[rest] = ast.Tuple(call.args[len(names) :])
        return found.get(name, ast.Constant(None)), scope


class PythonLines:
    """The code of some files."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self.scopes = list[Scope]()
        for path in paths:
            module = ast.parse(path.read_text())
            self.scopes.append(Scope(path, module))
            self._add(module, self.scopes[-1])
        self.nodes = [(scope, node) for scope in self.scopes for node in own_nodes(scope.code)]
        self.calls = [(node, scope) for scope, node in self.nodes if isinstance(node, ast.Call)]
        self.classes = {scope.owner.name: scope.owner for scope in self.scopes if scope.owner}

    def _add(self, node: ast.AST, scope: Scope) -> None:
        for child in ast.iter_child_nodes(node):
            inner = scope
            if isinstance(child, ast.ClassDef):
                inner = replace(scope, owner=child)
            elif isinstance(child, Def):
                inner = replace(scope, function=child)
                self.scopes.append(inner)
            self._add(child, inner)

    def lines(self) -> Iterator[tuple[Path, Words]]:
        """Yield the file of each command line and its words."""
        for scope, node in self.nodes:
            if (words := line_nodes(node, scope)) is not None:
                yield from self._whole(words, scope)

    def _whole(self, nodes: Sequence[ast.expr], scope: Scope) -> Iterator[tuple[Path, Words]]:
        """Yield the words of a line, for each call of the function that they need."""
        outermost = scope.outermost
        with suppress(NeedsCaller):
            found = list(self._words(nodes, scope))
            if found and all(words and words[0] != VALUE for words in found):
                yield from ((outermost.path, words) for words in found)
                return
        calls = [(call, caller) for call, caller in self.calls if self._is_call_of(call, caller, outermost)]
        if not calls:
            yield outermost.path, (UNKNOWN,)
        for call, caller in calls:
            yield from self._whole(nodes, scope.called_from(call, caller))

    def _is_call_of(self, call: ast.Call, scope: Scope, callee: Scope) -> bool:
        name, owner = callee.function.name if callee.function else "", callee.owner
        match call.func:
            case ast.Attribute(attr=called) if called == CALLED_AS.get(name):
                return True
            case ast.Attribute(value=ast.Name(receiver), attr=called) if owner and called == name:
                receiver = class_of(receiver, scope)
                return owner.name in self._bases(receiver) or receiver in self._bases(owner.name)
            case ast.Name(called) if owner:
                return (called, name) == (owner.name, "__init__")
            case ast.Name(called) if called == name:
                return scope.path == callee.path or is_imported(name, callee.path.stem, scope)
        return False

    def _bases(self, name: str) -> set[str]:
        found = self.classes.get(name)
        bases = [each.id for each in found.bases if isinstance(each, ast.Name)] if found else []
        return {name}.union(*map(self._bases, bases))

    def _words(self, nodes: Sequence[ast.expr], scope: Scope) -> Iterator[Words]:
        """Yield the words of the elements of a list, for each way through its conditions."""
        for parts in product(*(list(self._element(node, scope)) for node in nodes)):
            yield tuple(word for part in parts for word in part)

    def _element(self, node: ast.expr, scope: Scope) -> Iterator[Words]:
        match node:
            case ast.Starred(value=value):
                yield from self._sequence(value, scope)
            case ast.Constant(value=str(text)):
                yield (text,)
            case ast.JoinedStr(values=parts):
                yield ("".join(each.value if isinstance(each, ast.Constant) else VALUE for each in parts),)
            case ast.IfExp(body=body, orelse=orelse):
                yield from self._element(body, scope)
                yield from self._element(orelse, scope)
            case ast.Name(name) if scope.called and (bound := scope.bound(name)):
                yield from self._element(*bound)
            case _:
                yield (VALUE,)

    def _sequence(self, node: ast.expr, scope: Scope) -> Iterator[Words]:
        match node:
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                yield from self._words(elements, scope)
            case ast.IfExp(body=body, orelse=orelse):
                yield from self._sequence(body, scope)
                yield from self._sequence(orelse, scope)
            case ast.Call(func=ast.Name(name)) | ast.Call(func=ast.Attribute(attr=name)):
                yield from self._returned(name, node, scope)
            case ast.Attribute(attr=name):
                yield from self._returned(name, ast.Call(node, [], []), scope)
            case ast.Name(name) if bound := scope.bound(name):
                yield from self._sequence(*bound)
            case ast.Name(name):
                found = [value for each in own_nodes(scope.code) for value in assigned(each, name)]
                if not found and scope.function:
                    yield from self._sequence(node, Scope(scope.path, scope.module))
                for value in found or ([] if scope.function else [ast.Constant(None)]):
                    yield from self._sequence(value, scope)
            case _:
                yield (UNKNOWN,)

    def _returned(self, name: str, call: ast.Call, scope: Scope) -> Iterator[Words]:
        """Yield what a function or a property of this name returns."""
        functions = [each for each in self.scopes if each.function and each.function.name == name]
        functions = [each for each in functions if each.path == scope.path] or functions
        if not functions:
            yield (UNKNOWN,)
        for each in functions:
            for node in own_nodes(each.code):
                if isinstance(node, ast.Return) and node.value:
                    yield from self._sequence(node.value, replace(each, called=(call, scope)))


@cache
def own_nodes(function: Def | ast.Module) -> list[ast.AST]:
    """Return the nodes of a function, or of a module, without those of functions inside it."""
    found = list[ast.AST]()
    waiting = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        if not isinstance(node, Def):
            found.append(node)
            waiting += ast.iter_child_nodes(node)
    return found


def line_nodes(node: ast.AST, scope: Scope) -> Sequence[ast.expr] | None:
    """Return the nodes of the words of a command line that begins here, without the name of the command."""
    match node:
        case ast.Call(func=ast.Name("shoestring" | "start_shoestring" as name), args=words) if is_imported(
            name, "commands", scope
        ):
            return words
        case ast.Call(args=words) | ast.List(elts=words) | ast.Tuple(elts=words):
            for at, word in enumerate(words[:-1]):
                match word:
                    case ast.Starred(value=ast.Name("SHOESTRING" | "shoestring")):
                        return words[at + 1 :]
                    case ast.Constant("shoestring") if at and ast.unparse(words[at - 1]) == "'-m'":
                        return words[at + 1 :]
    return None


def is_imported(name: str, module: str, scope: Scope) -> bool:
    """Return whether a file imports a name from a module, by the last part of its name."""
    imports = [node for node in own_nodes(scope.module) if isinstance(node, ast.ImportFrom)]
    found = [each for each in imports if name in [alias.name for alias in each.names]]
    return module in [(each.module or "").rpartition(".")[2] for each in found]


def class_of(receiver: str, scope: Scope) -> str:
    """Return the class of a name, by the annotation of the parameter; empty if it has none."""
    if receiver == "self":
        return scope.owner.name if scope.owner else ""
    found = [each for each in scope.function.args.args if each.arg == receiver] if scope.function else []
    return ast.unparse(found[0].annotation) if found and found[0].annotation else ""


def assigned(node: ast.AST, name: str) -> Iterator[ast.expr]:
    """Yield what an assignment gives to a name."""
    match node:
        case ast.Assign(targets=[ast.Name(target)], value=value) if target == name:
            yield value
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
            yield from (
                value
                for target, value in zip(targets, values, strict=False)
                if isinstance(target, ast.Name) and target.id == name
            )
