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
from shoestring.core.types import Need, Pool, Quote, record_bytes
from shoestring.pricing.learning import learn, worths
from shoestring.routing.decide import decide
from shoestring.routing.decision import NOTHING, Choice, Question
from shoestring.routing.offers.factors import needed_gb
from shoestring.routing.policy.migration import (
    Elsewhere,
    Look,
    Standing,
    looks_twice,
    second_look,
    tries_sd,
)
from shoestring.routing.policy.preferences import kind_of, waiting_micro_per_hour
from shoestring.runtime.records.receipt_history import known_to
from shoestring.runtime.records.receipts import receipt_for
from shoestring.runtime.supervisor.attempt import EXIT_S, Attempt

# Of what it does in its first moments nothing is measured.
LEAST_MEASURED_S = 1.0


@dataclass(slots=True)
class Looks:
    """The looks of one attempt. `moves`: made before it; `taught`: receipts of before it; `since` and `until`: when samples were counted
    first and last, and how many; `last_s`: when it looked last, infinity where it never does; `asks`: how often the stage has asked for
    another place by then."""

    moves: int
    last_s: float
    taught: Sequence[Receipt] = ()
    since: tuple[float, int] | None = None
    until: tuple[float, int] = (0.0, 0)
    asks: int = 0
    last: Look | None = None


def looks_of(attempt: Attempt) -> Looks:
    """Begin to look, knowing what became of the attempts before this one. Where that cannot be read, none of it is looked at twice; nor is
    what runs on hours that are paid for: no price elsewhere is less than none."""
    store, run_id, now_s = attempt.world.store, attempt.run.run_id, attempt.world.clock.monotonic_s()
    question, began_at = attempt.decision.question, attempt.run.start.started_at
    committed = question.commitment_to(attempt.choice.pool, attempt.choice.market)
    paid_for = committed is not None and committed.left_ms > 0
    if not looks_twice(attempt.world.policy, question.needs[0]) or paid_for:
        return Looks(0, math.inf)
    try:
        receipts, moves, _ = known_to(store, run_id, [attempt.stage], began_at)
    except StoreError:
        return Looks(0, math.inf)
    return Looks(moves, now_s, receipts)


def look_again(attempt: Attempt, looks: Looks) -> None:
    """Every so often, where the policy says so and the stage takes as much as its money buys: stay, or ask the child to stop."""
    rules, now_s = attempt.world.policy.migration, attempt.world.clock.monotonic_s()
    if looks.last_s == math.inf or attempt.stopping:
        return
    measure(attempt, looks, now_s)
    asks = sum(change.lever == "pool" for change in attempt.progress.changes)
    if (now_s - looks.last_s < rules.check_every_s and asks <= looks.asks) or (
        standing := standing_of(attempt, looks, now_s)
    ) is None:
        return
    looks.last_s, looks.asks = now_s, asks
    there = place_now(attempt, standing, looks)
    looks.last = Look(standing=standing, elsewhere=there, verdict=second_look(standing, there, rules))
    if looks.last.verdict.moves:
        attempt.stop(looks.last.verdict.sentence, "moved")


def measure(attempt: Attempt, looks: Looks, now_s: float) -> None:
    """From the first samples of this attempt on, to the last that it told of."""
    samples = attempt.progress.samples
    if looks.since is None and samples:
        looks.since = (now_s, samples)
    if samples != looks.until[1]:
        looks.until = (now_s, samples)


def standing_of(attempt: Attempt, looks: Looks, now_s: float) -> Standing | None:
    """None: nothing is measured yet, or there is nothing left to do."""
    progress, question, choice = attempt.progress, attempt.decision.question, attempt.choice
    (began_s, began), (until_s, until) = looks.since or (now_s, 0), looks.until
    samples, seconds = until - began, until_s - began_s
    left = (progress.total or choice.samples + progress.began) - progress.samples
    if seconds < LEAST_MEASURED_S or samples <= 0 or left <= 0:
        return None
    need = question.needs[0]
    kind = kind_of(need, needed_gb(need, question.rows))
    limit = attempt.meter()
    return Standing(
        pool=choice.pool,
        market=choice.market,
        usd_per_hour=float(attempt.usd_per_hour),
        s_per_sample=seconds / samples,
        phase=progress.phase,
        here_s=now_s - attempt.started_s,
        moves=looks.moves,
        left_usd=float(limit.limit_usd - limit.spent_usd(now_s)),
        left_s=None if limit.deadline_s is None else limit.deadline_s - now_s,
        samples_left=left,
        leave_s=EXIT_S + need.checkpoint_s + attempt.world.policy.pod_exit_s,
        delay_usd_per_hour=waiting_micro_per_hour(question.in_force, kind) / 1e6,
    )


