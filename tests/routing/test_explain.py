"""Explain pages equal their golden files.

After an intended change, review the pages and write them into tests/routing/golden/.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from examples import examples
from hypothesis import given
from routing_cases import CPU_1, CPU_2, EVALUATE, TRAIN, laptop_question, questions, quote

from shoestring.core.types import Format, Market, MarketTerms, Pool, RejectedPrice
from shoestring.routing.decide import decide
from shoestring.routing.decision import Decision
from shoestring.routing.pages.explain import as_markdown, as_text
from shoestring.routing.question import Question
from shoestring.routing.text_table import TextTable, markdown_lines

GOLDEN = Path(__file__).parent / "golden"
GPU_1 = Pool(
    name="gpu-1",
    cores=8,
    memory_gb=32,
    gpu="L4",
    gpu_count=1,
    gpu_memory_gb=24,
    gpu_tflops=121,
    startup_s=60,
    markets={Market.ON_DEMAND: MarketTerms(), Market.SPOT: MarketTerms(preemptions_per_hour=0.3)},
)
WITH_GPU = {
    "pools": (CPU_1, CPU_2, GPU_1),
    "quotes": (quote("cpu-1", "0.04"), quote("cpu-2", "0.08"), quote("gpu-1", "0.397", Market.SPOT)),
    "rejected_prices": (
        RejectedPrice(
            row="gpu-1 on-demand $700.000000 (2026-11-01, a catalog)",
            reason="$700.000000 an hour is a placeholder",
        ),
    ),
    "spent_usd": "0.001000",
    "held_usd": "0.000250",
    "deadline_left_s": 900.0,
    "stage_budgets": {"train": "0.02"},
}
CASES = {
    "first-stage": laptop_question(),
    "train": laptop_question((TRAIN, EVALUATE), "0.05", **WITH_GPU),
    "refused": laptop_question(budget_usd="0.0004"),
    "cached": laptop_question(cached_outcome="cache/1.json", cached_format=Format.PACKED),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("write", "ending"), [(as_text, "txt"), (as_markdown, "md")])
def test_the_page_equals_the_golden_file(name: str, write: Callable[[Decision], str], ending: str) -> None:
    assert write(decide(CASES[name])) == (GOLDEN / f"{name}.{ending}").read_text()


@examples(50)
@given(questions())
def test_every_decision_can_be_explained(question: Question) -> None:
    decision = decide(question)
    text, markdown = as_text(decision), as_markdown(decision)
    for page in (text, markdown):
        assert question.stage in page and f"${question.budget_usd}" in page
        assert ("refused: nothing fits" in page) == (decision.choice is None)


HOSTILE_NAME = "a|b <img src=x onerror=alert(1)> [click](javascript:x) `c` *d* _e_\n# f \\"


def test_markdown_shows_names_as_they_are() -> None:
    """No name makes a cell, HTML, a link, code, emphasis or a line of its own."""
    table = TextTable(HOSTILE_NAME, ("pool", "verdict"), [(HOSTILE_NAME, "x_y")], note=HOSTILE_NAME)
    lines = markdown_lines(table)
    shown = r"a\|b \<img src=x onerror=alert(1)> \[click\](javascript:x) \`c\` \*d\* \_e\_ # f \\"
    assert lines[4] == f"| {shown} | x_y |"
    assert (lines[0], lines[-1], len(lines)) == (f"## {shown}", shown, 7)
    rejected = RejectedPrice(row=HOSTILE_NAME, reason=HOSTILE_NAME)
    question = laptop_question(rejected_prices=(rejected,))
    assert shown in as_markdown(decide(question))
