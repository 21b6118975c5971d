"""The storage class of a data set is chosen with its format, by the prices of storing and of reading it."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from routing_cases import PACKED, PARQUET, questions, tight_questions
from storage_class_cases import (
    COLD,
    READ,
    WITH_CLASSES,
    WRITE,
    decision_of,
    storage_class_at,
)
from test_hindsight import actuals_of, hindsight_of
from test_planner import best_of_all_plans

from shoestring.config.tariff_costs import retrieval_microusd, storage_microusd
from shoestring.config.tariffs import HOURS_PER_MONTH, StorageClass, Tariffs
from shoestring.core.money import microusd
from shoestring.core.record import record_bytes
from shoestring.core.types import STANDARD_CLASS, Format
from shoestring.routing.analysis.outline import pareto_front, stage_outlines
from shoestring.routing.analysis.replay import replay
from shoestring.routing.dag import UpstreamStage
from shoestring.routing.decide import decide
from shoestring.routing.decision import Decision
from shoestring.routing.offers.egress import billed_gb
from shoestring.routing.offers.enumerate import enumerate_offers
from shoestring.routing.pages.explain import as_text
from shoestring.routing.question import Question


@examples(120)
@given(WITH_CLASSES)
def test_no_format_on_any_storage_class_is_better_than_the_choice(question: Question) -> None:
    assert replay(record_bytes(best_of_all_plans(question))).verdict == "same"


@examples(60)
@given(WITH_CLASSES)
def test_each_offer_pays_for_the_classes_that_it_writes_to_and_reads_from(
    question: Question,
) -> None:
    candidates, classes = enumerate_offers(question), question.tariffs.all_storage_classes
    ratios = {speed.format: speed.size_ratio for speed in question.speeds}
    for need, offers in zip(question.needs, candidates.offers, strict=True):
        for number in offers.writes:
            written, storage_class = candidates.stored_format(number)
            gb = np.array(
                [question.rows * need.writes_bytes_per_row / 1e9 * (ratios[written] if written else 2.0)]
            )
            held = storage_microusd(classes[storage_class], gb, question.tariffs.storage_held_hours)
            assert written is None or offers.storage_microusd_by_format[number] == held[0]
    plain = enumerate_offers(
        question.model_copy(
            update={"reads_storage_class": STANDARD_CLASS, "tariffs": free_to_read(question.tariffs)}
        )
    )
    first, rows = question.needs[0], question.rows if question.needs[0].reads != "none" else 0
    extra = (
        candidates.offers[0].transfer_in_microusd_by_region - plain.offers[0].transfer_in_microusd_by_region
    )
    for number, (written, storage_class) in enumerate(candidates.stored_formats):
        gb = np.array([rows * question.row_bytes / 1e9 * ratios[written]])
        columns = extra.reshape(len(candidates.regions), -1)[:, number]
        assert (columns == retrieval_microusd(classes[storage_class], gb)[0]).all(), first.stage


def free_to_read(tariffs: Tariffs) -> Tariffs:
    nothing = {
        name: each.model_copy(update={"retrieval_usd_per_gb": Decimal(0)})
        for name, each in tariffs.storage_classes.items()
    }
    return tariffs.model_copy(update={"storage_classes": nothing})


@examples(100)
@given(
    standard=st.floats(0.01, 0.1),
    share=st.floats(0.05, 0.9),
    retrieval=st.floats(0.001, 0.1),
    readers=st.integers(1, 3),
    times=st.sampled_from([0.9, 1.1]),
)
def test_a_data_set_moves_to_the_cheaper_class_at_the_break_even_time(
    standard: float, share: float, retrieval: float, readers: int, times: float
) -> None:
    """Stored for h hours, read n times: standard h / 730 against share x standard h / 730 + n x retrieval."""
    cold = storage_class_at(standard * share, retrieval)
    saved_usd = Decimal(f"{standard:.6f}") - cold.usd_per_gb_month
    hours = float(readers * cold.retrieval_usd_per_gb / saved_usd) * HOURS_PER_MONTH * times
    tariffs = Tariffs(
        storage_usd_per_gb_month=Decimal(f"{standard:.6f}"),
        storage_held_hours=hours,
        storage_classes={"COLD": cold},
    )
    reads = tuple(READ.model_copy(update={"stage": f"read-{number}"}) for number in range(readers))
    decision = decision_of(hours, {}, (WRITE, *reads), speeds=(PACKED,), tariffs=tariffs)
    assert decision.choice is not None
    assert decision.choice.storage_class == ("COLD" if times > 1 else STANDARD_CLASS)


def test_a_class_with_minimum_days_is_not_chosen_for_less() -> None:
    month = {"usd_per_gb_month": "0.0125", "retrieval_usd_per_gb": "0.001", "min_days": 30}
    tiers = [
        decision.choice.storage_class
        for hours in (24, 300, 720)
        if (decision := decision_of(hours, {"STANDARD_IA": month})).choice
    ]
    assert tiers == [STANDARD_CLASS, STANDARD_CLASS, "STANDARD_IA"]


def test_fees_include_what_the_storage_class_charges_with_the_billed_volume() -> None:
    kept, gb = StorageClass.model_validate(COLD | {"min_days": 90}), np.array([4.0 * PACKED.size_ratio])
    reader = decision_of(
        24, {"COLD": kept}, (READ,), reads_format=Format.PACKED, reads_storage_class="COLD", row_bytes=4000
    )
    assert (
        reader.choice and microusd(reader.choice.incurred_usd(done=False)) == retrieval_microusd(kept, gb)[0]
    )
    assert billed_gb(reader.question, reader.choice) == (gb[0], 0, 0)
    for hours, charged in ((5000, 5000), (1500, 90 * 24)):
        writer = decision_of(hours, {"COLD": kept}, (WRITE,), speeds=(PACKED,))
        assert writer.choice and writer.choice.storage_class == "COLD"
        assert microusd(writer.choice.fees_usd) == storage_microusd(kept, gb, hours)[0]
        assert billed_gb(writer.question, writer.choice) == (
            0,
            0,
            pytest.approx(gb[0] * charged / HOURS_PER_MONTH),
        )


def test_a_data_set_without_readers_goes_to_the_class_that_is_cheapest_to_store_on() -> None:
    archive = {"GLACIER_IR": COLD | {"retrieval_usd_per_gb": "9"}}
    (alone, read) = (decision_of(1000, archive, needs).choice for needs in ((WRITE,), (WRITE, READ)))
    assert (alone and alone.storage_class, read and read.storage_class) == ("GLACIER_IR", STANDARD_CLASS)


@examples(50)
@given(questions())
def test_without_storage_classes_records_do_not_mention_them(question: Question) -> None:
    data = record_bytes(decide(question))
    assert not any(
        name in data for name in (b'"storage_class"', b'"reads_storage_class"', b'"cached_storage_class"')
    )
    assert data.count(b'"workload_classes"') == 1, "those of the policy"


@examples(80)
@given(st.one_of(questions(2), tight_questions(2)))
def test_a_class_that_is_more_expensive_in_everything_changes_no_choice(question: Question) -> None:
    dear = question.tariffs.model_copy(update={"storage_classes": {"DEAR": storage_class_at(30, 2)}})
    plain, offered = decide(question), decide(question.model_copy(update={"tariffs": dear}))
    assert (plain.choice is None) == (offered.choice is None)
    if plain.choice and offered.choice:
        ignored = {"candidate", "sentence"}
        assert offered.choice.model_dump(exclude=ignored) == plain.choice.model_dump(exclude=ignored)
    assert (offered.plan, offered.smallest_budget_usd) == (plain.plan, plain.smallest_budget_usd)
    assert len(offered.candidates.stored_formats) == 2 * len(plain.candidates.stored_formats)


def test_an_existing_data_set_stays_on_its_storage_class() -> None:
    on = {"reads_format": Format.PACKED, "row_bytes": 4000}
    (warm, cold) = (
        decision_of(1, {"COLD": COLD}, (READ,), reads_storage_class=storage_class, **on)
        for storage_class in (STANDARD_CLASS, "COLD")
    )
    assert warm.choice and cold.choice
    more = microusd(cold.choice.est_usd) - microusd(warm.choice.est_usd)
    assert (
        more == retrieval_microusd(StorageClass.model_validate(COLD), np.array([4.0 * PACKED.size_ratio]))[0]
    )
    assert "transfer and retrieval" in as_text(cold)


def test_a_class_without_a_price_counts_as_the_standard_one() -> None:
    on = {"reads_format": Format.PACKED, "row_bytes": 4000}
    (gone, plain) = (
        decision_of(1, {}, (READ,), reads_storage_class=storage_class, **on).choice
        for storage_class in ("GONE", STANDARD_CLASS)
    )
    assert gone == plain


def test_each_upstream_data_set_costs_by_its_own_class() -> None:
    join = READ.model_copy(update={"after": ("write", "other")})
    left = [
        UpstreamStage(stage=name, format=Format.PACKED, row_bytes=4000, storage_class=storage_class)
        for name, storage_class in (("write", "COLD"), ("other", STANDARD_CLASS))
    ]
    plain = [left[1].model_copy(update={"stage": "write"}), left[1]]
    both = [decision_of(1, {"COLD": COLD}, (join,), upstream=tuple(given)).choice for given in (left, plain)]
    cold, warm = (microusd(choice.est_usd) for choice in both if choice)
    assert (
        cold - warm
        == retrieval_microusd(StorageClass.model_validate(COLD), np.array([4.0 * PACKED.size_ratio]))[0]
    )


def test_a_cached_data_set_is_read_from_its_own_class() -> None:
    cached = {"cached_outcome": "cache/1.json", "cached_format": Format.PARQUET}
    needs = (WRITE.model_copy(update={"cpu_us_per_row": 10000.0}), READ)
    (cold, warm) = (
        decision_of(1, {"COLD": COLD}, needs, cached_storage_class=storage_class, **cached)
        for storage_class in ("COLD", STANDARD_CLASS)
    )
    assert (
        cold.choice
        and warm.choice
        and cold.choice.cached
        and (cold.choice.storage_class, warm.choice.storage_class) == ("COLD", STANDARD_CLASS)
    )
    more = microusd(cold.plan[0].est_usd) - microusd(warm.plan[0].est_usd)
    assert (
        more == retrieval_microusd(StorageClass.model_validate(COLD), np.array([4.0 * PARQUET.size_ratio]))[0]
    )


def test_a_data_set_computed_again_in_the_cached_format_stays_on_its_class() -> None:
    decision = decision_of(
        1,
        {"COLD": COLD},
        cached_outcome="cache/1.json",
        cached_format=Format.PACKED,
        cached_storage_class="COLD",
    )
    candidates, writes = decision.candidates, decision.candidates.offers[0].writes
    assert [candidates.stored_format(number) for number in writes] == [
        (Format.PACKED, "COLD"),
        (Format.PARQUET, STANDARD_CLASS),
        (Format.PARQUET, "COLD"),
    ]


def test_pages_name_the_class_with_the_format() -> None:
    again = READ.model_copy(update={"writes_bytes_per_row": 4000})
    decision = decision_of(5000, {"COLD": COLD}, (WRITE, again, READ.model_copy(update={"stage": "last"})))
    assert (
        decision.choice
        and decision.choice.storage_class == "COLD"
        and decision.plan[0].storage_class == "COLD"
        and decision.plan[1].storage_class == STANDARD_CLASS
    )
    lies = f"{decision.choice.format} on COLD"
    page = as_text(decision)
    assert page.splitlines()[2].strip() == f"cpu-1 on-demand writing {lies}"
    later = next(line for line in page.splitlines() if line.split()[:2] == ["read", "cpu-1"])
    assert f"{decision.plan[0].format} on COLD" in later
    assert [line.storage_class for line in stage_outlines(decision)] == ["COLD", "COLD", STANDARD_CLASS]
    assert pareto_front(decision.question, decision.candidates)[0].offers[0] == f"cpu-1 on-demand {lies}"


def test_hindsight_finds_the_chosen_class_and_the_saving_of_another() -> None:
    decision = decision_of(5000, {"COLD": COLD})
    took = (
        actuals_of(decision, writes=decision.choice.format, storage_class="COLD") if decision.choice else None
    )
    assert took is not None
    found = hindsight_of(decision, took)
    taken = next(offer for offer in found.offers if offer.selected)
    assert (taken.storage_class, found.regret_usd) == ("COLD", 0)
    assert {offer.storage_class for offer in found.offers} == {"COLD", STANDARD_CLASS}


@pytest.mark.parametrize("name", ["STANDARD_IA", "GLACIER_IR", "INTELLIGENT_TIERING", "ONEZONE_IA"])
def test_a_decision_with_storage_classes_replays(name: str) -> None:
    decision = decision_of(5000, {name: COLD})
    assert decision.choice is not None and decision.choice.storage_class == name
    assert Decision.model_validate_json(record_bytes(decision)) == decision
    assert replay(record_bytes(decision)).verdict == "same"
