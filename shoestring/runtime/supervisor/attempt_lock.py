"""The lock on an attempt: a reservation belongs to the first pod that writes a heartbeat for it.

An engine may create a second pod for the same decision after it lost the first.
"""

from __future__ import annotations

from decimal import Decimal

from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.attempt_id import AttemptId
from shoestring.core.errors import StageFailed
from shoestring.core.pod_ref import PodRef
from shoestring.core.record import record_bytes
from shoestring.data.run_records import open_run
from shoestring.routing.decision import Choice, Decision
from shoestring.runtime.records.overhead import overhead_timer
from shoestring.runtime.records.receipts import write_lost_receipts
from shoestring.spending.heartbeat import Heartbeat, last_heartbeat
from shoestring.spending.ledger.ledger import Ledger
from shoestring.spending.lost_pods import settle_lost_pods


def lock_attempt(world: World, decision: Decision, choice: Choice) -> None:
    """Write the attempt's first heartbeat, which names this pod, before anything else can fail.

    Raises:
        StageFailed: another pod has the attempt. If that pod is dead, it is settled, so the stage can be
            routed again.
    """
    question, now = decision.question, world.clock.now()
    heartbeat = Heartbeat(
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
    key = store_layout.heartbeat(question.run_id, question.attempt_id)
    if world.store.put(key, record_bytes(heartbeat), if_absent=True):
        return
    first = last_heartbeat(world.store, question.run_id, str(question.attempt_id))
    if first is not None and first.pod != world.pod:
        yield_to_first_pod(world, question.attempt_id, first.pod)


def yield_to_first_pod(world: World, attempt: AttemptId, first: PodRef) -> None:
    """Leave the reservation to the pod that has it, and charge this pod's time to the overhead. Raises
    StageFailed.
    """
    run, name = open_run(world.store, attempt.run_id), str(attempt)
    with overhead_timer(world, run, f"second-{attempt}"):
        if world.cluster.lifetime(first).alive:
            raise StageFailed(
                f"{attempt} is already running in the pod {first}: "
                "a reservation is for one pod, so wait until that pod ends"
            )
        ledger, account = Ledger(world.store, world.clock, str(world.pod)), run.start.account
        reserved = ledger.state(account).reservations
        if name not in reserved:
            raise StageFailed(
                f"{attempt} has no open reservation: "
                f"the pod {first} had it and is settled; route the stage again"
            )
        others = reserved.keys() - {name}
        settle_lost_pods(ledger, world.store, world.cluster, account, attempt.run_id, exclude=others)
        write_lost_receipts(world, run, run.start)
        raise StageFailed(
            f"{attempt} was lost with its pod {first}, which is settled now: "
            "route the stage again, or resume the run"
        )
