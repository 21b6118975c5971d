"""A running stage's second looks: what is true by now, put to the router's own code; on a move the child stops at a checkpoint.

Prices are those of now. Pools are those of its decision: a stage's pod may not read nodes, and whether there is room is for the router to
find, which routes the stage again. What this attempt measured teaches the model like a receipt, beside all receipts that its router knew.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

from shoestring.core.errors import StoreError
from shoestring.core.money import usd
from shoestring.core.receipt import Receipt
from shoestring.core.record import record_bytes
from shoestring.core.types import Need, Pool, Quote
from shoestring.pricing.learning import exploration_bonus, learn
from shoestring.routing.decide import decide
from shoestring.routing.decision import Choice
from shoestring.routing.question import ZERO_USD, Question
from shoestring.routing.offers.factors import stage_memory_gb
from shoestring.routing.policy.migration import (
    MigrationCheck,
    MigrationTarget,
    RunningStage,
    check_migration,
    exploration_sd,
    may_migrate,
)
from shoestring.routing.policy.preferences import delay_microusd_per_hour, kind_of
from shoestring.runtime.records.receipt_history import known_receipts
from shoestring.runtime.records.receipts import receipt_for
from shoestring.runtime.supervisor.attempt import EXIT_S, Attempt

# Of what it does in its first moments nothing is measured.
MIN_MEASURED_S = 1.0


@dataclass(slots=True)
class MigrationMonitor:
    """The looks of one attempt. `moves`: made before it; `taught`: receipts of before it; `since` and `until`: when samples were counted
    first and last, and how many; `last_s`: when it looked last, infinity where it never does; `asks`: how often the stage has asked for
    another place by then."""

    moves: int
    last_s: float
    taught: Sequence[Receipt] = ()
    since: tuple[float, int] | None = None
    until: tuple[float, int] = (0.0, 0)
    asks: int = 0
    last: MigrationCheck | None = None


def make_monitor(attempt: Attempt) -> MigrationMonitor:
    """Begin to look, knowing what became of the attempts before this one. Where that cannot be read, none of it is looked at twice; nor is
    what runs on hours that are paid for: no price elsewhere is less than none."""
    store, run_id, now_s = attempt.world.store, attempt.run.run_id, attempt.world.clock.monotonic_s()
    question, began_at = attempt.decision.question, attempt.run.start.started_at
    committed = question.commitment(attempt.choice.pool, attempt.choice.market)
    paid_for = committed is not None and committed.left_ms > 0
    if not may_migrate(attempt.world.policy, question.needs[0]) or paid_for:
        return MigrationMonitor(0, math.inf)
    try:
        receipts, moves, _ = known_receipts(store, run_id, [attempt.stage], began_at)
    except StoreError:
        return MigrationMonitor(0, math.inf)
    return MigrationMonitor(moves, now_s, receipts)


def migrate_if_cheaper(attempt: Attempt, looks: MigrationMonitor) -> None:
    """Every so often, where the policy says so and the stage takes as much as its money buys: stay, or ask the child to stop."""
    rules, now_s = attempt.world.policy.migration, attempt.world.clock.monotonic_s()
    if looks.last_s == math.inf or attempt.stop_reason:
        return
    count_samples(attempt, looks, now_s)
    asks = sum(change.lever == "pool" for change in attempt.progress.changes)
    if (now_s - looks.last_s < rules.check_every_s and asks <= looks.asks) or (
        standing := running_stage(attempt, looks, now_s)
    ) is None:
        return
    looks.last_s, looks.asks = now_s, asks
    there = find_target(attempt, standing, looks)
    looks.last = MigrationCheck(running=standing, target=there, decision=check_migration(standing, there, rules))
    if looks.last.decision.migrates:
        attempt.stop(looks.last.decision.sentence, "migrated")


def count_samples(attempt: Attempt, looks: MigrationMonitor, now_s: float) -> None:
    """From the first samples of this attempt on, to the last that it told of."""
    samples = attempt.progress.samples
    if looks.since is None and samples:
        looks.since = (now_s, samples)
    if samples != looks.until[1]:
        looks.until = (now_s, samples)


def running_stage(attempt: Attempt, looks: MigrationMonitor, now_s: float) -> RunningStage | None:
    """None: nothing is measured yet, or there is nothing left to do."""
    progress, question, choice = attempt.progress, attempt.decision.question, attempt.choice
    (began_s, began), (until_s, until) = looks.since or (now_s, 0), looks.until
    samples, seconds = until - began, until_s - began_s
    left = (progress.total or choice.samples + progress.began) - progress.samples
    if seconds < MIN_MEASURED_S or samples <= 0 or left <= 0:
        return None
    need = question.needs[0]
    kind = kind_of(need, stage_memory_gb(need, question.rows))
    limit = attempt.meter()
    return RunningStage(
        pool=choice.pool,
        market=choice.market,
        usd_per_hour=float(attempt.usd_per_hour),
        s_per_sample=seconds / samples,
        phase=progress.phase,
        elapsed_s=now_s - attempt.started_s,
        migrations=looks.moves,
        left_usd=float(limit.limit_usd - limit.spent_usd(now_s)),
        left_s=None if limit.deadline_s is None else limit.deadline_s - now_s,
        samples_left=left,
        exit_s=EXIT_S + need.checkpoint_s + attempt.world.policy.pod_exit_s,
        delay_usd_per_hour=delay_microusd_per_hour(question.active_policy, kind) / 1e6,
    )


def find_target(attempt: Attempt, at: RunningStage, looks: MigrationMonitor) -> MigrationTarget | None:
    """Where the router's own code would put what is left of the stage; None: nowhere, or where it is."""
    question = remaining_question(attempt, at, looks)
    choice = decide(question).choice
    if (
        choice is None
        or (choice.pool, choice.market) == (at.pool, at.market)
        or not expected_s_per_sample(question, choice)
    ):
        return None
    return migration_target(question, choice)


