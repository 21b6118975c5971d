"""Questions about DAGs of stages."""

from __future__ import annotations

from hypothesis import strategies as st
from routing_cases import EVALUATE, INGEST, PREPROCESS, laptop_question, questions, tight_questions

from shoestring.core.money import from_microusd
from shoestring.core.types import Format, Need
from shoestring.routing.dag import UpstreamStage
from shoestring.routing.question import Question

DIAMOND = (
    INGEST,
    PREPROCESS.model_copy(update={"stage": "left", "after": ("ingest",)}),
    PREPROCESS.model_copy(update={"stage": "right", "after": ("ingest",)}),
    EVALUATE.model_copy(update={"stage": "join", "after": ("left", "right")}),
)


SIDE = UpstreamStage(stage="side", format=Format.PACKED, row_bytes=80, ready_s=7.5)


@st.composite
def branching(draw: st.DrawFn, stages: int = 4) -> Question:
    """Random small questions: stages wait for earlier ones, the input, a running stage, or none."""
    question = draw(st.one_of(questions(stages), tight_questions(stages)))
    needs, names = list[Need](), list[str]()
    for number, need in enumerate(question.needs):
        others = st.sampled_from([*names, *names, "up", "side"])
        after = ("up",) if number == 0 else tuple(dict.fromkeys(draw(st.lists(others, max_size=3))))
        needs.append(need.model_copy(update={"after": after}))
        names.append(need.stage)
    changes = {"needs": tuple(needs), "speeds": laptop_question().speeds, "upstream": (SIDE,)}
    if question.deadline_left_s is not None:
        changes["deadline_left_s"] = question.deadline_left_s * draw(st.floats(0.3, 1.5))
    return Question.model_validate(question.model_copy(update=changes).model_dump())


def wide(stages: int, deadline_left_s: float) -> Question:
    """Pairs of parallel stages, on pools that trade money for time in many ways."""
    needs = [INGEST]
    for number in range(1, stages):
        after = tuple(
            dict.fromkeys(f"s{max(0, number - step)}" if number > step else "ingest" for step in (2, 3))
        )
        size = {
            "cpu_us_per_row": 1.0 * (1 + number * 7 % 5),
            "parallel_fraction": 0.9,
            "setup_s": float(number % 4),
        }
        needs.append(
            PREPROCESS.model_copy(
                update={
                    "stage": f"s{number}",
                    "after": tuple("ingest" if name == "s0" else name for name in after),
                }
                | size
            )
        )
    question = laptop_question(tuple(needs), "1000", deadline_left_s=deadline_left_s)
    one = question.pools[0]
    pools = tuple(
        one.model_copy(update={"name": f"p{cores}", "cores": cores, "startup_s": float(cores % 7)})
        for cores in range(1, 41)
    )
    price = {pool.name: from_microusd(40_000 * pool.cores + 3_000 * pool.cores**2) for pool in pools}
    quotes = tuple(
        question.quotes[0].model_copy(update={"pool": name, "usd_per_hour": amount})
        for name, amount in price.items()
    )
    return question.model_copy(update={"pools": pools, "quotes": quotes})
