"""Tables as people have them are read as they mean, or refused with the fix."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from combined_tables import generated_cases
from messy_cases import Case, judge
from real_tables import FOLDER, listed, real_cases

KINDS = {
    "real tables": 39,
    "another delimiter": 10,
    "quotes and escapes": 13,
    "lines before, between and after": 21,
    "headers": 16,
    "line ends": 3,
    "encodings": 20,
    "missing values": 11,
    "written numbers": 15,
    "dates": 12,
    "bad rows": 6,
    "JSON lines": 5,
    "no table": 9,
    "late in the file": 12,
    "decoys": 16,
    "lines around, in other words": 20,
    "values, in other words": 35,
    "several at once": 24,
}
"""How many files there are of each kind."""

MAX_FILE_BYTES, MAX_BYTES = 60_000, 1_500_000


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return [*real_cases(), *generated_cases()]


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_is_read_as_it_means_or_refused_with_the_fix(kind: str, cases: list[Case]) -> None:
    verdicts = {case.name: judge(case) for case in cases if case.kind == kind}
    assert len(verdicts) == KINDS[kind]
    failed = [
        f"{name} ({found.outcome}): {found.reason}" for name, found in verdicts.items() if not found.passed
    ]
    assert not failed, "\n".join([f"{len(failed)} of {len(verdicts)} files:", *failed])


def test_every_kind_of_file_is_judged(cases: list[Case]) -> None:
    assert Counter(case.kind for case in cases) == KINDS


def test_the_judge_notices_a_value_a_kind_a_name_and_a_row_that_differ(cases: list[Case]) -> None:
    case = next(case for case in cases if case.name == "semicolons")
    assert case.reading is not None
    assert judge(case).passed
    (name, kind), *others = case.reading.columns
    first = case.reading.known[0]
    for wrong in (
        replace(case.reading, known={0: ["K-999Z", *first[1:]]}),
        replace(case.reading, columns=((name, "number"), *others)),
        replace(case.reading, columns=(("id", kind), *others)),
        replace(case.reading, rows=case.reading.rows + 1),
    ):
        found = judge(replace(case, reading=wrong))
        assert (found.outcome, found.passed) == ("silently wrong", False), found.reason
    assert not judge(replace(case, reading=None, refusal=("never",))).passed


def test_a_seed_gives_the_same_bytes(cases: list[Case]) -> None:
    again = [case.data for case in generated_cases()]
    assert again == [case.data for case in cases if case.kind != "real tables"]


def test_every_real_file_is_listed_with_its_licence_and_is_small() -> None:
    files = {path.name: path.stat().st_size for path in (FOLDER / "files").iterdir()}
    assert {each["file"] for each in listed()} == set(files)
    assert max(files.values()) <= MAX_FILE_BYTES and sum(files.values()) <= MAX_BYTES
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    for each in listed():
        line = (
            f"| `{each['file']}` | {each['package']} {each['version']} | `{each['path']}`, {each['part']} |"
        )
        assert f"{line} {each['licence']} |" in readme
