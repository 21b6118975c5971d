"""Command lines of `shoestring` as their words, from shell text; and what the command's parser rejects in
them. Nothing runs.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from shoestring.cli import app
from shoestring.core.errors import UsageError

VALUE = "1"
"""Stands for a value that is computed or left to the reader: a number, a path and a text alike."""

HEREDOC = re.compile(r"(<<-?\s*['\"]?(\w+)['\"]?[^\n]*\n).*?^\s*\2$", re.S | re.M)
COMMENT = re.compile(r"(^|\s)#[^\n]*")
STREAM = re.compile(r"(?<=\s)\d+(?=[<>])")
SUBSTITUTION = re.compile(r"\$\(([^()]*)\)")
VARIABLE = re.compile(r"\$\{[^}]*\}|\$\w+")
METAVARIABLE = re.compile(r"[A-Z][A-Z_]*(\.\.\.)?")
ASSIGNMENT = re.compile(r"\w+=.*")
BEFORE_COMMAND = ("", "--", "-m", "time", "*")
"""Words after which `shoestring` is the command, and not a namespace or a folder. `*`: of a cron line."""


def problem(words: Sequence[str], *, is_whole: bool = True) -> str:
    """Return what the command's own parser rejects in a command line; empty if it takes it.

    `is_whole`: a line that may be typed. Prose may name a command without its arguments, and an option
    without its value.
    """
    ends_with_option = bool(words) and words[-1].startswith("--")
    rest = [*words, VALUE] if ends_with_option and not is_whole else [*words]
    command, context = typer.main.get_command(app), None
    try:
        while True:
            parent = context
            if is_whole and not (isinstance(command, TyperGroup) and rest):
                command.make_context(command.name, [*rest], parent)
            context = typer.Context(command, parent, command.name)
            _, left, _ = command.make_parser(context).parse_args([*rest])
            if not (isinstance(command, TyperGroup) and left):
                return ""
            _, command, rest = command.resolve_command(context, left)
    except typer.Exit:
        return ""
    except TyperException as error:
        return error.format_message()
    except UsageError as error:
        return str(error)


def shell_lines(text: str) -> Iterator[list[str]]:
    """Yield the words after `shoestring` of each of its commands in shell text, those in `$(...)` included.
    Values of variables and of `$(...)` are VALUE.
    """
    text = COMMENT.sub(r"\1", HEREDOC.sub(r"\1", text.replace("\\\n", " ")))
    while found := SUBSTITUTION.search(text):
        yield from shell_lines(found[1])
        text = text[: found.start()] + VALUE + text[found.end() :]
    text = VARIABLE.sub(VALUE, STREAM.sub("", text))
    lexer = shlex.shlex(text, posix=True, punctuation_chars="();<>|&\n")
    lexer.commenters, lexer.whitespace, lexer.whitespace_split = "", " \t", True
    command, is_target = list[str](), False
    for word in [*lexer, "\n"]:
        if set(word) & set("<>") and set(word) <= set("<>&|"):
            is_target = True
        elif word and set(word) <= set("();|&\n"):
            yield from _after_name(command)
            command, is_target = [], False
        elif not is_target:
            command.append(word)
        else:
            is_target = False


def _after_name(words: list[str]) -> Iterator[list[str]]:
    for before, word, at in zip(["", *words], words, range(1, len(words) + 1), strict=False):
        is_first = before in BEFORE_COMMAND or ASSIGNMENT.fullmatch(before)
        if is_first and word.rpartition("bin/")[2] == "shoestring":
            yield [VALUE if METAVARIABLE.fullmatch(each) else each for each in words[at:]]
            return
