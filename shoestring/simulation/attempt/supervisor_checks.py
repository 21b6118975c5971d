"""Simulate what a supervisor checks besides the money: the usage caps of the policy, and migration."""

from __future__ import annotations

import math

from shoestring.config.guardrails import CAPS, UsageCap
from shoestring.runtime.supervisor.attempt import Attempt
from shoestring.runtime.supervisor.guardrails import (
    THROTTLE_AT,
    attempt_usage,
    check_caps,
    total_usage,
    used_amount,
)
from shoestring.runtime.supervisor.migration_check import migrate_if_cheaper, monitor_with
from shoestring.simulation.attempt.simulated_training import SimulatedTraining
from shoestring.simulation.attempt.work_progress import WorkProgress
from shoestring.simulation.simulated_world import PipelineRun, Simulation
from shoestring.spending.energy import JOULES_PER_KWH, resource_usage
from shoestring.spending.exit_money import CHECK_EVERY_S
from shoestring.stages.work import StageProgress

DEADLINE_CHECK_SHARE = 0.2
"""Share of the time to a cap after which the deadline that follows from it is corrected."""


class SupervisorChecks:
    """The checks of one attempt.

    A real supervisor checks once a second. Here a check is made only when something can change: at a window
    or a validation of a training, when a cap is reached, and at the interval of the migration policy.
    """

    def __init__(
        self, simulation: Simulation, pipeline: PipelineRun, attempt: Attempt, work: WorkProgress
    ) -> None:
        self._attempt, self._work, self._resumed = attempt, work, pipeline.samples
        policy = attempt.world.policy
        caps = {name: getattr(policy.guardrails, name) for name in CAPS}
        self._caps: dict[str, UsageCap] = {name: cap for name, cap in caps.items() if cap}
        self._monitor = monitor_with(attempt, pipeline.migrations, simulation.newest_receipts())
        self._training = (
            SimulatedTraining(pipeline, attempt, work, self._monitor.may_migrate)
            if attempt.elastic and work.full_s > 0
            else None
        )
        attempt.usage_before = total_usage(pipeline.usages)

    def next_s(self, now_s: float) -> float:
        """Return the time of the next check; infinity if there is none."""
        training_s = self._training.next_s() if self._training else math.inf
        every_s = self._attempt.world.policy.migration.check_every_s
        migration_s = self._monitor.checked_s + every_s if self._monitor.may_migrate else math.inf
        caps_s = [self._cap_s(name, cap, now_s) for name, cap in self._caps.items()]
        return min(training_s, *(max(now_s + CHECK_EVERY_S, each) for each in (migration_s, *caps_s)))

    def price_changed(self, now_s: float) -> None:
        """Let the training compare its forecast with the money again."""
        if self._training:
            self._training.disturb(now_s)

    def run(self, now_s: float) -> None:
        """Make all checks that are due."""
        attempt, training = self._attempt, self._training
        attempt.cpu_s = self._work.cpu_s(now_s)
        if training:
            training.advance(now_s)
        attempt.progress = StageProgress(
            phase=training.phase(now_s) if training and self._monitor.may_migrate else "",
            samples=self._resumed + self._work.done_samples(now_s),
            resumed_samples=self._resumed,
            total=self._resumed + self._work.samples,
            changes=training.changes if training else (),
        )
        throttled = attempt.throttled
        check_caps(attempt, lambda: self._work.halve_cores(now_s))
        if attempt.throttled != throttled:
            self.price_changed(now_s)
        migrate_if_cheaper(attempt, self._monitor)

    def _cap_s(self, name: str, cap: UsageCap, now_s: float) -> float:
        """Return when the next check of a cap is due: when its next limit is reached, or earlier where the
        cap is a deadline, which each check corrects.
        """
        attempt = self._attempt
        attempt.cpu_s = self._work.cpu_s(now_s)
        usage = attempt_usage(attempt)
        grams = (usage.co2_g or 0.0) / usage.joules * JOULES_PER_KWH if usage.joules else 0.0
        pool = attempt.decision.question.pool(attempt.choice.pool)
        per_s = used_amount(name, resource_usage(pool, 1.0, self._work.busy_now, grams), attempt)
        limit = THROTTLE_AT * cap.max if cap.action == "throttle" and not attempt.throttled else cap.max
        left = limit - used_amount(name, usage, attempt) - used_amount(name, attempt.usage_before, attempt)
        is_deadline = cap.action == "rebalance" and attempt.elastic
        return now_s + (DEADLINE_CHECK_SHARE if is_deadline else 1.0) * left / per_s if per_s else now_s
