"""Questions for routing tests: the flights recipe on a laptop, and random small questions."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from shoestring.config.tariffs import Tariffs
from shoestring.core.money import usd
from shoestring.core.types import Format, Market, MarketTerms, Need, NodeCapacity, Pool, Quote
from shoestring.pricing.format_speeds import FormatSpeed
from shoestring.pricing.learned.calibration import LearnedSpeed
from shoestring.routing.decide import choose
from shoestring.routing.offers.enumerate import enumerate_offers
from shoestring.routing.offers.offer_table import full_offer_table
from shoestring.routing.planner.chain_planner import find_plans
from shoestring.routing.planner.partial_plans import RunLimits
from shoestring.routing.question import Question

PARQUET = FormatSpeed(
    format=Format.PARQUET,
    write_ns_per_row=900,
    write_bytes_per_s=10**9,
    scan_ns_per_row=300,
    scan_bytes_per_s=10**9,
    take_ns_per_row=3000,
    take_bytes_per_s=10**9,
    size_ratio=0.4,
)
PACKED = FormatSpeed(
    format=Format.PACKED,
    write_ns_per_row=100,
    write_bytes_per_s=10**9,
    scan_ns_per_row=30,
    scan_bytes_per_s=10**9,
    take_ns_per_row=40,
    take_bytes_per_s=10**9,
    size_ratio=1.1,
)
INGEST = Need(stage="ingest", setup_s=1, cpu_us_per_row=2, writes_bytes_per_row=120)
PREPROCESS = Need(
    stage="preprocess",
    setup_s=1.5,
    cpu_us_per_row=4,
    parallel_fraction=0.3,
    reads="scan",
    writes_bytes_per_row=60,
)
TRAIN = Need(
    stage="train",
    elastic=True,
    setup_s=3,
    cpu_us_per_row=20,
    parallel_fraction=0.7,
    reads="shuffled",
    passes=12,
    min_passes=1,
    gpu="may",
    gpu_flop_per_row=3e5,
    checkpoint_s=0.2,
    image="train",
)
EVALUATE = Need(stage="evaluate", setup_s=3, cpu_us_per_row=4, parallel_fraction=0.5, reads="scan")
CHAIN = (INGEST, PREPROCESS, TRAIN, EVALUATE)
CPU_1 = Pool(name="cpu-1", cores=1, memory_gb=4)
CPU_2 = Pool(name="cpu-2", cores=2, memory_gb=4)
DAY = date(2026, 11, 1)


WITH_CAPACITY = NodeCapacity(nodes=1, max_nodes=1, free_shares=2, free_cores=8, free_memory_gb=16)
FULL = NodeCapacity(nodes=2, max_nodes=2, free_shares=0, free_cores=0.4, free_memory_gb=1.2, pending_pods=3)


def quote(pool: str, usd_per_hour: str, market: Market = Market.ON_DEMAND) -> Quote:
    return Quote(
        pool=pool,
        market=market,
        usd_per_hour=Decimal(usd_per_hour),
        as_of=DAY,
        source="assumption: $0.04 a core-hour",
    )


def laptop_question(needs: tuple[Need, ...] = CHAIN, budget_usd: str = "0.003", **fields: Any) -> Question:
    defaults: dict[str, Any] = {
        "run_id": "flights-1",
        "seed": 7,
        "asked_at": datetime(2026, 11, 1, 12, tzinfo=UTC),
        "rows": 336_776,
        "row_bytes": 0 if needs[0].reads == "none" else 60,
        "reads_format": None if needs[0].reads == "none" else Format.PACKED,
        "pools": (CPU_1, CPU_2),
        "quotes": (quote("cpu-1", "0.04"), quote("cpu-2", "0.08")),
        "speeds": (PARQUET, PACKED),
        "digests": {"world": "5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef"},
    }
    return Question.model_validate(
        {"needs": needs, "stage": needs[0].stage, "budget_usd": budget_usd} | defaults | fields
    )


def numbers(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high, allow_nan=False, allow_infinity=False)


@st.composite
def _needs(draw: st.DrawFn, stages: int) -> tuple[Need, ...]:
    elastic = draw(st.sampled_from([-1, 0, 0, *range(stages)]))
    needs = []
    for number in range(stages):
        passes = draw(st.sampled_from([1.0, 2.5, 40.0]))
        needs.append(
            Need(
                stage=f"stage-{number}",
                elastic=number == elastic,
                setup_s=draw(numbers(0, 20)),
                cpu_us_per_row=draw(st.sampled_from([0.0, 10.0, 300.0])),
                parallel_fraction=draw(numbers(0, 1)),
                reads=draw(st.sampled_from(["none", "scan", "shuffled"])),
                passes=passes,
                min_passes=draw(st.sampled_from([0.0, 0.3, 1.0])) if number == elastic else 0,
                writes_bytes_per_row=draw(st.sampled_from([0, 0, 80, 4000])),
                memory_fixed_gb=draw(st.sampled_from([0.3, 0.3, 3.0])),
                gpu=draw(st.sampled_from(["no", "may", "may", "no", "must"])) if number == elastic else "no",
                gpu_flop_per_row=draw(numbers(0, 1e8)),
                checkpoint_s=draw(st.sampled_from([0.0, 0.5])),
            )
        )
    return tuple(needs)


@st.composite
def _pools(draw: st.DrawFn) -> tuple[Pool, ...]:
    pools = []
    for number in range(draw(st.integers(1, 3))):
        gpus = draw(st.sampled_from([0, 0, 1]))
        spot = MarketTerms(preemptions_per_hour=draw(numbers(0, 30)), node_selector={"market": "spot"})
        pools.append(
            Pool(
                name=f"pool-{number}",
                cores=draw(st.integers(1, 8)),
                memory_gb=draw(st.sampled_from([1.0, 8.0, 8.0, 8.0, 16.0])),
                core_speed=draw(numbers(0.5, 3)),
                gpu_count=gpus,
                gpu_tflops=100.0 * gpus,
                gpu_memory_gb=16.0 * gpus,
                startup_s=draw(numbers(0, 60)),
                region=draw(st.sampled_from(["local", "far"])),
                markets={Market.ON_DEMAND: MarketTerms()}
                | ({Market.SPOT: spot} if draw(st.booleans()) else {}),
                capacity=draw(st.sampled_from([None, None, WITH_CAPACITY, FULL])),
            )
        )
    return tuple(draw(st.permutations(pools)))


def tightened(question: Question, more_money: float, more_time: float | None) -> Question:
    """Return the question with a budget and a deadline just above the smallest sufficient ones."""
    broke = question.model_copy(update={"budget_usd": Decimal(0), "deadline_left_s": None})
    candidates = enumerate_offers(broke)
    columns = full_offer_table(candidates)
    if more_time is not None:
        shortest_s = 0.0
        for stage in range(len(question.needs)):
            rows = [
                row
                for row in range(len(columns.stage))
                if columns.stage[row] == stage and columns.exclusion[row] < 0
            ]
            shortest_s += min((columns.min_p95_ms[row] for row in rows), default=0) / 1000
        broke = broke.model_copy(update={"deadline_left_s": shortest_s * (1 + more_time)})
    smallest_usd = choose(broke, candidates).smallest_budget_usd
    if smallest_usd is None:
        return question
    work_usd = smallest_usd - question.spent_usd - question.held_usd
    return broke.model_copy(update={"budget_usd": usd(smallest_usd + work_usd * Decimal(str(more_money)))})


def tight_questions(stages: int = 3) -> st.SearchStrategy[Question]:
    """Questions that mostly have an answer, in which money and time are short."""
    return st.builds(tightened, questions(stages), numbers(0, 4), st.one_of(st.none(), numbers(0, 4)))


@st.composite
def _quotes(draw: st.DrawFn, pools: tuple[Pool, ...]) -> list[Quote]:
    price = st.integers(10_000, 3_000_000).map(lambda micro: Decimal(micro).scaleb(-6))
    return [
        Quote(pool=pool.name, market=market, usd_per_hour=draw(price), as_of=DAY, source="drawn")
        for pool in pools
        for market in pool.markets
        if draw(st.integers(0, 9))
    ]


@st.composite
def _learned(draw: st.DrawFn, needs: tuple[Need, ...], pools: tuple[Pool, ...]) -> tuple[LearnedSpeed, ...]:
    return tuple(
        LearnedSpeed(
            stage=need.stage,
            pool=pool.name,
            runs=3,
            log_mean=draw(numbers(-1, 1)),
            log_sd=draw(numbers(0, 1)),
        )
        for need in needs
        for pool in pools
        if draw(st.booleans())
    )


@st.composite
def questions(draw: st.DrawFn, stages: int = 3) -> Question:
    """Small questions with budgets and deadlines about as large as the work, so that all outcomes occur."""
    needs, pools = draw(_needs(draw(st.integers(1, stages)))), draw(_pools())
    speeds = draw(st.sampled_from([(PARQUET, PACKED), (PACKED,)]))
    rows = draw(st.sampled_from([0, 1, 1000, 200_000]))
    quotes, learned = draw(_quotes(pools)), draw(_learned(needs, pools))
    cached = draw(st.sampled_from([None, None, None, None, "cache/1.json"]))
    cents = st.integers(0, 400_000).map(lambda micro: str(Decimal(micro).scaleb(-6)))
    return laptop_question(
        needs,
        draw(cents),
        rows=rows,
        row_bytes=draw(st.integers(0, 5000)),
        reads_format=draw(st.sampled_from([None, Format.PACKED])),
        data_region=draw(st.sampled_from(["local", "far"])),
        cached_outcome=cached,
        cached_format=draw(st.sampled_from([None, Format.PACKED])) if cached else None,
        spent_usd=draw(st.sampled_from(["0", "0.000100"])),
        held_usd=draw(st.sampled_from(["0", "0.002000"])),
        stage_budgets=draw(
            st.dictionaries(st.sampled_from([need.stage for need in needs]), cents, max_size=1)
        ),
        deadline_left_s=draw(st.one_of(st.none(), numbers(0, 4000))),
        pools=pools,
        quotes=tuple(draw(st.permutations(quotes))),
        speeds=speeds,
        tariffs=Tariffs(egress_usd_per_gb={"local->far": Decimal("0.02"), "far->local": Decimal("0.09")}),
        learned=learned,
    )


LAST_RESORT = Pool(
    name="pool-9",
    cores=8,
    memory_gb=64,
    gpu="L4",
    gpu_count=1,
    gpu_memory_gb=24,
    gpu_tflops=100,
    startup_s=2.0,
    markets={Market.ON_DEMAND: MarketTerms()},
)
"""An expensive pool that can run every drawn stage."""


def affordable(question: Question, more_money: float, more_time: float | None) -> Question:
    """Return the question with LAST_RESORT, and with a budget and a deadline that some plan keeps.

    Money is the smallest budget that is enough in the time, and `more_money` of it. Time is between that of
    the fastest plan (0) and that of the cheapest one (1).
    """
    changes = {
        "pools": (*question.pools, LAST_RESORT),
        "quotes": (*question.quotes, quote(LAST_RESORT.name, "12")),
        "budget_usd": Decimal(10**6),
        "deadline_left_s": None,
    }
    question = question.model_copy(update=changes)
    candidates = enumerate_offers(question)
    if choose(question, candidates).choice is None:
        question = question.model_copy(update={"stage_budgets": {}})
    if more_time is not None:
        plans = find_plans(question, candidates, RunLimits.of(question))
        shortest_ms = plans.shortest_ms(plans.limits.left_micro)
        assert plans.chosen is not None and shortest_ms is not None
        cheapest_ms = int(plans.best.needs_ms[plans.chosen])
        left_ms = shortest_ms + max(0, int((cheapest_ms - shortest_ms) * more_time))
        left_ms = max(left_ms, plans.lookahead.parallel_ms)
        question = question.model_copy(update={"deadline_left_s": (left_ms + 0.5) / 1000})
    broke = question.model_copy(update={"budget_usd": Decimal(0)})
    smallest_usd = choose(broke, candidates).smallest_budget_usd or Decimal(0)
    work_usd = max(smallest_usd - question.spent_usd - question.held_usd, Decimal(0))
    return question.model_copy(update={"budget_usd": usd(smallest_usd + work_usd * Decimal(str(more_money)))})


def answered(drawn: st.SearchStrategy[Question] | None = None) -> st.SearchStrategy[Question]:
    """Questions that have an answer, in which money and time are short."""
    drawn = questions() if drawn is None else drawn
    return st.builds(affordable, drawn, numbers(0, 4), st.none() | numbers(0, 1.5))


def computed(question: Question) -> Question:
    """Return the question without a cached result, so that something is computed."""
    return question.model_copy(update={"cached_outcome": None, "cached_format": None})
