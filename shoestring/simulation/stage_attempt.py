"""A stage's pod: what it would really take, what its frame does about its money meanwhile, and the ways in which it ends."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

from shoestring.core.errors import StageFailed, StoreError
from shoestring.core.receipt import Cause
from shoestring.core.types import StockOut, record_bytes
from shoestring.routing.decision import Choice, Decision
from shoestring.routing.offers.factors import sample_range
from shoestring.runtime.records.receipts import receipt_for
from shoestring.runtime.supervisor.attempt import Attempt, began_s
from shoestring.runtime.supervisor.attempt_lock import claim
from shoestring.runtime.supervisor.background_io import ANSWER_S
from shoestring.runtime.supervisor.run_stage import settle
from shoestring.runtime.supervisor.spend_limits import reprice
from shoestring.runtime.supervisor.supervisor import (
    ASK_AHEAD_S,
    ASK_AHEAD_SHARE,
    GRACE_S,
    LOOK_S,
    POLL_S,
    beat_of,
    extend_or_stop,
)
from shoestring.simulation.event_loop import Died, Steps
from shoestring.simulation.simulated_world import Course, Place, StagePod
from shoestring.spending.guard import SLOWEST_TIMES
from shoestring.spending.heartbeat import heartbeat_key

# Of an elastic stage.
STEP_S = 0.2


@dataclass(frozen=True, slots=True)
class Ended:
    """How an attempt ended. `cause`: why it was not done; empty when it was."""

    done: bool
    cause: Cause = ""


class AtOnce:
    """A clerk who is answered in no time."""

    def __init__(self) -> None:
        self._asked: Callable[[], Decimal] | None = None

    def ask(self, request: Callable[[], Decimal]) -> None:
        self._asked = request

    def answer(self, within_s: float) -> Decimal | None:
        asked, self._asked = self._asked, None
        return asked() if asked else None


def run_stage(place: Place, course: Course, decision: Decision) -> Steps[Ended]:
    """From the pod's scheduling to its end."""
    choice = decision.choice
    assert choice is not None
    loop, hold, scheduled_s = place.loop, decision.question.hold, place.loop.now_s
    if not place.market.can_be_had(choice.pool, choice.market, scheduled_s):
        return (yield from wait_in_vain(place, course, decision, choice))
    place.pods += 1
    pod_uid = f"{course.account}.{hold}.{place.pods}"
    course.pods[course.account, hold] = StagePod(choice, pod_uid)
    place.cluster.pods[pod_uid] = scheduled_s, None
    try:
        return (yield from live(place, course, decision, choice, pod_uid))
    finally:
        place.cluster.pods[pod_uid] = scheduled_s, loop.now_s
        course.fate.billed_usd += place.market.bill_usd(choice.pool, choice.market, scheduled_s, loop.now_s)
        course.fate.billed_usd += course.pods[course.account, hold].fees_usd
        course.fate.attempts += 1


def wait_in_vain(place: Place, course: Course, decision: Decision, choice: Choice) -> Steps[Ended]:
    """No machine is to be had: the sweeper gives the pod up, and that is remembered."""
    rules, hold = place.scenario.rules, decision.question.hold
    yield place.loop.now_s + rules.queue_delay_s
    now = place.world().clock.now()
    until, why = now + timedelta(seconds=rules.stockout_ttl_s), "no machine was to be had"
    place.stockouts.append(
        StockOut(node_pool=choice.pool, market=choice.market, at=now, until=until, reason=why)
    )
    place.loop.ledger.settle(course.account, hold, Decimal(0), why)
    return Ended(False, "lost")


def live(place: Place, course: Course, decision: Decision, choice: Choice, pod_uid: str) -> Steps[Ended]:
    loop, world = place.loop, place.world(pod_uid)
    begins_s = loop.now_s + place.pools[choice.pool].startup_s
    taken_s = place.market.taken_s(place.pools[choice.pool], choice.market, loop.now_s, place.dice)
    dies_s = min(taken_s, place.lost_s())
    yield min(begins_s, dies_s)
    if loop.now_s >= dies_s:
        course.fate.preempted += 1
        return Ended(False, "lost")
    claim(world, decision, choice)
    held = loop.ledger.state(course.account).holds.get(decision.question.hold)
    if held is None:
        raise StageFailed("its reservation was settled before it began")
    attempt, done = Attempt(world, course.run, decision, "", {}, began_s(world), held.amount_usd), False
    try:
        ended = yield from work(place, course, attempt, dies_s, notice=taken_s <= dies_s and place.noticed())
        done = ended.done
        return ended
    except (Died, StoreError):
        last_word(place, attempt)
        raise
    finally:
        course.pods[course.account, attempt.hold] = StagePod(
            choice, pod_uid, attempt.prices(), choice.incurred_usd(done=done)
        )


