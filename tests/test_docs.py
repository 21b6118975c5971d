"""The README and the design page say what is there: commands, their options, the keys of the store."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from commands import Finished
from typer.testing import CliRunner

from shoestring.backends.folder_store import FolderStore
from shoestring.cli import app

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
DESIGN = (ROOT / "docs" / "design.md").read_text()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCED = re.compile(r"^```.*?^```", re.S | re.M)
SPAN = re.compile(r"`([^`\n]+)`")


def commands() -> set[str]:
    """Every command there is, by its words."""
    tree = typer.main.get_command(app)

    def walk(node: object, words: tuple[str, ...]) -> Iterator[str]:
        children = getattr(node, "commands", None)
        if children is None:
            yield " ".join(words)
            return
        for name, child in children.items():
            yield from walk(child, (*words, name))

    return set(walk(tree, ()))


COMMANDS = commands()


def spans(line: str) -> Iterator[str]:
    """The commands in the code spans of one line; in a table's first cell, `shoestring ledger show`, `verify` is two of `ledger`."""
    found = [
        span.removeprefix("shoestring ") for span in SPAN.findall(line) if span.startswith("shoestring ")
    ]
    yield from found
    if line.startswith("|") and found:
        group = found[0].split()[:-1]
        yield from (
            " ".join([*group, span])
            for span in SPAN.findall(line.split("|")[1])
            if not span.startswith("shoestring ")
        )


def shown(page: str) -> list[str]:
    """Every `shoestring ...` on a page, without its first word."""
    fenced = [line.split("#")[0].strip() for block in FENCED.findall(page) for line in block.splitlines()]
    blocks = [line.removeprefix("shoestring ") for line in fenced if line.startswith("shoestring ")]
    return blocks + [
        said
        for line in FENCED.sub("", page).splitlines()
        for said in spans(line)
        if not said.startswith("...")
    ]


def command_of(said: str) -> str:
    """The longest beginning of what was said that is a command."""
    words = said.split()
    return next((name for end in (2, 1) if (name := " ".join(words[:end])) in COMMANDS), "")


@pytest.mark.parametrize("said", sorted({said for page in PAGES for said in shown(page.read_text())}))
def test_a_command_that_is_shown_exists_with_its_options(said: str) -> None:
    name = command_of(said)
    assert name, f"there is no `shoestring {said}`; there is: {', '.join(sorted(COMMANDS))}"
    helped = CliRunner().invoke(app, [*name.split(), "--help"], env={"COLUMNS": "200"})
    assert helped.exit_code == 0
    options = set(re.findall(r"(?<![\w-])--[a-z-]+", helped.output))
    assert set(re.findall(r"(?<![\w-])--[a-z-]+", said)) <= options


def test_the_readme_shows_every_command() -> None:
    assert {command_of(said) for said in shown(README)} - {""} == COMMANDS


def test_an_option_that_the_readme_names_alone_belongs_to_some_command() -> None:
    alone = {span.split()[0] for span in SPAN.findall(FENCED.sub("", README)) if span.startswith("--")}
    helped = "".join(
        CliRunner().invoke(app, [*name.split(), "--help"], env={"COLUMNS": "200"}).output for name in COMMANDS
    )
    assert alone
    assert alone <= set(re.findall(r"--[a-z-]+", helped))


def layout() -> dict[str, re.Pattern[str]]:
    """The keys that the design page names, as patterns: a word in capitals stands for any one part of a key."""
    block = re.search(r"## Store\s+```\n(.*?)```", DESIGN, re.S)
    assert block, "docs/design.md has no store layout"
    keys = []
    for line in block.group(1).splitlines():
        beginning = "runs/RUN_ID" if line.startswith(" ") else ""
        named = re.split(r"\s{2,}", line.strip())
        paths = [
            word
            for word in named
            if re.fullmatch(r"/?[\w/-]+(\.json|\.html|/)", word) or word.startswith("blobs/")
        ]
        keys += [f"{beginning}/{path.lstrip('/')}".lstrip("/") for path in paths]
    return {
        key: re.compile(
            re.sub(r"[A-Z][A-Z_0-9]*", "[^/]+", re.escape(key)) + (".+" if key.endswith("/") else "")
        )
        for key in keys
    }


def test_the_store_holds_every_key_that_the_design_names_and_no_other(finished: Finished) -> None:
    named, there = layout(), list(FolderStore(finished.store).list(""))
    assert len(named) > 10
    # What a small run that goes well does not come to: the tests of kills, second looks, crowds, commitments and refusals find it there.
    missing = {key for key, pattern in named.items() if not any(map(pattern.fullmatch, there))}
    rare = {
        "runs/RUN_ID/checkpoints/train.json",
        "runs/RUN_ID/looks/STAGE-N.json",
        "wishes/ACCOUNT/NUMBER/",
        "commitments/NAME/MONTH/N.json",
        "runs/RUN_ID/refusal.json",
    }
    assert missing <= rare
    assert [key for key in there if not any(pattern.fullmatch(key) for pattern in named.values())] == []
