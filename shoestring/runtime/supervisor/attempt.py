"""The state of one attempt at a stage: what it may spend, what it has spent, and why it stops."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal

from shoestring.backends.memory_limits import ContainerMemory
from shoestring.backends.nvml import GpuUsage
from shoestring.backends.processes import ProcessTree
from shoestring.config.world import World
from shoestring.core.attempt_id import AttemptId
from shoestring.core.errors import StageFailed
from shoestring.core.money import usd
from shoestring.core.receipt import AdaptationChange, Cause, PricePoint, ResourceUsage
from shoestring.core.types import Market, Pool, Quote, StageOutcome
from shoestring.data.job import Command
from shoestring.data.run_records import Run
from shoestring.routing.decision import Choice, Decision, reserved_later_s
from shoestring.runtime.records.receipts import NO_USAGE
from shoestring.runtime.supervisor.spend_limits import SpendLimits, WatchedCommand
from shoestring.spending import exit_money
from shoestring.spending.heartbeat import HIGH_MEMORY_SHARE
from shoestring.spending.meter import Meter, RateChanges
from shoestring.stages.command import launcher_end_s
from shoestring.stages.work import Origin, StageProgress

GRACE_S = 5.0


@dataclass(slots=True)
class Attempt:
    """One attempt at a stage while it runs. All state that changes is here.

    Attributes:
        started_s: when the pod began, on the monotonic clock.
        reserved_usd: the reservation, with the extensions that the ledger has confirmed.
        extension_asked_at_usd: the reservation at the last request for an extension.
        rate_changes: the prices that replaced the decision's price.
        command: what it runs; None: a stage of a recipe.
        heartbeat_s: when its last heartbeat was begun, on the monotonic clock; at first: its own creation.
        priced_until_s: until when the price is known, on the monotonic clock; None: until the decision.
        unpriced: no price can be read now, and the fallback price is not charged yet.
        silent_s: how long no price could be read, in earlier silences for which the old price was charged.
        is_settled: somebody else settled its reservation, as the last heartbeat found.
        sent_limits: the limits that the child was sent last.
        cap_times_s: when the usage will reach each guardrail's cap, on the monotonic clock.
        guardrail_changes: the changes that guardrails made.
        usage_before: the usage of the stage's earlier attempts in this run.
        stopping_since_s: when it was asked to stop, on the monotonic clock; infinity: it was not.
        kill_s: when its child is killed at the latest, so that it settles before its pod ends.
        committed_usd: the part of the cost that a commitment paid for; known at the end.
        overrun_usd: the part of the cost that the account had no money for; known at the end.
        published: its result as the cache has it: another run's if that was first; known at the end.
        processes: everything that the stage started; None before its child starts.
        memory: the memory of its container, since its child started; None before that.
        notify_watcher: informs the watcher of a command; None: it has none.
        memory_share: the highest working set seen, as a share of the container's limit; None without a limit.
    """

    world: World
    run: Run
    decision: Decision
    decision_key: str
    inputs: Mapping[str, str]
    started_s: float
    reserved_usd: Decimal
    origin: Origin | None = None
    command: Command | None = None
    extension_asked_at_usd: Decimal = Decimal(0)
    rate_changes: RateChanges = ()
    heartbeat_s: float = field(init=False)
    priced_until_s: float | None = None
    unpriced: bool = False
    silent_s: float = 0.0
    is_settled: bool = False
    sent_limits: SpendLimits | None = None
    cap_times_s: dict[str, float] = field(default_factory=dict)
    throttled: bool = False
    guardrail_changes: tuple[AdaptationChange, ...] = ()
    usage: ResourceUsage = NO_USAGE
    usage_before: ResourceUsage = NO_USAGE
    stop_reason: str = ""
    stop_cause: Cause = ""
    stopping_since_s: float = math.inf
    kill_s: float = math.inf
    progress: StageProgress = field(default_factory=StageProgress)
    cpu_s: float = 0.0
    peak_rss_bytes: int = 0
    committed_usd: Decimal = Decimal(0)
    overrun_usd: Decimal = Decimal(0)
    published: StageOutcome | None = None
    gpu_usage: GpuUsage = field(default_factory=GpuUsage)
    processes: ProcessTree | None = None
    memory: ContainerMemory | None = None
    memory_share: float | None = None
    notify_watcher: Callable[[WatchedCommand], None] | None = None

    def __post_init__(self) -> None:
        self.heartbeat_s = self.world.clock.monotonic_s()

    @property
    def id(self) -> AttemptId:
        return self.decision.question.attempt_id

    @property
    def stage(self) -> str:
        return self.decision.question.stage

    @property
    def choice(self) -> Choice:
        if self.decision.choice is None:
            raise StageFailed(f"{self.decision_key} chose nothing, so {self.stage} cannot run")
        return self.decision.choice

    @property
    def pool(self) -> Pool:
        return self.decision.question.pool(self.choice.pool)

    @property
    def elastic(self) -> bool:
        return self.decision.question.needs[0].elastic

    @property
    def grace_s(self) -> float:
        """The seconds from TERM to KILL, where the money allows it."""
        return GRACE_S + (self.command.grace_s if self.command else 0.0)

    @property
    def exit_usd(self) -> Decimal:
        """The price of a clean exit at this moment, which is kept back from the reservation."""
        end_s = self.decision.question.needs[0].checkpoint_s + self.world.policy.pod_exit_s
        end_s += exit_money.EXIT_REQUESTS * self.request_s
        return exit_money.exit_price_usd(self.usd_per_hour, self.fallback_usd_per_hour, end_s)

    @property
    def request_s(self) -> float:
        """The seconds of a request to the store, as its router measured them; 0: the store is near."""
        return self.decision.question.store_wait.request_s

    @property
    def expected_end_s(self) -> float:
        """The end of the process of an attempt that settles now, on the monotonic clock."""
        return self.world.clock.monotonic_s() + self.expected_exit_s

    @property
    def expected_exit_s(self) -> float:
        own_s = launcher_end_s(self.decision.question.needs[0], self.command)
        return self.world.policy.pod_exit_s + exit_money.SETTLED_REQUESTS * self.request_s + own_s

    @property
    def money_ends_s(self) -> float:
        """When the reservation pays only a kill and an exit, at the highest price, on the monotonic clock."""
        exit_usd, changes = self.price_usd(2 * exit_money.EXIT_S + self.expected_exit_s), self.rate_changes
        if self.fallback_usd_per_hour != self.usd_per_hour:
            changes += ((self.world.clock.monotonic_s(), self.fallback_usd_per_hour),)
        limit_usd = self.reserved_usd - self.choice.fees_usd - exit_usd
        return Meter(self.choice.usd_per_hour, self.started_s, limit_usd, None, changes).ends_s

    @property
    def usd_per_hour(self) -> Decimal:
        """The current price."""
        return self.rate_changes[-1][1] if self.rate_changes else self.choice.usd_per_hour

    @property
    def changes(self) -> tuple[AdaptationChange, ...]:
        """The changes that the stage and the guardrails made, in order."""
        return tuple(sorted((*self.progress.changes, *self.guardrail_changes), key=lambda change: change.at))

    def prices(self) -> tuple[PricePoint, ...]:
        """Return all prices that the pod has had, each with its beginning."""
        now, now_s = self.world.clock.now(), self.world.clock.monotonic_s()
        rates = ((self.started_s, self.choice.usd_per_hour), *self.rate_changes)
        return tuple(
            PricePoint(at=now - timedelta(seconds=now_s - since_s), usd_per_hour=price)
            for since_s, price in rates
        )

    @property
    def floats(self) -> bool:
        """Whether the pod pays the current price of its market."""
        return self.choice.market in self.world.policy.floating_markets

    @property
    def fallback_usd_per_hour(self) -> Decimal:
        """The price while none can be read: on-demand as the decision recorded it, or the current price if
        that is higher or on-demand is not known.
        """
        on_demand = self.decision.question.quote(self.choice.pool, Market.ON_DEMAND) if self.floats else None
        return max(self.usd_per_hour, on_demand.usd_per_hour if on_demand else Decimal(0))

    def price_usd(self, seconds: float) -> Decimal:
        """Return the price of seconds that are reserved ahead: a spot price may rise to on-demand in them."""
        return exit_money.seconds_usd(self.fallback_usd_per_hour, seconds)

    def limit_meter(self) -> Meter:
        """Return the meter that limits the stage. While no price can be read, it expects the fallback price
        since the last one.
        """
        changes = self.rate_changes
        if self.unpriced:
            changes += ((max(self.started_s, self._known_until_s), self.fallback_usd_per_hour),)
        meter = self.meter()
        meter.update(meter.limit_usd, changes, meter.deadline_s)
        return meter

    @property
    def _known_until_s(self) -> float:
        """The moment until which the current price is known. At first that is when its decision read it."""
        if self.priced_until_s is not None:
            return self.priced_until_s
        clock = self.world.clock
        age_s = (clock.now() - self.decision.question.asked_at).total_seconds()
        return clock.monotonic_s() - max(0.0, age_s)

    def meter(self) -> Meter:
        """Return a meter of the prices that are charged, with this attempt's limits.

        Its money is the reservation less the exit and the fees, which do not depend on time. Its deadline is
        the run's, less what is reserved for later stages and less the grace of a command, or earlier where
        usage will reach a guardrail's cap.
        """
        question = self.decision.question
        left_s, end_s = question.deadline_left_s, question.needs[0].checkpoint_s if self.command else 0.0
        due_s = [] if left_s is None else [self.started_s + left_s - end_s - reserved_later_s(self.decision)]
        return Meter(
            self.choice.usd_per_hour,
            self.started_s,
            self.reserved_usd - self.exit_usd - self.choice.fees_usd,
            min([*due_s, *self.cap_times_s.values()], default=None),
            self.rate_changes,
        )

    def spent_usd(self) -> Decimal:
        """Return the cost so far, with all fees that its data will have cost once it is done."""
        return self.choice.fees_usd + self.limit_meter().spent_usd(self.world.clock.monotonic_s())

    def stop(self, reason: str, cause: Cause = "stop-requested") -> None:
        """Ask the attempt to stop. The first reason counts."""
        if not self.stop_reason:
            self.stop_reason, self.stop_cause = reason, cause
            self.stopping_since_s = self.world.clock.monotonic_s()

    def update_price(self) -> None:
        """Read the current price, on a market whose price changes.

        A higher price counts from when the last one was read, since it may have risen right after that; a
        lower one from now on. Once none could be read for `unpriced_s` of the policy, in all silences of the
        attempt together, the fallback price is charged from the last one on.
        """
        quote = self.decision.question.quote(self.choice.pool, self.choice.market)
        if not self.floats or quote is None:
            return
        now_s, known_s, quoted = self.world.clock.monotonic_s(), self._known_until_s, self._read_price(quote)
        since_s, fallback = max(self.started_s, known_s), self.fallback_usd_per_hour
        if quoted is not None:
            # The decision's price may be below the quote: its discount applies to the current price as well.
            price = usd(self.choice.usd_per_hour * quoted / quote.usd_per_hour)
            self._set_price(since_s if price > self.usd_per_hour else now_s, price)
            self.silent_s += now_s - since_s if self.unpriced else 0.0
        elif self.usd_per_hour == fallback or now_s - known_s > self.world.policy.unpriced_s - self.silent_s:
            self._set_price(since_s, fallback)
        else:
            self.unpriced = True
            return
        self.priced_until_s, self.unpriced = now_s, False

    def _read_price(self, quote: Quote) -> Decimal | None:
        """Return the current price of the quote's pool; None where none can be read.

        A price far above a known on-demand price (`max_price_factor`) is no price.
        """
        question = self.decision.question
        quoted = self.world.prices.charged_usd_per_hour(quote, question.pool(quote.pool))
        on_demand = question.quote(quote.pool, Market.ON_DEMAND)
        factor = Decimal(str(self.world.policy.max_price_factor))
        return None if quoted and on_demand and quoted > on_demand.usd_per_hour * factor else quoted

    def is_short_of_memory(self) -> bool:
        """Read how close to its memory limit the container is; return whether it has been very close."""
        share = self.memory.share() if self.memory else None
        if share is not None:
            self.memory_share = max(self.memory_share or 0.0, round(share, 4))
        return (self.memory_share or 0.0) >= HIGH_MEMORY_SHARE

    def _set_price(self, since_s: float, usd_per_hour: Decimal) -> None:
        self.rate_changes = tuple(change for change in self.rate_changes if change[0] < since_s)
        if usd_per_hour != self.usd_per_hour:
            self.rate_changes += ((since_s, usd_per_hour),)


def pod_started_s(world: World) -> float:
    """Return when this pod began, on the monotonic clock: its own start where that is known, so that imports
    are charged.
    """
    age_s = world.cluster.lifetime(world.pod).age_s(world.clock.now())
    return world.clock.monotonic_s() - age_s