def work(place: Place, course: Course, attempt: Attempt, dies_s: float, notice: bool) -> Steps[Ended]:
    """Until it is done, is stopped, fails, or is gone; looked at when its money asks for it."""
    loop, begun_s, clerk = place.loop, place.loop.now_s, AtOnce()
    most = samples_left(course, attempt)
    full_s = place.true_s(course.wanted, attempt.stage, attempt.choice, most)
    fails_s = place.fails_s(begun_s, begun_s + full_s)
    while True:
        ends_s, moves_s = (
            max(begun_s, min(begun_s + full_s, guarded_s(attempt))),
            place.market.moves_s(attempt.choice.market, loop.now_s),
        )
        yield max(loop.now_s, min(ends_s, dies_s, fails_s, look_s(attempt), moves_s + LOOK_S))
        done = most if full_s <= 0 else min(most, int(most * (loop.now_s - begun_s) / full_s))
        if loop.now_s >= min(dies_s, ends_s, fails_s):
            break
        if loop.now_s >= moves_s:
            reprice(attempt)
        extend_or_stop(attempt, loop.ledger, clerk)
        if attempt.stopping:
            return (yield from leave(place, course, attempt, done))
    if loop.now_s >= dies_s:
        course.fate.preempted += 1
        if notice:
            attempt.stop("told to stop by SIGTERM")
            return (yield from leave(place, course, attempt, done))
        last_word(place, attempt)
        course.samples += done if attempt.decision.question.needs[0].checkpoint_s else 0
        return Ended(False, "lost")
    done_in_time = loop.now_s >= ends_s
    spent_usd, _ = settle(
        attempt, loop.ledger, "" if done_in_time else "its own code failed", done=done_in_time
    )
    if not done_in_time:
        return Ended(False, "code")
    finish(place, course, attempt, most if full_s <= ends_s - begun_s else done, spent_usd)
    return Ended(True)


def samples_left(course: Course, attempt: Attempt) -> int:
    """What a stage of fixed work has to do; an elastic one until it stops gaining, less what it did before it was interrupted."""
    need = attempt.decision.question.needs[0]
    if not need.elastic:
        return attempt.choice.samples
    _, most = sample_range(need, course.wanted.rows)
    return max(0, int(most * min(1.0, course.wanted.stalls_at)) - course.samples)


def guarded_s(attempt: Attempt) -> float:
    """When the guard lets an elastic stage take its last step, should the price stay."""
    need = attempt.decision.question.needs[0]
    return (
        attempt.meter().ends_s - SLOWEST_TIMES * STEP_S - need.checkpoint_s - ANSWER_S - POLL_S
        if need.elastic
        else math.inf
    )


def look_s(attempt: Attempt) -> float:
    """When its frame next has to do something about money; it looks each tenth of a second, and nothing happens in between."""
    free_usd = attempt.reserved_usd - attempt.exit_usd - attempt.price_usd(ANSWER_S)
    if attempt.asked_at_usd != attempt.reserved_usd and not attempt.decision.question.needs[0].elastic:
        free_usd -= min(attempt.price_usd(ASK_AHEAD_S), attempt.reserved_usd * ASK_AHEAD_SHARE)
    price, now_s = float(attempt.usd_per_hour) / 3600, attempt.world.clock.monotonic_s()
    return now_s + POLL_S + (max(0.0, float(free_usd - attempt.spent_usd()) / price) if price else math.inf)


def leave(place: Place, course: Course, attempt: Attempt, done: int) -> Steps[Ended]:
    """TERM, a grace, and KILL when that or the money is over; then the books."""
    left_usd = attempt.reserved_usd - attempt.spent_usd()
    affordable_s = float(left_usd) * 3600 / max(1e-9, float(attempt.usd_per_hour))
    yield place.loop.now_s + max(0.0, min(place.dice.uniform(0.0, GRACE_S), affordable_s))
    settle(attempt, place.loop.ledger, attempt.stopping, done=False)
    course.samples += done if attempt.decision.question.needs[0].checkpoint_s else 0
    return Ended(False, attempt.cause)


def last_word(place: Place, attempt: Attempt) -> None:
    """The heartbeat of some moment before this, after which nothing was heard."""
    interval_s = place.scenario.rules.heartbeat_s
    beat = beat_of(attempt, "running")
    silent_s = min(place.dice.uniform(0, interval_s), (beat.at - beat.started_at).total_seconds())
    beat = beat.model_copy(update={"at": beat.at - timedelta(seconds=silent_s)})
    place.store.put(heartbeat_key(attempt.run.run_id, attempt.hold), record_bytes(beat))


def finish(place: Place, course: Course, attempt: Attempt, samples: int, spent_usd: Decimal) -> None:
    """Its receipt teaches; what it wrote is what the next stage reads."""
    choice, need, world = attempt.choice, attempt.decision.question.needs[0], attempt.world
    now = world.clock.now()
    course.samples = 0
    if need.writes_bytes_per_row:
        course.upstream = choice
    place.remember(
        receipt_for(
            attempt.decision,
            now - timedelta(seconds=world.clock.monotonic_s() - attempt.started_s),
            now,
            samples,
            decision_key="",
            pod_uid=world.pod_uid,
            status="done",
            spent_usd=spent_usd,
            fees_usd=choice.fees_usd,
            prices=attempt.prices(),
            ledger_head="",
        )
    )
    if not need.elastic:
        place.tally.finished += 1
        place.tally.covered += spent_usd <= choice.p95_usd
