"""The simulated world: its interfaces, and what is learned from the receipts of its pods."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from functools import cache
from random import Random

from shoestring.backends.local import WorldFile
from shoestring.backends.memory import MemoryStore
from shoestring.config.engines import assumed_times
from shoestring.config.policy import Policy
from shoestring.config.world import IMAGES, World
from shoestring.core.errors import WorldError
from shoestring.core.interfaces import PodLifetime
from shoestring.core.pod_ref import PodRef
from shoestring.core.receipt import PricePoint, Receipt, ResourceUsage
from shoestring.core.types import NodeCapacity, Placement, Pool, StockOut
from shoestring.data.run_records import Run
from shoestring.data.sources.remote.no_remote import NO_REMOTE_SOURCES
from shoestring.pricing.learned.calibration import LearnedSpeed
from shoestring.pricing.learned.learning import learn
from shoestring.routing.candidates import Candidates
from shoestring.routing.decision import Choice, Decision
from shoestring.routing.offers.enumerate import enumerate_offers
from shoestring.routing.policy.policy_trial import Rollback, find_rollback
from shoestring.routing.question import Question
from shoestring.runtime.admission.start_gate import Headroom
from shoestring.runtime.records.overhead import assumed_pod_s
from shoestring.simulation.event_loop import EventLoop, FaultyStore, SimulatedClock
from shoestring.simulation.market import SimulatedMarket, SimulatedPrices, until_next_s
from shoestring.simulation.results import ZERO_USD, Counters, PipelineOutcome
from shoestring.simulation.scenario import PipelineKind, Scenario, scenario_world_file
from shoestring.simulation.workload import PipelineRequest, stage_bias

MAX_CONCURRENT_PROCESSES = 3
"""Processes that can race. Each has its own ledger, which reads what the others wrote."""

MAX_RECEIPTS, RELEARN_AFTER_RECEIPTS = 200, 10
"""The newest receipts from which speeds are learned, and the number of new receipts after which they are
learned again.
"""

UNLIMITED = NodeCapacity(nodes=0, max_nodes=1, free_shares=1, free_cores=0.0, free_memory_gb=0.0)
"""The capacity of a simulated pool, apart from the pods that wait for it: there is always room."""

ENGINE = PodRef.parse("simulated.0.0")
"""The engine of all simulated pipelines, as the ledger names it."""


class SimulatedCluster:
    """A cluster that knows when each pod was scheduled and when its last container ended, in simulated
    seconds.
    """

    def __init__(self, pools: tuple[Pool, ...], loop: EventLoop) -> None:
        self._pools, self._loop = pools, loop
        self.pods: dict[PodRef, tuple[float, float | None]] = {}
        self.pending: Counter[str] = Counter()

    def queued_pools(self) -> tuple[Pool, ...]:
        """Return the pools with the number of pods that wait for each."""
        return tuple(
            pool.model_copy(update={"capacity": UNLIMITED.model_copy(update={"pending_pods": pending})})
            if (pending := self.pending[pool.name])
            else pool
            for pool in self._pools
        )

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


@dataclass(frozen=True, slots=True)
class SimulatedPod:
    """A stage's pod: the choice, the prices it paid, its fees that do not depend on time, and the part of its
    cost that a commitment paid for.
    """

    choice: Choice
    ref: PodRef
    prices: tuple[PricePoint, ...] = ()
    fees_usd: Decimal = ZERO_USD
    committed_usd: Decimal = ZERO_USD


@dataclass(slots=True)
class PipelineRun:
    """The state of one pipeline, as its engine and the store know it.

    `decisions_by_key`: decisions by the key that the ledger holds for their reservations. `pods`: by
    account and reservation. `samples`, `migrations` and `usages`: those of the current stage's earlier
    attempts. `rollbacks`: how often its training went back to a good validation. `engine_done`: the engine
    has finished or abandoned the pipeline. `clean`: none of its processes died.
    """

    request: PipelineRequest
    outcome: PipelineOutcome
    deadline_s: float | None
    starts: list[Run] = field(default_factory=list)
    upstream: Choice | None = None
    decisions_by_key: dict[str, Decision] = field(default_factory=dict)
    pods: dict[tuple[str, str], SimulatedPod] = field(default_factory=dict)
    samples: int = 0
    migrations: int = 0
    rollbacks: int = 0
    usages: list[ResourceUsage] = field(default_factory=list)
    headroom: Headroom | None = None
    overhead_usd: Decimal = ZERO_USD
    engine_done: bool = False
    clean: bool = True

    @property
    def run(self) -> Run:
        """Return the newest start."""
        return self.starts[-1]

    @property
    def account(self) -> str:
        """Return the account of the newest start."""
        return self.run.start.account


def check_is_simulated(policy: Policy) -> None:
    """Raise WorldError if the policy caps memory: no stage allocates any in a simulation."""
    if cap := policy.guardrails.memory_gb:
        raise WorldError(
            f"the policy's guardrails.memory_gb ({cap.max:g} GB) cannot be simulated: no stage allocates "
            "memory here; simulate the policy without it"
        )


class Simulation:
    """The state that all processes of one simulation share."""

    def __init__(self, scenario: Scenario, seed: int, faults: Random | None = None) -> None:
        """Open the world of a scenario. `faults` draws the faults of writes; None: one made from the seed.

        Raises WorldError.
        """
        check_is_simulated(scenario.policy)
        file: WorldFile = scenario_world_file(scenario)
        self.scenario, self.seed = scenario, seed
        self.rng = Random(f"{seed}/chance")
        self.store = MemoryStore()
        fault_rng = faults or Random(f"{seed}/faults")
        self.loop = EventLoop(
            scenario.starts_at, MAX_CONCURRENT_PROCESSES, scenario.faults, self.store, fault_rng
        )
        self.market = SimulatedMarket(scenario.market, file, scenario.starts_at, seed)
        self.cluster = SimulatedCluster(file.pools, self.loop)
        self.pools = {pool.name: pool for pool in file.pools}
        self.counters = Counters()
        self.stockouts: list[StockOut] = []
        self.open_accounts: dict[str, PipelineRun] = {}
        self.pipeline_runs: list[PipelineRun] = []
        self.parent_accounts: set[str] = set()
        self.pods, self.pipelines_to_start = 0, 0
        self.bias = cache(lambda stage, pool: stage_bias(scenario.durations, seed, stage, pool))
        self.preferences = scenario.policy.preferences
        self._receipts: list[Receipt] = []
        self._trial_receipts: list[Receipt] = []
        self._rollback: tuple[int, Rollback | None] = 0, None
        self._offers: dict[int, tuple[object, object, object, Candidates]] = {}
        self._learned: dict[str, tuple[int, tuple[LearnedSpeed, ...]]] = {}
        self._world = self._open_world(scenario, fault_rng)
        self.engine = assumed_times(scenario.engine, assumed_pod_s(self._world))

    def _open_world(self, scenario: Scenario, fault_rng: Random) -> World:
        return World(
            name=scenario.name,
            digest="",
            policy=scenario.policy,
            budgets=scenario.budgets,
            images=IMAGES,
            notes=(),
            prices=SimulatedPrices(self.market, self.loop),
            cluster=self.cluster,
            store=FaultyStore(self.loop, scenario.faults, self.store, fault_rng),
            remote=NO_REMOTE_SOURCES,
            clock=SimulatedClock(self.loop),
            pod=ENGINE,
        )

    def world(self, pod: PodRef = ENGINE) -> World:
        """Return the world as one process sees it."""
        return replace(self._world, pod=pod)

    def skew_s(self) -> float:
        """Draw the clock skew of a new process."""
        return self.rng.gauss(0, self.scenario.faults.clock_skew_sd_s)

    def pod_lost_s(self) -> float:
        """Draw the time at which a pod that is scheduled now disappears without notice."""
        return self.loop.now_s + until_next_s(self.scenario.faults.pods_lost_per_hour, self.rng)

    def has_notice(self) -> bool:
        """Draw whether a preemption comes with a notice."""
        return self.rng.random() < self.scenario.market.notice_share

    def code_fails_s(self, starts_s: float, ends_s: float) -> float:
        """Draw the time at which a stage fails by its own code; infinity if it does not."""
        if self.rng.random() >= self.scenario.faults.failed_share:
            return math.inf
        return self.rng.uniform(starts_s, ends_s)

    def actual_s(self, request: PipelineRequest, stage: str, choice: Choice, samples: int) -> float:
        """Return the actual seconds that a number of samples takes, without start-up."""
        return choice.prior_s_of(samples) * self.bias(stage, choice.pool) * request.duration_factors[stage]

    def add_receipt(self, receipt: Receipt) -> None:
        """Keep a receipt to learn speeds from, and to judge the policy on trial by."""
        if receipt.is_learnable:
            self._receipts.append(receipt)
        if self.scenario.policy.candidate:
            self._trial_receipts.append(receipt)

    def newest_receipts(self) -> list[Receipt]:
        """Return the receipts that speeds are learned from."""
        return self._receipts[-MAX_RECEIPTS:]

    def rollback(self) -> Rollback | None:
        """Return why no run uses the policy on trial any more; None: it was not rolled back."""
        candidate, (judged, found) = self.scenario.policy.candidate, self._rollback
        if candidate and candidate.share and found is None and judged < len(self._trial_receipts):
            found = find_rollback(candidate, self._trial_receipts[-MAX_RECEIPTS:])
            self._rollback = len(self._trial_receipts), found
        return found

    def learned(self, kind: PipelineKind) -> tuple[LearnedSpeed, ...]:
        """Return the speeds learned for a kind of pipeline.

        The newest few receipts may not be included yet.
        """
        known, learned = self._learned.get(kind.name, (0, ()))
        if len(self._receipts) >= known + RELEARN_AFTER_RECEIPTS:
            learned = learn(self.newest_receipts(), kind.needs, self.cluster.pools())
            self._learned[kind.name] = len(self._receipts), learned
        return learned

    def offers(self, request: PipelineRequest, asked: Question) -> Candidates:
        """Return the offers for a question, cached per pipeline.

        Offers depend neither on money nor on the time, so an unchanged world gives the same offers again.
        """
        book, learned = self.market.book(self.loop.now_s), self._learned.get(request.kind.name)
        key = (
            (asked.stage, asked.reads_format, asked.reads_storage_class, asked.stockouts),
            (asked.arm, asked.commitments, asked.exploration_sd),
        )
        before = self._offers.get(request.number)
        if before is None or before[0] is not book or before[1] is not learned or before[2] != key:
            before = self._offers[request.number] = book, learned, key, enumerate_offers(asked)
        return before[3]

    def forget_offers(self, request: PipelineRequest) -> None:
        """Drop the cached offers of a finished pipeline."""
        self._offers.pop(request.number, None)

    def current_stockouts(self, now: datetime) -> tuple[StockOut, ...]:
        """Return the stock-outs that are still remembered."""
        self.stockouts = [each for each in self.stockouts if each.until > now]
        return tuple(self.stockouts)
