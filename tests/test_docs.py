"""README and docs match the code: commands and options exist, shell blocks run, links and paths resolve."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from command_lines import problem, shell_lines
from commands import Finished
from documented import PAGES, ROOT, TAGS, blocks, run_block, tagged
from typer.testing import CliRunner

from shoestring.backends.folder_store import FolderStore
from shoestring.cli import app

README = (ROOT / "README.md").read_text()
FENCED = re.compile(r"^```.*?^```", re.S | re.M)
SPAN = re.compile(r"`([^`\n]+)`")
OPTION = re.compile(r"(?<![\w-])--[a-z-]+")
SHELL = re.compile(r"^(shoestring|kubectl|make|docker|pip|python|argo|cd|sed|bash) ", re.M)
CRON = re.compile(r"^([\d*]+ +){5}shoestring ", re.M)
REFERENCE = ("cli.md", "components.md")


def commands() -> set[str]:
    """Return every command, by its words."""

    def walk(node: object, words: tuple[str, ...]) -> Iterator[str]:
        children = getattr(node, "commands", None)
        if children is None:
            yield " ".join(words)
            return
        if words and getattr(node, "invoke_without_command", False):
            yield " ".join(words)
        for name, child in children.items():
            yield from walk(child, (*words, name))

    return set(walk(typer.main.get_command(app), ()))


COMMANDS = commands()


def spans(line: str) -> Iterator[str]:
    """Yield the commands in the code spans of one line; in a table's first cell, `ledger show`, `verify` are
    two.
    """
    found = [
        span.removeprefix("shoestring ") for span in SPAN.findall(line) if span.startswith("shoestring ")
    ]
    yield from found
    if line.startswith("| `shoestring ") and found:
        group = found[0].split()[:-1]
        yield from (
            " ".join([*group, span])
            for span in SPAN.findall(line.split("|")[1])
            if not span.startswith("shoestring ")
        )


def shown(page: str) -> list[str]:
    """Return every `shoestring ...` on a page, without its first word."""
    fenced = [line.split("#")[0].strip() for block in FENCED.findall(page) for line in block.splitlines()]
    inside = [line.removeprefix("shoestring ") for line in fenced if line.startswith("shoestring ")]
    return inside + [each for line in FENCED.sub("", page).splitlines() for each in spans(line)]


def command_of(text: str) -> str:
    """Return the longest beginning of a text that is a command. `data RECIPE` is `data show RECIPE`."""
    words = text.split()
    found = next((name for end in (2, 1) if (name := " ".join(words[:end])) in COMMANDS), "")
    return found or ("data show" if words[:1] == ["data"] else "")


def options_of(name: str) -> set[str]:
    helped = CliRunner().invoke(app, [*name.split(), "--help"], env={"COLUMNS": "200"})
    assert helped.exit_code == 0
    return set(OPTION.findall(helped.output))


def test_the_parser_takes_every_command_line_of_the_pages() -> None:
    """Prose may name a command without its arguments; a block is typed as it is."""
    shell = [each for each in blocks() if each.info.startswith("sh ") or CRON.search(each.text)]
    typed = [(each.place, words) for each in shell for words in shell_lines(each.text)]
    named = [
        (page.name, words)
        for page in PAGES
        for line in FENCED.sub("", page.read_text()).splitlines()
        for text in spans(line)
        for words in shell_lines(f"shoestring {re.sub(r'[][]', '', text)}")
    ]
    assert len(typed) > 30 and len(named) > 100
    wrong = [(place, words, problem(words)) for place, words in typed]
    wrong += [(place, words, problem(words, is_whole=False)) for place, words in named]
    assert [each for each in wrong if each[-1]] == []


def test_the_readme_shows_every_command() -> None:
    assert {command_of(text) for text in shown(README)} - {""} == COMMANDS


def test_an_option_that_the_readme_names_alone_belongs_to_some_command() -> None:
    alone = {span.split()[0] for span in SPAN.findall(FENCED.sub("", README)) if span.startswith("--")}
    assert alone
    assert alone <= {option for name in (*COMMANDS, "") for option in options_of(name)}


def test_every_shell_block_has_one_of_four_tags() -> None:
    allowed = {f"sh {tag}" for tag in TAGS}
    assert {each.info for each in blocks()} >= allowed
    untagged = [
        each.place
        for each in blocks()
        if each.info not in allowed
        and (each.info.split(" ")[0] in ("sh", "bash", "shell", "console") or SHELL.search(each.text))
    ]
    assert untagged == []


def test_every_make_target_that_is_shown_exists() -> None:
    lines = [
        line for each in tagged("developer") for line in each.text.splitlines() if line.startswith("make ")
    ]
    assert len(lines) > 5
    for line in lines:
        subprocess.run(["make", "-n", line.split()[1]], cwd=ROOT, check=True, capture_output=True)


def test_links_between_the_pages_resolve() -> None:
    broken = [
        f"{page.name}: {target}"
        for page in PAGES
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text())
        if not (page.parent / target).exists()
    ]
    assert broken == []


def test_modules_that_the_pages_name_exist() -> None:
    named = {
        (page.name, path)
        for page in PAGES
        if page.name not in REFERENCE
        for path in re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.(?:py|yaml|md|txt))[`:]", page.read_text())
    }
    assert len(named) > 20
    places = (ROOT, ROOT / "shoestring", ROOT / "manifests")
    missing = [
        (page, path)
        for page, path in named
        if not any((place / path).exists() for place in places)
        and not path.startswith(("dedupe_rows/", "digit_budget/", "compiled/", "argo/"))
        if path.split("/")[0] not in ("world", "pools", "prices", "policy", "budgets", "decisions", "tests")
    ]
    assert missing == []


@pytest.mark.slow
def test_the_blocks_of_the_pages_run_on_this_machine(tmp_path: Path) -> None:
    """The blocks of the authoring page run in test_authoring.py."""
    found = [each for each in tagged("here") if each.page.name != "authoring.md"]
    assert found
    for each in found:
        folder = tmp_path / each.page.stem
        folder.mkdir(exist_ok=True)
        run_block(each, folder, HOME=str(folder))


def layout() -> dict[str, re.Pattern[str]]:
    """Return the keys that the data page names, as patterns: capitals stand for one part of a key."""
    block = re.search(r"## The store\s+.*?```\n(.*?)```", (ROOT / "docs" / "data.md").read_text(), re.S)
    assert block, "docs/data.md has no store layout"
    keys = []
    for line in block.group(1).splitlines():
        beginning = "runs/RUN_ID" if line.strip().startswith("/") else ""
        path = re.split(r"\s{2,}", line.strip())[0]
        if re.fullmatch(r"/?[\w/-]+(\.json|\.html|/)", path) or path.startswith("blobs/"):
            keys.append(f"{beginning}/{path.lstrip('/')}".lstrip("/"))
    return {
        key: re.compile(
            re.sub(r"[A-Z][A-Z_0-9]*", "[^/]+", re.escape(key)) + (".+" if key.endswith("/") else "")
        )
        for key in keys
    }


def test_the_store_holds_every_key_that_the_docs_name_and_no_other(finished: Finished) -> None:
    named, stored = layout(), list(FolderStore(finished.store).list(""))
    assert len(named) > 10
    # A small successful run does not write these; the tests of kills, migrations, races, refusals and
    # predictions do.
    rare = {
        "runs/RUN_ID/checkpoints/train.json",
        "runs/RUN_ID/migration-checks/STAGE-N.json",
        "runs/RUN_ID/approval-request.json",
        "runs/RUN_ID/refusal.json",
        "runs/RUN_ID/error.json",
        "runs/RUN_ID/profile.json",
        "runs/RUN_ID/predictions.json",
        "ledger/ACCOUNT/approvals/DIGEST.json",
        "ledger/ACCOUNT/checkpoint.json",
        "pending/ACCOUNT/NUMBER/",
        "commitments/NAME/MONTH/N.json",
    }
    assert {key for key, pattern in named.items() if not any(map(pattern.fullmatch, stored))} <= rare
    assert [key for key in stored if not any(pattern.fullmatch(key) for pattern in named.values())] == []
