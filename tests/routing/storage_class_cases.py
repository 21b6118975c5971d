"""Questions whose store has several storage classes."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from routing_cases import CPU_1, laptop_question, questions, quote, tight_questions

from shoestring.config.tariffs import StorageClass, Tariffs
from shoestring.core.money import usd
from shoestring.core.types import STANDARD_CLASS, Need
from shoestring.routing.decide import decide
from shoestring.routing.decision import Decision
from shoestring.routing.question import Question

WRITE = Need(stage="write", setup_s=1, cpu_us_per_row=2, writes_bytes_per_row=4000)
READ = Need(stage="read", setup_s=1, cpu_us_per_row=2, reads="scan")
ROWS = 1_000_000
COLD = {"usd_per_gb_month": "0.004", "retrieval_usd_per_gb": "0.03"}


def storage_class_at(
    usd_per_gb_month: float, retrieval_usd_per_gb: float, min_days: float = 0
) -> StorageClass:
    prices = {
        "usd_per_gb_month": f"{usd_per_gb_month:.6f}",
        "retrieval_usd_per_gb": f"{retrieval_usd_per_gb:.6f}",
    }
    return StorageClass.model_validate(prices | {"min_days": min_days})


CLASSES = st.dictionaries(
    st.sampled_from(["COLD", "IA"]),
    st.builds(storage_class_at, st.floats(0, 30), st.floats(0, 2), st.sampled_from([0, 0, 30])),
    min_size=1,
)


def with_classes(question: Question, classes: dict[str, StorageClass], reads: str, hours: float) -> Question:
    """Return the question with several storage classes, at prices that matter next to machine prices."""
    tariffs = question.tariffs.model_copy(
        update={
            "storage_classes": classes,
            "storage_usd_per_gb_month": usd("20"),
            "storage_held_hours": hours,
        }
    )
    return question.model_copy(
        update={"tariffs": tariffs, "reads_storage_class": reads, "cached_storage_class": reads}
    )


WITH_CLASSES = st.builds(
    with_classes,
    st.one_of(questions(2), tight_questions(2)),
    CLASSES,
    st.sampled_from([STANDARD_CLASS, "COLD"]),
    st.sampled_from([1.0, 24.0, 730.0]),
)


def decision_of(
    held_hours: float, classes: dict[str, Any], needs: tuple[Need, ...] = (WRITE, READ), **fields: Any
) -> Decision:
    tariffs = Tariffs.model_validate({"storage_classes": classes, "storage_held_hours": held_hours})
    only = {"pools": (CPU_1,), "quotes": (quote("cpu-1", "0.04"),), "rows": ROWS, "tariffs": tariffs}
    return decide(laptop_question(needs, "100", **(only | fields)))
