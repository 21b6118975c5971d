"""Decide whether a running stage stays where it is or migrates to another pool. Pure.

A migration stops the stage at a checkpoint and routes it again. The check compares the samples that the
remaining money and time buy on the current pool with those that they buy on the target pool:

    saving      1 - samples here / samples on the target if the migration were free
    disruption  1 - samples on the target after the migration / the same if the migration were free
    migration   checkpoint and exit at the current price, start-up and set-up at the target's price

A migration loses no work. If both pools can process all remaining samples, the check compares costs
instead: dollars plus the price of delay.

A stage migrates only if saving >= k x disruption + margin x migrations made, with k >= 1, so the saving
always outweighs the cost of the migration. A saving is at most 1, so a run migrates at most 1 + 1 / margin
times whatever prices do. If prices vary by less than the margin, it migrates at most once. Remaining time
counts like remaining money: where the deadline ends the training, a faster and more expensive pool wins.

A pool that turns out slower than estimated is left by the same rule, after minutes instead of a whole run.
Unmeasured pools are therefore scored more optimistically (`exploration_sd`), also in the middle of a run:
the value of measuring a pool is subtracted from its cost.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from shoestring.config.policy import MigrationPolicy, Policy
from shoestring.core.record import Record
from shoestring.core.types import Market, Need
from shoestring.routing.text_table import TextTable

PHASES_WITHOUT_MIGRATION = frozenset({"", "warm-up", "decay"})
"""Phases that a stage finishes on the pool where it began them: first steps, warm-up, learning-rate decay."""

EXPLORATION_SD = 2.0
"""Standard deviations by which an unmeasured pool is scored optimistically, where a migration can correct a
bad choice.

