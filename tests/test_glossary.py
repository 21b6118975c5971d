"""Every term of docs/glossary.md is a word of the code: in its identifiers or in its docstrings."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROW = re.compile(r"^\| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
DEFINED_BY = {
    "account": "Account",
    "adaptation limits": "AdaptationLimits",
    "approval": "Approval",
    "attempt": "Attempt",
    "campaign": "Campaign",
    "candidate": "Candidates",
    "candidate policy": "CandidatePolicy",
    "cap": "UsageCap",
    "commitment": "Commitment",
    "decision": "Decision",
    "exit step": "exit_step",
    "guardrail": "Guardrails",
    "heartbeat": "Heartbeat",
    "hindsight": "hindsight",
    "lease": "Lease",
    "ledger": "Ledger",
    "look-ahead": "Lookahead",
    "market": "Market",
    "meter": "Meter",
    "migration": "check_migration",
    "need": "Need",
    "offer": "enumerate_offers",
    "placement": "Placement",
    "policy": "Policy",
    "pool": "Pool",
    "quote": "Quote",
    "reaper": "reap",
    "receipt": "Receipt",
    "recipe": "Recipe",
    "reservation": "Reservation",
    "router": "decide",
    "run": "Run",
    "start": "RunStart",
    "stock-out": "StockOut",
    "storage class": "StorageClass",
    "tariffs": "Tariffs",
    "target": "target_of",
    "workload class": "WorkloadClass",
    "world": "World",
}
"""The class or function that gives a term its meaning, where there is one."""


def glossary_terms() -> list[str]:
    text = (ROOT / "docs/glossary.md").read_text()
    terms = [term.strip() for term, _ in ROW.findall(text)]
    return [term for term in terms if term != "term" and not set(term) <= set("-")]


def identifiers_and_docstrings() -> tuple[set[str], str]:
    """Return the names that are defined at the top level, and all identifiers and docstrings as words."""
    defined: set[str] = set()
    words: list[str] = []
    for path in sorted((ROOT / "shoestring").rglob("*.py")):
        tree = ast.parse(path.read_text())
        defined |= {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                words += [node.name, ast.get_docstring(node) or ""]
            elif isinstance(node, ast.Module):
                words.append(ast.get_docstring(node) or "")
            elif isinstance(node, ast.arg):
                words.append(node.arg)
            elif isinstance(node, ast.Name):
                words.append(node.id)
    return defined, as_words("\n".join(words))


def as_words(text: str) -> str:
    """Return text in lower case, with identifiers split into words and lines joined by spaces."""
    split = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", text)
    return re.sub(r"[\s_-]+", " ", split).lower()


@pytest.fixture(scope="module")
def code() -> tuple[set[str], str]:
    return identifiers_and_docstrings()


@pytest.mark.parametrize("term", glossary_terms())
def test_each_term_occurs_in_identifiers_or_docstrings(term: str, code: tuple[set[str], str]) -> None:
    _, words = code
    assert re.search(rf"\b{re.escape(as_words(term))}s?\b", words), f"{term} is in no identifier or docstring"


@pytest.mark.parametrize("term", sorted(DEFINED_BY))
def test_what_defines_a_term_exists(term: str, code: tuple[set[str], str]) -> None:
    defined, _ = code
    assert term in glossary_terms(), f"{term} has left the glossary"
    assert DEFINED_BY[term] in defined, f"{DEFINED_BY[term]}, which defines {term}, does not exist"


def test_terms_are_sorted_and_none_is_listed_twice() -> None:
    terms = glossary_terms()
    assert len(terms) > 40
    assert terms == sorted(set(terms), key=str.lower)
