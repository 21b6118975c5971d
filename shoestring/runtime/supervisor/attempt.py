"""What a stage's pod keeps in mind of its attempt: what it may spend, what it has spent, why it stops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal

from shoestring.config.world import World
from shoestring.core.attempt_id import AttemptId
from shoestring.core.errors import StageFailed
from shoestring.core.money import usd
from shoestring.core.receipt import AdaptationChange, Cause, PricePoint, ResourceUsage
from shoestring.data.run_records import Run
from shoestring.routing.decision import Choice, Decision
from shoestring.routing.pages.decision_view import reserved_later_s
from shoestring.runtime.supervisor.gpu_use import GpuUsage
from shoestring.spending.meter import Meter, RateChanges
from shoestring.stages.work import Origin, Progress

# What leaving takes; its price is kept back from every reservation, with the stage's own checkpoint time.
EXIT_S = 0.5
NO_USAGE = ResourceUsage()


@dataclass(slots=True)
class Attempt:
    """One attempt at a stage, while it runs. Everything that changes is here.

    `reserved_usd`: as far as it has heard. `extension_asked_at_usd`: what that was when it last asked for more. `moves`: prices that took the place
    of the decision's, since. `told`: what its child goes by. `cap_times_s`: when guardrails' caps will be reached; `noted`: what they made it
    do. `used_before`: by its earlier attempts. `committed_usd`: what of it a commitment had paid for, known at its end.
    """

    world: World
    run: Run
    decision: Decision
    decision_key: str
    inputs: Mapping[str, str]
    started_s: float
    reserved_usd: Decimal
    origin: Origin | None = None
    extension_asked_at_usd: Decimal = Decimal(0)
    rate_changes: RateChanges = ()
    sent_limits: tuple[Decimal, RateChanges, float | None] | None = None
    cap_times_s: dict[str, float] = field(default_factory=dict)
    throttled: bool = False
    guardrail_changes: tuple[AdaptationChange, ...] = ()
    usage: ResourceUsage = NO_USAGE
    usage_before: ResourceUsage = NO_USAGE
    stop_reason: str = ""
    stop_cause: Cause = ""
    stopping_since_s: float = 0.0
    progress: Progress = field(default_factory=Progress)
    cpu_s: float = 0.0
    peak_rss_bytes: int = 0
    committed_usd: Decimal = Decimal(0)
    gpu_usage: GpuUsage = field(default_factory=GpuUsage)

    @property
    def choice(self) -> Choice:
        if self.decision.choice is None:
            raise StageFailed(
                f"{self.decision_key} chose nothing, so {self.decision.question.stage} has nowhere to run"
            )
        return self.decision.choice

    @property
    def stage(self) -> str:
        return self.decision.question.stage

    @property
    def number(self) -> int:
        return self.decision.question.attempt

    @property
    def id(self) -> AttemptId:
        return self.decision.question.attempt_id

    @property
    def exit_usd(self) -> Decimal:
        """The price of leaving in good order: a checkpoint, a grace, the last entries, and the pod's own end after them."""
        return self.price_usd(
            EXIT_S + self.decision.question.needs[0].checkpoint_s + self.world.policy.pod_exit_s
        )

    @property
    def usd_per_hour(self) -> Decimal:
        """The price in force."""
        return self.rate_changes[-1][1] if self.rate_changes else self.choice.usd_per_hour

    def prices(self) -> tuple[PricePoint, ...]:
        """What its pod has cost an hour, each from when on."""
        now, now_s = self.world.clock.now(), self.world.clock.monotonic_s()
        turns = ((self.started_s, self.choice.usd_per_hour), *self.rate_changes)
        return tuple(
            PricePoint(at=now - timedelta(seconds=now_s - since_s), usd_per_hour=price)
            for since_s, price in turns
        )

    @property
    def changes(self) -> tuple[AdaptationChange, ...]:
        """What its work says that it changed, and what guardrails made of it, as they came."""
        return tuple(sorted((*self.progress.changes, *self.guardrail_changes), key=lambda change: change.at))

    def price_usd(self, seconds: float) -> Decimal:
        return usd(self.usd_per_hour * Decimal(str(seconds)) / 3600)

    def meter(self) -> Meter:
        """The money of the reservation less the exit and what is not paid by time, and the deadline less what is for later stages."""
        left_s = self.decision.question.deadline_left_s
        due_s = [] if left_s is None else [self.started_s + left_s - reserved_later_s(self.decision)]
        ends_s = min([*due_s, *self.cap_times_s.values()], default=None)
        return Meter(
            self.choice.usd_per_hour,
            self.started_s,
            self.reserved_usd - self.exit_usd - self.choice.fees_usd,
            ends_s,
            self.rate_changes,
        )

    def spent_usd(self) -> Decimal:
        """By now, with all that moving and holding its data will have cost at its end."""
        return self.choice.fees_usd + self.meter().spent_usd(self.world.clock.monotonic_s())

    def stop(self, why: str, cause: Cause = "stop-requested") -> None:
        if not self.stop_reason:
            self.stop_reason, self.stop_cause, self.stopping_since_s = why, cause, self.world.clock.monotonic_s()


def pod_started_s(world: World) -> float:
    """When this pod began, on the monotonic clock: its own start where that can be known, so that imports are paid for too."""
    age_s = world.cluster.lifetime(world.pod).age_s(world.clock.now())
    return world.clock.monotonic_s() - age_s