It exceeds LOOK_SD of pricing/learned/learning.py because a wrong choice costs minutes. Tuned on every second
model of bench/gpu_choice.py.
"""


class RunningStage(Record):
    """A stage that is running now. `s_per_sample` is measured. `left_s` is None without a deadline."""

    pool: str
    market: Market
    usd_per_hour: float = Field(gt=0)
    s_per_sample: float = Field(gt=0)
    phase: str
    elapsed_s: float = Field(ge=0, description="seconds since the attempt started on this pool")
    migrations: int = Field(ge=0, description="migrations that this run has already made")
    left_usd: float
    left_s: float | None
    samples_left: float = Field(ge=0)
    exit_s: float = Field(ge=0, description="seconds that writing a checkpoint and exiting take")
    delay_usd_per_hour: float = Field(0.0, ge=0)


class MigrationTarget(Record):
    """The pool and market that the router would choose now.

    `s_per_sample` is the model's estimate, scaled by the ratio of measured to estimated time on the current
    pool.
    """

    pool: str
    market: Market
    usd_per_hour: float = Field(gt=0)
    s_per_sample: float = Field(gt=0)
    startup_s: float = Field(ge=0, description="seconds of start-up and set-up")
    exploration_value: float = Field(
        0.0, ge=0, lt=1, description="share of the target's cost that measuring its speed is worth"
    )


class MigrationReason(StrEnum):
    """The rule that decided a check."""

    MIGRATE = "migrate"
    PHASE = "phase"
    DWELL = "dwell"
    LIMIT = "migration-limit"
    SAME_TARGET = "same-target"
    NO_SAVING = "no-saving"
    DISRUPTION = "disruption"


class MigrationDecision(Record):
    """Migrate or stay. The sentence contains the numbers."""

    code: MigrationReason
    sentence: str
    saving: float = 0.0
    disruption: float = 0.0

    @property
    def migrates(self) -> bool:
        """Return True if the stage stops and is routed again."""
        return self.code is MigrationReason.MIGRATE


class MigrationCheck(Record):
    """The inputs of `check_migration` and its decision. The store keeps the last check of each attempt."""

    running: RunningStage
    target: MigrationTarget | None
    decision: MigrationDecision


MIGRATION_COLUMNS = ("pool", "$/hour", "1,000 samples", "remaining budget buys", "start-up")


def migration_table(check: MigrationCheck) -> TextTable:
    """Return the last check of an attempt as a table: the current pool, the target and the decision."""
    running, target = check.running, check.target
    rows = [
        _row(running, running.pool, running.market, running.usd_per_hour, running.s_per_sample, "runs here")
    ]
    if target is not None:
        startup = f"{target.startup_s + running.exit_s:,.1f} s"
        rows.append(
            _row(running, target.pool, target.market, target.usd_per_hour, target.s_per_sample, startup)
        )
    left_s = "" if running.left_s is None else f" and {running.left_s:,.0f} s"
    state = (
        f"phase {running.phase or 'first steps'}, {running.elapsed_s:,.0f} s on this pool, "
        f"${running.left_usd:.6f}{left_s} left for {running.samples_left:,.0f} samples"
    )
    return TextTable(
        "Last migration check",
        MIGRATION_COLUMNS,
        rows,
        frozenset(MIGRATION_COLUMNS[1:]),
        f"{check.decision.sentence}; {state}",
    )


def _row(
    running: RunningStage, pool: str, market: Market, usd_per_hour: float, s_per_sample: float, startup: str
) -> tuple[str, ...]:
    samples = f"{affordable_samples(running, usd_per_hour, s_per_sample):,.0f} samples"
    return (f"{pool} {market}", f"{usd_per_hour:.6f}", f"{1000 * s_per_sample:,.3f} s", samples, startup)


def may_migrate(policy: Policy, need: Need) -> bool:
    """Return True if the stage is elastic and the policy allows migrations and checks for them."""
    return bool(policy.migration.check_every_s and policy.adaptation_limits.pool and need.elastic)


def exploration_sd(policy: Policy, need: Need, migrations: int) -> float:
    """Return `Question.exploration_sd` for a stage that has made this many migrations; 0 if it may make no
    more.
    """
    more = may_migrate(policy, need) and migrations < policy.migration.max_migrations
    return EXPLORATION_SD if more else 0.0


def check_migration(
    running: RunningStage, target: MigrationTarget | None, policy: MigrationPolicy
) -> MigrationDecision:
    """Decide whether a running stage migrates.

    `target` is None if the router would choose the same pool and market.
    """
    if (blocked := _blocked(running, policy)) is not None:
        return blocked
    if target is None or (target.pool, target.market) == (running.pool, running.market):
        sentence = f"stays: the router would choose {running.pool} {running.market} again"
        return MigrationDecision(code=MigrationReason.SAME_TARGET, sentence=sentence)
    saving, disruption, unit = saving_and_disruption(running, target)
    named = f"{target.pool} {target.market} at ${target.usd_per_hour:.6f} an hour"
    numbers = f"{named} saves {saving:.1%}{unit}, the migration costs {disruption:.1%}"
    if target.exploration_value and not unit:
        numbers += f", with {target.exploration_value:.1%} subtracted for measuring its speed"
    required = (
        policy.saving_over_disruption * disruption + policy.extra_saving_per_migration * running.migrations
    )
    if saving <= 0:
        code, sentence = MigrationReason.NO_SAVING, f"stays: {named} saves nothing"
    elif saving < required:
        code, sentence = MigrationReason.DISRUPTION, f"stays: {numbers}, {required:.1%} saving is required"
    else:
        code, sentence = MigrationReason.MIGRATE, f"migrates: {numbers}"
    return MigrationDecision(code=code, sentence=sentence, saving=saving, disruption=disruption)


def _blocked(running: RunningStage, policy: MigrationPolicy) -> MigrationDecision | None:
    """Return the decision to stay if phase, dwell time or limit forbids a migration; else None."""
    if running.phase in PHASES_WITHOUT_MIGRATION or running.phase in policy.critical_phases:
        sentence = f"stays: no migration during {running.phase or 'its first steps'}"
        return MigrationDecision(code=MigrationReason.PHASE, sentence=sentence)
    if running.elapsed_s < policy.min_dwell_s:
        sentence = f"stays: {running.elapsed_s:.0f} s on this pool, the minimum is {policy.min_dwell_s:g} s"
        return MigrationDecision(code=MigrationReason.DWELL, sentence=sentence)
    if running.migrations >= policy.max_migrations:
        sentence = f"stays: migrations made {running.migrations}, allowed {policy.max_migrations}"
        return MigrationDecision(code=MigrationReason.LIMIT, sentence=sentence)
    return None


def saving_and_disruption(running: RunningStage, target: MigrationTarget) -> tuple[float, float, str]:
    """Return the relative saving, the relative disruption, and the unit of both: " a sample", or "" for the
    total cost.

    Both are at most 1. The saving may be negative.
    """
    migration_usd = (running.usd_per_hour * running.exit_s + target.usd_per_hour * target.startup_s) / 3600
    migration_s = running.exit_s + target.startup_s
    here = affordable_samples(running, running.usd_per_hour, running.s_per_sample)
    free = affordable_samples(running, target.usd_per_hour, target.s_per_sample)
    after = affordable_samples(running, target.usd_per_hour, target.s_per_sample, migration_usd, migration_s)
    if here >= running.samples_left > 0 and after >= running.samples_left:
        delay = running.delay_usd_per_hour
        target_usd_per_hour = (1 - target.exploration_value) * target.usd_per_hour + delay
        cost_here = running.samples_left * running.s_per_sample * (running.usd_per_hour + delay) / 3600
        cost_there = running.samples_left * target.s_per_sample * target_usd_per_hour / 3600
        return 1 - cost_there / cost_here, (migration_usd + delay * migration_s / 3600) / cost_here, ""
    if free <= 0:
        return 0.0, 1.0, ""
    return 1 - here / free, 1 - after / free, " a sample"


def affordable_samples(
    running: RunningStage, usd_per_hour: float, s_per_sample: float, usd: float = 0.0, seconds: float = 0.0
) -> float:
    """Return the samples that the remaining money and time buy at this price and speed, after `usd` and
    `seconds` are spent.
    """
    by_money_s = (running.left_usd - usd) * 3600 / usd_per_hour
    by_time_s = by_money_s if running.left_s is None else running.left_s - seconds
    return min(running.samples_left, max(0.0, min(by_money_s, by_time_s)) / s_per_sample)
