"""Claim: the prose holds fewer than 1 idiom marker in 1,000 words.

python bench/prose.py [ROOT] [--list] [--only PATH]

tests/prose_markers.txt of this repository lists the markers, one regular expression a line. The script counts
them in three groups of the files of ROOT (default: this repository):
- all docstrings;
- README.md and docs/*.md, without code;
- the strings of the package: every literal of three words or more, such as help, descriptions and messages.
--list prints each marker with its file and line. --only counts only the files below one path.
tests/test_prose.py asserts the limit.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
MARKERS = ROOT / "tests" / "prose_markers.txt"
CODE_FOLDERS = ("shoestring", "components", "pipelines", "images", "bench", "tests")
STRING_FOLDERS = ("shoestring", "components", "pipelines")
WORD = re.compile(r"[A-Za-z][A-Za-z'’-]*")
FENCED, SPAN = re.compile(r"^ *```.*?^ *```", re.S | re.M), re.compile(r"`[^`\n]*`")
MIN_WORDS = 3
OPENING = r"\A\W*"


@dataclass(frozen=True)
class Text:
    """One piece of prose that begins at this line of the file."""

    file: Path
    line: int
    words: str
    is_docstring: bool = False


@dataclass(frozen=True)
class MarkerHit:
    """One marker that was found."""

    file: Path
    line: int
    marker: str
    context: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.marker}: {self.context}"


@dataclass(frozen=True)
class ProseCount:
    """The markers and the words of one group of texts."""

    words: int
    hits: tuple[MarkerHit, ...]

    @property
    def per_1000(self) -> float:
        return 1000 * len(self.hits) / max(1, self.words)


def read_markers(file: Path = MARKERS) -> list[re.Pattern[str]]:
    """Return the markers of the file. One that begins with ^ matches only the first words of a docstring."""
    lines = (line.strip() for line in file.read_text().splitlines())
    return [pattern_of(line) for line in lines if line and not line.startswith("#")]


def pattern_of(marker: str) -> re.Pattern[str]:
    """Return the pattern of a marker: whole words, any case, any space between words."""
    start = OPENING if marker.startswith("^") else r"(?<![\w-])"
    words = marker.removeprefix("^").replace(" ", r"\s+")
    return re.compile(rf"{start}(?:{words})(?![\w-])", re.I)


def without_code(text: str) -> str:
    """Return the text with code blocks and code spans blanked, on the same lines as before."""
    blanked = FENCED.sub(lambda found: "\n" * found.group().count("\n"), text)
    return SPAN.sub("`code`", blanked)


def string_of(node: ast.Constant | ast.JoinedStr) -> str:
    """Return the text of a literal; each value inside an f-string counts as one word."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    parts = (string_of(part) if isinstance(part, ast.Constant) else "VALUE" for part in node.values)
    return "".join(parts)


def docstrings_of(tree: ast.AST) -> Iterator[ast.Constant]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            value = first.value if isinstance(first, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield value


def literals_of(tree: ast.AST) -> Iterator[ast.Constant | ast.JoinedStr]:
    """Yield the string literals that are neither docstrings nor part of an f-string."""
    skipped = {id(node) for node in docstrings_of(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant | ast.JoinedStr) and id(node) not in skipped:
            yield node


def python_files(root: Path, folders: tuple[str, ...]) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((root / folder).rglob("*.py"))


def texts_of(root: Path) -> dict[str, list[Text]]:
    """Return the texts of the three groups, with files relative to the root."""
    groups: dict[str, list[Text]] = {"docstrings": [], "docs": [], "strings": []}
    for file in python_files(root, CODE_FOLDERS):
        short, tree = file.relative_to(root), ast.parse(file.read_text())
        for node in docstrings_of(tree):
            groups["docstrings"].append(Text(short, node.lineno, without_code(string_of(node)), True))
        if short.parts[0] in STRING_FOLDERS:
            for literal in literals_of(tree):
                text = without_code(string_of(literal))
                if len(WORD.findall(text)) >= MIN_WORDS:
                    groups["strings"].append(Text(short, literal.lineno, text))
    for file in (*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md"))):
        groups["docs"].append(Text(file.relative_to(root), 1, without_code(file.read_text())))
    return groups


def hits_in(text: Text, markers: list[re.Pattern[str]]) -> Iterator[MarkerHit]:
    for marker in markers:
        if marker.pattern.startswith(OPENING) and not text.is_docstring:
            continue
        for found in marker.finditer(text.words):
            line = text.line + text.words.count("\n", 0, found.start())
            context = " ".join(text.words[max(0, found.start() - 30) : found.end() + 30].split())
            yield MarkerHit(text.file, line, " ".join(found.group().split()), context)


def count(texts: list[Text], markers: list[re.Pattern[str]]) -> ProseCount:
    """Return the number of words in these texts and the markers found in them."""
    words = sum(len(WORD.findall(text.words)) for text in texts)
    return ProseCount(words, tuple(hit for text in texts for hit in hits_in(text, markers)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("root", nargs="?", type=Path, default=ROOT)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--only", type=Path, help="a file or folder below ROOT")
    given, markers = parser.parse_args(), read_markers()
    print(f"{'group':<24} {'words':>7} {'markers':>7} {'per 1,000':>9}")
    for group, texts in texts_of(given.root).items():
        texts = [text for text in texts if given.only is None or text.file.is_relative_to(given.only)]
        by_folder: dict[str, list[Text]] = {"": texts}
        for text in texts if group == "docstrings" else ():
            by_folder.setdefault(text.file.parts[0], []).append(text)
        for folder, some in by_folder.items():
            found = count(some, markers)
            name = f"  {folder}" if folder else group
            print(f"{name:<24} {found.words:>7} {len(found.hits):>7} {found.per_1000:>9.1f}")
        if given.list:
            print(*count(texts, markers).hits, sep="\n")
            often = Counter(hit.marker.lower() for hit in count(texts, markers).hits)
            print(", ".join(f"{marker} {times}" for marker, times in often.most_common(40)))


if __name__ == "__main__":
    main()
