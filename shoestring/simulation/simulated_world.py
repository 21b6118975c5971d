"""The simulated World: its seams, what its receipts taught, and what the router is asked there."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from functools import cache
from random import Random
from typing import Any

from shoestring.backends.local import WorldFile
from shoestring.backends.memory import MemoryStore
from shoestring.config.world import IMAGES, PriceBook, World
from shoestring.core.interfaces import PodLifetime, ProcessUsage
from shoestring.core.pod_ref import PodRef
from shoestring.core.receipt import PricePoint, Receipt
from shoestring.core.types import STANDARD_CLASS, LearnedSpeed, Placement, Pool, Quote, StockOut
from shoestring.data.recipe import Recipe
from shoestring.data.run_records import Run, RunRecord
from shoestring.pricing.learning import learn
from shoestring.routing.candidates import Candidates
from shoestring.routing.decision import Choice, Decision
from shoestring.routing.question import Question
from shoestring.routing.offers.enumerate import candidates
from shoestring.runtime.admission.admit import Headroom
from shoestring.runtime.records.overhead import overhead_s
from shoestring.runtime.records.run_setup import new_start
from shoestring.simulation.event_loop import EventLoop, FaultyStore, SimulatedClock
from shoestring.simulation.market import SimulatedMarket, until_next_s
from shoestring.simulation.results import NOTHING, Counters, PipelineOutcome
from shoestring.simulation.scenario import PipelineKind, Scenario, world_file
from shoestring.simulation.workload import PipelineRequest, stage_bias

# Each has a ledger of its own, which reads what the others wrote: as many can be in each other's way at one moment.
MAX_CONCURRENT_PROCESSES = 3
# So many receipts teach, the newest; they are learned from again after so many more.
MAX_RECEIPTS, RELEARN_AFTER_RECEIPTS = 200, 10
# The engine of all simulated pipelines, as the ledger names it.
ENGINE = PodRef.parse("simulated.0.0")


class SimulatedCluster:
    """Pods by their uid: when each was scheduled, and when its last container ended."""

    def __init__(self, pools: tuple[Pool, ...], loop: EventLoop) -> None:
        self._pools, self._loop = pools, loop
        self.pods: dict[PodRef, tuple[float, float | None]] = {}

    def pools(self) -> tuple[Pool, ...]:
        return self._pools

    def apply_placement(self, placement: Placement) -> dict[str, str]:
        return {}

    def lifetime(self, pod: PodRef) -> PodLifetime:
        began_s, ended_s = self.pods.get(pod, (None, None))
        moment = self._loop.moment
        return PodLifetime(
            alive=began_s is not None and ended_s is None,
            started_at=None if began_s is None else moment(began_s),
            finished_at=None if ended_s is None else moment(ended_s),
            asked_at=moment(self._loop.now_s),
        )


class SimulatedPrices:
    def __init__(self, market: SimulatedMarket, loop: EventLoop) -> None:
        self._market, self._loop = market, loop

    def book(self) -> PriceBook:
        return self._market.book(self._loop.now_s)

    def current_usd_per_hour(self, quote: Quote, pool: Pool) -> Decimal | None:
        return next(
            (
                each.usd_per_hour
                for each in self.book().quotes
                if (each.pool, each.market) == (quote.pool, quote.market)
            ),
            None,
        )


class NoTelemetry:
    def usage(self, pid: int) -> ProcessUsage:
        return ProcessUsage(0.0, 0)


@dataclass(frozen=True, slots=True)
class SimulatedPod:
    """What was chosen, the prices that the pod had, and what it owes beside its time."""

    choice: Choice
    ref: PodRef
    prices: tuple[PricePoint, ...] = ()
    fees_usd: Decimal = NOTHING


@dataclass(slots=True)
class PipelineRun:
    """One pipeline's way, as its engine and its store know it. `decisions_by_key`: decisions by what the ledger says of their holds.

    `pods`: by account and hold. `over`: its engine does nothing more; `clean`: none of its processes died.
    """

    request: PipelineRequest
    outcome: PipelineOutcome
    deadline_s: float | None
    starts: list[Run] = field(default_factory=list)
    upstream: Choice | None = None
    decisions_by_key: dict[str, Decision] = field(default_factory=dict)
    pods: dict[tuple[str, str], SimulatedPod] = field(default_factory=dict)
    samples: int = 0
    room: Headroom | None = None
    overhead_usd: Decimal = NOTHING
    engine_done: bool = False
    clean: bool = True

    @property
    def run(self) -> Run:
        return self.starts[-1]

    @property
    def account(self) -> str:
        return self.run.start.account


class Simulation:
    """Everything that processes of one simulation share."""

    def __init__(self, scenario: Scenario, seed: int, faults: Random | None = None) -> None:
        """`faults`: the dice that say at which writes something goes wrong; None: the seed's own."""
        file: WorldFile = world_file(scenario)
        self.scenario, self.seed = scenario, seed
        self.dice = Random(f"{seed}/chance")
        self.store = MemoryStore()
        faulty = faults or Random(f"{seed}/faults")
        self.loop = EventLoop(
            scenario.starts_at, MAX_CONCURRENT_PROCESSES, scenario.faults, self.store, faulty
        )
        self.market = SimulatedMarket(scenario.market, file, scenario.starts_at, seed)
        self.cluster = SimulatedCluster(file.pools, self.loop)
        self.pools = {pool.name: pool for pool in file.pools}
        self.counters = Counters()
        self.stockouts: list[StockOut] = []
        self.open_accounts: dict[str, PipelineRun] = {}
        self.pipeline_runs: list[PipelineRun] = []
        self.parent_accounts: set[str] = set()
        self.pods = 0
        self.pipelines_to_start = 0
        self.bias = cache(lambda stage, pool: stage_bias(scenario.durations, seed, stage, pool))
        self.preferences = scenario.policy.preferences
        self._receipts: list[Receipt] = []
        self._offers: dict[int, tuple[object, object, object, Candidates]] = {}
        self._learned: dict[str, tuple[int, tuple[LearnedSpeed, ...]]] = {}
        self._world = World(
            name=scenario.name,
            digest="",
            policy=scenario.policy,
            budgets=scenario.budgets,
            images=IMAGES,
            notes=(),
            prices=SimulatedPrices(self.market, self.loop),
            cluster=self.cluster,
            store=FaultyStore(self.loop, scenario.faults, self.store, faulty),
            telemetry=NoTelemetry(),
            clock=SimulatedClock(self.loop),
            pod=ENGINE,
        )

    def world(self, pod: PodRef = ENGINE) -> World:
        """As one process there sees it."""
        return replace(self._world, pod=pod)

    def skew_s(self) -> float:
        return self.dice.gauss(0, self.scenario.faults.clock_skew_sd_s)

    def pod_lost_s(self) -> float:
        """When a pod that is scheduled now is gone without a word."""
        return self.loop.now_s + until_next_s(self.scenario.faults.pods_lost_per_hour, self.dice)

    def has_notice(self) -> bool:
        """Whether a preemption comes with a notice."""
        return self.dice.random() < self.scenario.market.notice_share

    def code_fails_s(self, begun_s: float, ends_s: float) -> float:
        """When a stage that would take so long fails by its own code."""
        if self.dice.random() >= self.scenario.faults.failed_share:
            return math.inf
        return self.dice.uniform(begun_s, ends_s)

    def actual_s(self, request: PipelineRequest, stage: str, choice: Choice, samples: int) -> float:
        """What so many samples of a stage really take there, once it has new_run."""
        return choice.prior_s_of(samples) * self.bias(stage, choice.pool) * request.duration_factors[stage]

    def add_receipt(self, receipt: Receipt) -> None:
        self._receipts.append(receipt)

    def learned(self, kind: PipelineKind) -> tuple[LearnedSpeed, ...]:
        """What the newest receipts teach about a kind of pipeline; a few may be missing yet."""
        known, taught = self._learned.get(kind.name, (0, ()))
        if len(self._receipts) >= known + RELEARN_AFTER_RECEIPTS:
            taught = learn(self._receipts[-MAX_RECEIPTS:], kind.needs, self.cluster.pools())
            self._learned[kind.name] = len(self._receipts), taught
        return taught

    def offers(self, request: PipelineRequest, asked: Question) -> Candidates:
        """What every offer is made of. Nothing of it is money or the moment, so whoever looks at the same world again makes none anew."""
        book, taught = self.market.book(self.loop.now_s), self._learned.get(request.kind.name)
        about = (asked.stage, asked.reads_format, asked.reads_storage_class, asked.stockouts)
        before = self._offers.get(request.number)
        if before is None or before[0] is not book or before[1] is not taught or before[2] != about:
            before = self._offers[request.number] = book, taught, about, candidates(asked)
        return before[3]

    def forget_offers(self, request: PipelineRequest) -> None:
        """Nobody asks for that pipeline any more."""
        self._offers.pop(request.number, None)

    def current_stockouts(self, now: datetime) -> tuple[StockOut, ...]:
        self.stockouts = [each for each in self.stockouts if each.until > now]
        return tuple(self.stockouts)