def place_now(attempt: Attempt, at: Standing, looks: Looks) -> Elsewhere | None:
    """Where the router's own code would put what is left of the stage; None: nowhere, or where it is."""
    question = asked_now(attempt, at, looks)
    choice = decide(question).choice
    if (
        choice is None
        or (choice.pool, choice.market) == (at.pool, at.market)
        or not s_per_sample(question, choice)
    ):
        return None
    return elsewhere(question, choice)


def elsewhere(question: Question, choice: Choice) -> Elsewhere:
    """What the model expects of a place for what is left, and what finding out about it is worth."""
    pool = pool_of(question, choice.pool)
    return Elsewhere(
        pool=choice.pool,
        market=choice.market,
        usd_per_hour=float(choice.usd_per_hour),
        s_per_sample=s_per_sample(question, choice),
        start_s=pool.startup_s + choice.fixed_s * stretch(question, choice),
        worth=float(worths(question.needs[0], [pool], question.learned, question.tries_sd)[0]),
    )


def so_far(attempt: Attempt, looks: Looks) -> Receipt:
    """What it has measured by now, as the receipt of an attempt that was moved would say it."""
    (until_s, until), now, now_s = looks.until, attempt.world.clock.now(), attempt.world.clock.monotonic_s()
    began_at, until_at = (now - timedelta(seconds=now_s - each_s) for each_s in (attempt.started_s, until_s))
    return receipt_for(
        attempt.decision,
        began_at,
        until_at,
        until - attempt.progress.began,
        decision_key=attempt.decision_key,
        pod_uid=attempt.world.pod_uid,
        status="stopped",
        cause="moved",
        spent_usd=NOTHING,
        ledger_head="",
    )


def asked_now(attempt: Attempt, at: Standing, looks: Looks) -> Question:
    """The question of the attempt's decision, about what is left of its work, money and time, at the prices of now, by what was measured
    meanwhile."""
    question, world = attempt.decision.question, attempt.world
    now, need = world.clock.now(), question.needs[0]
    taught = [each for each in question.learned if each.stage != need.stage]
    return question.model_copy(
        update={
            "asked_at": now,
            "learned": (*learn([*looks.taught, so_far(attempt, looks)], [need], question.pools), *taught),
            "tries_sd": tries_sd(world.policy, need, at.moves + 1),
            "needs": (rest_of(need, attempt), *question.needs[1:]),
            "spent_usd": question.spent_usd + attempt.spent_usd() + attempt.exit_usd,
            "deadline_left_s": None
            if question.deadline_left_s is None
            else max(0.0, question.deadline_left_s - at.here_s),
            "quotes": tuple(fresh(attempt, question, quote) for quote in question.quotes),
            "stockouts": tuple(each for each in question.stockouts if each.until > now),
            "cached_outcome": None,
            "cached_later": (),
            "candidate": None,
            "preferences": question.in_force,
        }
    )


def rest_of(need: Need, attempt: Attempt) -> Need:
    """The stage without the passes that are made."""
    done, total = attempt.progress.samples, attempt.progress.total
    share = 1 - done / total if total else 1.0
    passes = max(need.passes * share, 1e-6)
    return need.model_copy(update={"passes": passes, "min_passes": min(need.min_passes, passes)})


def fresh(attempt: Attempt, question: Question, quote: Quote) -> Quote:
    """A quote at the price of now; where that is not known, as it was."""
    if quote.pool == attempt.choice.pool and quote.market == attempt.choice.market:
        return quote.model_copy(update={"usd_per_hour": attempt.usd_per_hour})
    now_usd: Decimal | None = attempt.world.prices.current_usd_per_hour(quote, pool_of(question, quote.pool))
    return quote.model_copy(update={"usd_per_hour": usd(now_usd)}) if now_usd else quote


def pool_of(question: Question, name: str) -> Pool:
    return next(pool for pool in question.pools if pool.name == name)


def stretch(question: Question, choice: Choice) -> float:
    """What receipts make of the prior's seconds, on the whole."""
    running_s = choice.est_s - pool_of(question, choice.pool).startup_s
    return running_s / choice.prior_s if choice.prior_s > 0 and running_s > 0 else 1.0


def s_per_sample(question: Question, choice: Choice) -> float:
    """What the model expects of a place, for one sample more; 0: nothing can be said."""
    return (
        stretch(question, choice) * (choice.prior_s - choice.fixed_s) / choice.samples
        if choice.samples
        else 0.0
    )


def look_key(run_id: str, hold: str) -> str:
    return f"runs/{run_id}/looks/{hold}.json"


def write_down(attempt: Attempt, looks: Looks) -> None:
    """The last look of an attempt. Raises StoreError."""
    if looks.last:
        attempt.world.store.put(look_key(attempt.run.run_id, attempt.hold), record_bytes(looks.last))
