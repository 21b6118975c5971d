"""Checks whether a running stage should migrate: the router's own code answers the question again, with
current prices.

The pools are those of the stage's decision: a stage's pod has no right to read nodes, and the router that
routes the stage again finds out whether a pool has capacity. What this attempt measured teaches the model
like a receipt, together with all receipts that its router knew.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from shoestring.core import store_layout
from shoestring.core.errors import StoreError
from shoestring.core.receipt import Receipt
from shoestring.core.record import record_bytes
from shoestring.core.types import Need, Quote
from shoestring.routing.decision import Choice
from shoestring.routing.policy.migration import (
    MigrationCheck,
    MigrationTarget,
    RunningStage,
    check_migration,
    exploration_sd,
    may_migrate,
)
from shoestring.routing.question import ZERO_USD, Question
from shoestring.runtime.records.current_prices import current_quote
from shoestring.runtime.records.receipt_history import known_receipts
from shoestring.runtime.records.receipts import AttemptResult, make_receipt
from shoestring.runtime.supervisor.attempt import Attempt
from shoestring.spending.exit_money import EXIT_S

# The first samples come too soon after the start to measure a speed.
MIN_MEASURED_S = 1.0


@dataclass(slots=True)
class MigrationMonitor:
    """The migration checks of one attempt.

    Attributes:
        migrations: how often the stage migrated before this attempt.
        checked_s: when the last check was made, on the monotonic clock; infinity where none is ever made.
        receipts: the receipts that the attempt's router knew.
        first: when samples were reported first (monotonic clock), and how many.
        last: when their number changed last, and to what.
        pool_requests: how often the stage had asked for another pool at the last check.
        last_check: the last check; None before the first.
        may_migrate: whether this attempt can still migrate. If not, its stage does not ask for another pool.
    """

    migrations: int
    checked_s: float
    receipts: Sequence[Receipt] = ()
    first: tuple[float, int] | None = None
    last: tuple[float, int] = (0.0, 0)
    pool_requests: int = 0
    last_check: MigrationCheck | None = None
    may_migrate: bool = False


def make_monitor(attempt: Attempt) -> MigrationMonitor:
    """Return the monitor of an attempt that begins.

    No check is made where the earlier receipts cannot be read, or where none is needed.
    """
    if needs_checks(attempt):
        with suppress(StoreError):
            store, began_at = attempt.world.store, attempt.run.start.started_at
            known = known_receipts(store, attempt.run.run_id, [attempt.stage], began_at)
            return monitor_with(attempt, known.migrations, known.receipts)
    return MigrationMonitor(0, math.inf)


def monitor_with(attempt: Attempt, migrations: int, receipts: Sequence[Receipt]) -> MigrationMonitor:
    """Return the monitor of an attempt whose earlier migrations and receipts are known."""
    now_s = attempt.world.clock.monotonic_s() if needs_checks(attempt) else math.inf
    more = now_s < math.inf and migrations < attempt.world.policy.migration.max_migrations
    return MigrationMonitor(migrations, now_s, receipts, may_migrate=more)


def needs_checks(attempt: Attempt) -> bool:
    """Return False where the policy forbids migration, and on prepaid hours: no other price is below 0."""
    question = attempt.decision.question
    committed = question.commitment(attempt.choice.pool, attempt.choice.market)
    prepaid = committed is not None and committed.left_ms > 0
    return not prepaid and may_migrate(attempt.world.policy, question.needs[0])


def migrate_if_cheaper(attempt: Attempt, monitor: MigrationMonitor) -> None:
    """Check at the policy's interval, or when the stage asks for another pool; stop the attempt if it should
    migrate.
    """
    policy, now_s = attempt.world.policy.migration, attempt.world.clock.monotonic_s()
    if monitor.checked_s == math.inf or attempt.stop_reason:
        return
    count_samples(attempt, monitor, now_s)
    pool_requests = sum(change.lever == "pool" for change in attempt.progress.changes)
    if now_s - monitor.checked_s < policy.check_every_s and pool_requests <= monitor.pool_requests:
        return
    if (running := running_stage(attempt, monitor, now_s)) is None:
        return
    monitor.checked_s, monitor.pool_requests = now_s, pool_requests
    target = find_target(attempt, running, monitor)
    decision = check_migration(running, target, policy)
    monitor.last_check = MigrationCheck(running=running, target=target, decision=decision)
    if decision.migrates:
        attempt.stop(decision.sentence, "migrated")


def count_samples(attempt: Attempt, monitor: MigrationMonitor, now_s: float) -> None:
    """Note the first and the last change of the reported samples."""
    samples = attempt.progress.samples
    if monitor.first is None and samples:
        monitor.first = (now_s, samples)
    if samples != monitor.last[1]:
        monitor.last = (now_s, samples)


def running_stage(attempt: Attempt, monitor: MigrationMonitor, now_s: float) -> RunningStage | None:
    """Return the state of the running stage; None: no speed is measured yet, or no samples are left."""
    progress, question, choice = attempt.progress, attempt.decision.question, attempt.choice
    (first_s, first_samples), (last_s, last_samples) = monitor.first or (now_s, 0), monitor.last
    samples, seconds = last_samples - first_samples, last_s - first_s
    left = (progress.total or choice.samples + progress.resumed_samples) - progress.samples
    if seconds < MIN_MEASURED_S or samples <= 0 or left <= 0:
        return None
    need, meter = question.needs[0], attempt.meter()
    return RunningStage(
        pool=choice.pool,
        market=choice.market,
        usd_per_hour=float(attempt.usd_per_hour),
        s_per_sample=seconds / samples,
        phase=progress.phase,
        elapsed_s=now_s - attempt.started_s,
        migrations=monitor.migrations,
        left_usd=float(meter.limit_usd - meter.spent_usd(now_s)),
        left_s=None if meter.deadline_s is None else meter.deadline_s - now_s,
        samples_left=left,
        exit_s=EXIT_S + need.checkpoint_s + attempt.world.policy.pod_exit_s,
        delay_usd_per_hour=question.delay_microusd_per_hour(need) / 1e6,
    )


def find_target(attempt: Attempt, running: RunningStage, monitor: MigrationMonitor) -> MigrationTarget | None:
    """Return where the router's own code would run the rest of the stage; None: nowhere else."""
    # Imported here, like what it is asked with: few stages check, and a pod is paid for while it imports.
    from shoestring.routing.decide import decide

    question = remaining_question(attempt, running, monitor)
    choice = decide(question).choice
    if (
        choice is None
        or (choice.pool, choice.market) == (running.pool, running.market)
        or not expected_s_per_sample(question, choice)
    ):
        return None
    return migration_target(question, choice)