def new_run(
    simulation: Simulation,
    request: PipelineRequest,
    number: int,
    budget_usd: Decimal,
    deadline_s: float | None,
) -> Run:
    """A start, as an admission writes it down."""
    now, run_id = simulation.world().clock.now(), request.run_id
    record = RunRecord(
        run_id=run_id,
        recipe=RECIPE,
        recipe_sha256="",
        seed=simulation.seed,
        world=simulation.scenario.name,
        world_sha256="",
        created_at=now,
        environment={},
    )
    return Run(record, (new_start(simulation.world(), run_id, number, budget_usd, deadline_s, None),))


RECIPE = Recipe.model_validate(
    {"name": "simulated", "source": {"rows": {"path": "rows.csv"}}, "target": {"column": "y"}}
)


def question(
    simulation: Simulation, request: PipelineRequest, index: int, upstream: Choice | None, **asked: object
) -> Question:
    """What the router is asked for the stage of this number, and those after it. `upstream`: of the last stage before it that wrote data.

    `asked`: the fields of Question that the books and the clock say.
    """
    world, needs = simulation.world(), request.kind.needs
    book, writer = (
        world.prices.book(),
        next((need for need in reversed(needs[:index]) if need.writes_bytes_per_row), None),
    )
    now = world.clock.now()
    # Of parts that were checked when they were made.
    fields: dict[str, Any] = {
        "run_id": request.run_id,
        "stage": needs[index].stage,
        "seed": simulation.seed,
        "asked_at": now,
        "needs": needs[index:],
        "rows": request.rows,
        "row_bytes": writer.writes_bytes_per_row if writer else request.kind.row_bytes,
        "reads_format": upstream.format if upstream else None,
        "reads_storage_class": upstream.storage_class if upstream else STANDARD_CLASS,
        "data_region": book.tariffs.store_region,
        "pools": world.cluster.pools(),
        "quotes": book.quotes,
        "rejected_prices": book.rejected,
        "tariffs": book.tariffs,
        "speeds": simulation.scenario.speeds,
        "stockouts": simulation.current_stockouts(now),
        "learned": simulation.learned(request.kind),
        "preferences": simulation.preferences,
    } | asked
    return Question.model_construct(**fields)


def deadline_left_s(simulation: Simulation, run: Run, stages: int) -> float | None:
    """Less what the routers still to come and the exit step take."""
    left_s = run.deadline_left_s(simulation.world().clock.now())
    return None if left_s is None else max(0.0, left_s - overhead_s(simulation.world(), stages))