def migration_target(question: Question, choice: Choice) -> MigrationTarget:
    """What the model expects of a place for what is left, and what finding out about it is worth."""
    pool = pool_of(question, choice.pool)
    return MigrationTarget(
        pool=choice.pool,
        market=choice.market,
        usd_per_hour=float(choice.usd_per_hour),
        s_per_sample=expected_s_per_sample(question, choice),
        startup_s=pool.startup_s + choice.fixed_s * learned_factor(question, choice),
        exploration_value=float(exploration_bonus(question.needs[0], [pool], question.learned, question.exploration_sd)[0]),
    )


def interim_receipt(attempt: Attempt, looks: MigrationMonitor) -> Receipt:
    """What it has measured by now, as the receipt of an attempt that was moved would say it."""
    (until_s, until), now, now_s = looks.until, attempt.world.clock.now(), attempt.world.clock.monotonic_s()
    began_at, until_at = (now - timedelta(seconds=now_s - each_s) for each_s in (attempt.started_s, until_s))
    return receipt_for(
        attempt.decision,
        began_at,
        until_at,
        until - attempt.progress.began,
        decision_key=attempt.decision_key,
        pod=attempt.world.pod,
        status="stopped",
        cause="migrated",
        spent_usd=ZERO_USD,
        ledger_head="",
    )


def remaining_question(attempt: Attempt, at: RunningStage, looks: MigrationMonitor) -> Question:
    """The question of the attempt's decision, about what is left of its work, money and time, at the prices of now, by what was measured
    meanwhile."""
    question, world = attempt.decision.question, attempt.world
    now, need = world.clock.now(), question.needs[0]
    taught = [each for each in question.learned if each.stage != need.stage]
    return question.model_copy(
        update={
            "asked_at": now,
            "learned": (*learn([*looks.taught, interim_receipt(attempt, looks)], [need], question.pools), *taught),
            "exploration_sd": exploration_sd(world.policy, need, at.migrations + 1),
            "needs": (remaining_need(need, attempt), *question.needs[1:]),
            "spent_usd": question.spent_usd + attempt.spent_usd() + attempt.exit_usd,
            "deadline_left_s": None
            if question.deadline_left_s is None
            else max(0.0, question.deadline_left_s - at.elapsed_s),
            "quotes": tuple(current_quote(attempt, question, quote) for quote in question.quotes),
            "stockouts": tuple(each for each in question.stockouts if each.until > now),
            "cached_outcome": None,
            "cached_later_stages": (),
            "candidate_policy": None,
            "preferences": question.active_policy,
        }
    )


def remaining_need(need: Need, attempt: Attempt) -> Need:
    """The stage without the passes that are made."""
    done, total = attempt.progress.samples, attempt.progress.total
    share = 1 - done / total if total else 1.0
    passes = max(need.passes * share, 1e-6)
    return need.model_copy(update={"passes": passes, "min_passes": min(need.min_passes, passes)})


def current_quote(attempt: Attempt, question: Question, quote: Quote) -> Quote:
    """A quote at the price of now; where that is not known, as it was."""
    if quote.pool == attempt.choice.pool and quote.market == attempt.choice.market:
        return quote.model_copy(update={"usd_per_hour": attempt.usd_per_hour})
    now_usd: Decimal | None = attempt.world.prices.current_usd_per_hour(quote, pool_of(question, quote.pool))
    return quote.model_copy(update={"usd_per_hour": usd(now_usd)}) if now_usd else quote


def pool_of(question: Question, name: str) -> Pool:
    return next(pool for pool in question.pools if pool.name == name)


def learned_factor(question: Question, choice: Choice) -> float:
    """What receipts make of the prior's seconds, on the whole."""
    running_s = choice.est_s - pool_of(question, choice.pool).startup_s
    return running_s / choice.prior_s if choice.prior_s > 0 and running_s > 0 else 1.0


def expected_s_per_sample(question: Question, choice: Choice) -> float:
    """What the model expects of a place, for one sample more; 0: nothing can be said."""
    return (
        learned_factor(question, choice) * (choice.prior_s - choice.fixed_s) / choice.samples
        if choice.samples
        else 0.0
    )


def migration_check_key(run_id: str, hold: str) -> str:
    return f"runs/{run_id}/looks/{hold}.json"


def write_last_check(attempt: Attempt, looks: MigrationMonitor) -> None:
    """The last look of an attempt. Raises StoreError."""
    if looks.last:
        attempt.world.store.put(migration_check_key(attempt.run.run_id, str(attempt.id)), record_bytes(looks.last))
