"""The route step of a training chooses a family: the first one for which money and time are enough."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from routing_cases import CPU_1, EVALUATE, TRAIN, laptop_question

from shoestring.core.record import record_bytes
from shoestring.core.types import Need
from shoestring.pricing.learned.calibration import LearnedSpeed
from shoestring.routing.analysis.replay import replay
from shoestring.routing.decide import decide
from shoestring.routing.decision import Decision
from shoestring.routing.pages.explain import as_markdown
from shoestring.routing.question import Question
from shoestring.routing.question_parts import FamilyOption

ROWS = 336_776
LARGE = TRAIN.model_copy(update={"setup_s": 20.0, "cpu_us_per_row": 30.0, "work": "a large"})
MIDDLE = TRAIN.model_copy(update={"cpu_us_per_row": 3.0, "passes": 1000.0, "work": "a middle"})
SMALL = TRAIN.model_copy(update={"setup_s": 1.0, "cpu_us_per_row": 0.5, "min_passes": 0.1, "work": "a small"})


def option(name: str, need: Need, epochs: float, **fields: object) -> FamilyOption:
    return FamilyOption.model_validate(
        {"name": name, "need": need, "enough_samples": int(ROWS * epochs)} | fields
    )


FAMILIES = (option("large", LARGE, 5), option("middle", MIDDLE, 20), option("small", SMALL, 1))


def question(budget_usd: str, families: tuple[FamilyOption, ...] = FAMILIES, **fields: object) -> Question:
    needs = (LARGE, EVALUATE)
    return laptop_question(needs, budget_usd, families=families, rows=ROWS, row_bytes=60, **fields)


def chosen(decision: Decision) -> str:
    assert decision.question.family is not None
    return decision.question.family.name


@pytest.mark.parametrize(
    ("budget_usd", "name", "reason"),
    [
        ("0.01", "large", "samples fit"),
        ("0.0009", "middle", "of large's 1,683,880 samples fit; "),
        ("0.0005", "middle", "large does not fit; "),
        ("0.0003", "small", "large does not fit; 3,846,956 of middle's 6,735,520 samples fit; "),
        ("0.00015", "small", "middle does not fit; "),
    ],
)
def test_the_first_family_is_chosen_of_which_the_money_buys_enough(
    budget_usd: str, name: str, reason: str
) -> None:
    decision = decide(question(budget_usd))
    assert decision.choice is not None
    assert chosen(decision) == name
    assert decision.question.family is not None and reason in decision.question.family.reason
    need = {each.name: each.need for each in FAMILIES}[name]
    assert decision.question.needs == (need, EVALUATE)
    assert f"{name}: " in as_markdown(decision)


def test_time_counts_like_money() -> None:
    assert chosen(decide(question("1"))) == "large"
    assert chosen(decide(question("1", deadline_left_s=45.0))) == "middle"


def test_a_cached_result_of_a_family_is_enough() -> None:
    cached = FAMILIES[1].model_copy(update={"cached_outcome": "cache/1.json", "cache_key": "1"})
    decision = decide(question("0.0006", (FAMILIES[0], cached, FAMILIES[2])))
    assert chosen(decision) == "middle"
    assert decision.choice is not None and decision.choice.cached
    assert (decision.question.cached_outcome, decision.question.digests["cache"]) == ("cache/1.json", "1")


def test_where_no_family_fits_the_refusal_is_that_of_the_smallest() -> None:
    decision = decide(question("0.00001"))
    assert decision.choice is None and chosen(decision) == "small"
    enough = decision.smallest_budget_usd
    assert enough is not None
    assert decide(question(str(enough))).choice is not None
    assert decide(question(str(enough - Decimal("0.000001")))).choice is None


def test_the_speed_of_a_family_is_its_own() -> None:
    slow = LearnedSpeed(stage="train", hardware="1 x 1 Gop/s core", runs=5, log_mean=3.0, log_sd=0.1)
    of_evaluate = slow.model_copy(update={"stage": "evaluate", "log_mean": 0.1})
    late = FAMILIES[0].model_copy(update={"learned": (slow,)})
    decision = decide(question("0.01", (late, *FAMILIES[1:]), learned=(of_evaluate,), pools=(CPU_1,)))
    assert chosen(decision) == "middle"
    assert decision.question.learned == (of_evaluate,)


@given(st.integers(20, 4000), st.sampled_from([None, 20.0, 60.0, 300.0]))
def test_the_choice_of_a_family_is_remade_by_a_replay(micro: int, deadline_s: float | None) -> None:
    asked = question(str(Decimal(micro) / 1_000_000), deadline_left_s=deadline_s)
    recorded = record_bytes(decide(asked))
    assert replay(recorded).verdict == "same"


def test_a_replay_of_a_decision_with_another_family_differs() -> None:
    decision = decide(question("0.01"))
    other = decision.model_copy(update={"question": decision.question.of_family(FAMILIES[1], "by hand")})
    assert replay(record_bytes(other)).verdict == "differs"