def migration_target(question: Question, choice: Choice) -> MigrationTarget:
    """Return what the model expects of a pool and market for the rest of the stage, and what exploring it is
    worth.
    """
    from shoestring.pricing.learned.runtime_factors import exploration_bonus

    pool, need = question.pool(choice.pool), question.needs[0]
    bonus = exploration_bonus(need, [pool], question.learned, question.exploration_sd)
    return MigrationTarget(
        pool=choice.pool,
        market=choice.market,
        usd_per_hour=float(choice.usd_per_hour),
        s_per_sample=expected_s_per_sample(question, choice),
        startup_s=pool.startup_s + choice.fixed_s * learned_factor(question, choice),
        exploration_value=float(bonus[0]),
    )


def interim_receipt(attempt: Attempt, monitor: MigrationMonitor) -> Receipt:
    """Return the receipt that the attempt would have if it migrated now."""
    (last_s, samples), now = monitor.last, attempt.world.clock.now()
    now_s = attempt.world.clock.monotonic_s()
    result = AttemptResult(
        decision_key=attempt.decision_key,
        pod=attempt.world.pod,
        status="stopped",
        cause="migrated",
        spent_usd=ZERO_USD,
        samples=samples - attempt.progress.resumed_samples,
        started_at=now - timedelta(seconds=now_s - attempt.started_s),
        finished_at=now - timedelta(seconds=now_s - last_s),
        ledger_head="",
    )
    return make_receipt(attempt.decision, result)


def remaining_question(attempt: Attempt, running: RunningStage, monitor: MigrationMonitor) -> Question:
    """Return the attempt's question about the rest of its work, money and time, with current prices and
    measured speed.
    """
    from shoestring.pricing.learned.learning import learn

    question, world = attempt.decision.question, attempt.world
    now, need = world.clock.now(), question.needs[0]
    others = [each for each in question.learned if each.stage != need.stage]
    learned = learn([*monitor.receipts, interim_receipt(attempt, monitor)], [need], question.pools)
    left_s = question.deadline_left_s
    return question.model_copy(
        update={
            "asked_at": now,
            "families": (),
            "learned": (*learned, *others),
            "exploration_sd": exploration_sd(world.policy, need, running.migrations + 1),
            "needs": (remaining_need(need, attempt), *question.needs[1:]),
            "spent_usd": question.spent_usd + attempt.spent_usd() + attempt.exit_usd,
            "deadline_left_s": None if left_s is None else max(0.0, left_s - running.elapsed_s),
            "quotes": tuple(quote_for(attempt, quote) for quote in question.quotes),
            "stockouts": tuple(each for each in question.stockouts if each.until > now),
            "cached_outcome": None,
            "cached_later_stages": (),
            "candidate_policy": None,
            "preferences": question.active_policy,
        }
    )


def remaining_need(need: Need, attempt: Attempt) -> Need:
    """Return the need without the passes over the data that are done."""
    done, total = attempt.progress.samples, attempt.progress.total
    share = 1 - done / total if total else 1.0
    passes = max(need.passes * share, 1e-6)
    return need.model_copy(update={"passes": passes, "min_passes": min(need.min_passes, passes)})


def quote_for(attempt: Attempt, quote: Quote) -> Quote:
    """Return the quote with the current price; the attempt's own with the price that it pays."""
    if quote.pool == attempt.choice.pool and quote.market == attempt.choice.market:
        return quote.model_copy(update={"usd_per_hour": attempt.usd_per_hour})
    return current_quote(attempt.world, attempt.decision.question, quote)


def learned_factor(question: Question, choice: Choice) -> float:
    """Return by how much receipts multiply the prior's seconds, over the whole stage."""
    running_s = choice.est_s - question.pool(choice.pool).startup_s
    return running_s / choice.prior_s if choice.prior_s > 0 and running_s > 0 else 1.0


def expected_s_per_sample(question: Question, choice: Choice) -> float:
    """Return the seconds that the model expects for one more sample; 0: unknown."""
    if not choice.samples:
        return 0.0
    return learned_factor(question, choice) * (choice.prior_s - choice.fixed_s) / choice.samples


def write_last_check(attempt: Attempt, monitor: MigrationMonitor) -> None:
    """Write the last check of an attempt. Raises StoreError."""
    if monitor.last_check:
        key = store_layout.migration_check(attempt.run.run_id, attempt.id)
        attempt.world.store.put(key, record_bytes(monitor.last_check))
