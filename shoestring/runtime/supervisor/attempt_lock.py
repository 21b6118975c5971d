"""One reservation is for one pod: the first to say that it is there. An engine may make a lost pod again, on the same decision."""

from __future__ import annotations

from decimal import Decimal

from shoestring.config.world import World
from shoestring.core.errors import StageFailed
from shoestring.core.pod_ref import PodRef
from shoestring.core.record import record_bytes
from shoestring.data.run_records import open_run
from shoestring.routing.decision import Choice, Decision
from shoestring.runtime.records.overhead import overhead_timer
from shoestring.runtime.records.receipts import write_lost_receipts
from shoestring.spending.heartbeat import Heartbeat, heartbeat_key, last_heartbeat
from shoestring.spending.ledger.ledger import Ledger
from shoestring.spending.lost_pods import settle_lost_pods


def lock_attempt(world: World, decision: Decision, choice: Choice) -> None:
    """Say whose pod this attempt is, before anything can go wrong that would leave its pod unknown to the books.

    Raises:
        StageFailed: another pod was there before; what it took is settled, if it is dead, so that the stage can be routed again.
    """
    question, now = decision.question, world.clock.now()
    beat = Heartbeat(
        run_id=question.run_id,
        stage=question.stage,
        attempt=question.attempt,
        pod=world.pod,
        state="starting",
        usd_per_hour=choice.usd_per_hour,
        started_at=now,
        at=now,
        interval_s=world.policy.heartbeat_s,
        spent_usd=Decimal(0),
    )
    if world.store.put(heartbeat_key(question.run_id, str(question.attempt_id)), record_bytes(beat), if_absent=True):
        return
    first = last_heartbeat(world.store, question.run_id, str(question.attempt_id))
    if first is not None and first.pod != world.pod:
        yield_to_first_pod(world, question.run_id, str(question.attempt_id), first.pod)


def yield_to_first_pod(world: World, run_id: str, hold: str, first: PodRef) -> None:
    """Leave the reservation to the pod that has it; this pod's own moment goes on the overhead line. Raises StageFailed."""
    run = open_run(world.store, run_id)
    with overhead_timer(world, run, f"second-{hold}"):
        if world.cluster.lifetime(first).alive:
            raise StageFailed(
                f"{hold} is being done by the pod {first}, and one reservation is for one pod: let that end"
            )
        ledger, account = Ledger(world.store, world.clock, str(world.pod)), run.start.account
        holds = ledger.state(account).reservations
        if hold not in holds:
            raise StageFailed(
                f"{hold} has no open reservation: the pod {first} had it, and it is settled; route the stage again"
            )
        others = holds.keys() - {hold}
        settle_lost_pods(ledger, world.store, world.cluster, account, run_id, exclude=others)
        write_lost_receipts(world, run, run.start)
        raise StageFailed(
            f"{hold} was lost with its pod {first}, and what that took is settled: route the stage again, or resume the run"
        )
