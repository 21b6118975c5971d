"""What one attempt really took, beside what its decision expected; also of one whose pod could not say it any more."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from shoestring.config.world import World
from shoestring.core.errors import StageFailed
from shoestring.core.money import usd
from shoestring.core.receipt import Receipt, ResourceUsage
from shoestring.core.record import record_bytes
from shoestring.data.run_records import Run, RunStart, read_record
from shoestring.pricing.throughput import hardware_of
from shoestring.routing.decision import Decision
from shoestring.routing.policy.policy_trial import trial_fields
from shoestring.spending.heartbeat import last_heartbeat
from shoestring.spending.ledger.ledger import Ledger

# What Kubernetes says of a container that was killed for taking more memory than its limit.
OUT_OF_MEMORY = "OOMKilled"


def decision_key(run_id: str, hold: str) -> str:
    return f"runs/{run_id}/decisions/{hold}.json"


def receipt_key(run_id: str, hold: str) -> str:
    return f"runs/{run_id}/receipts/{hold}.json"


def receipt_for(
    decision: Decision, started_at: datetime, finished_at: datetime, samples: int | None = None, **took: Any
) -> Receipt:
    """The receipt of an attempt at what `decision` chose. `samples`: that it made, which its time is held against (of fixed work any
    number: it was all done); None: nothing is known of its pace. `took`: the fields of Receipt that only the attempt knows.

    Raises:
        StageFailed: the decision chose nothing.
    """
    question, choice = decision.question, decision.choice
    if choice is None:
        raise StageFailed(
            f"attempt {question.attempt} at {question.stage} was given no place, so there is nothing to receipt"
        )
    return Receipt(
        run_id=question.run_id,
        stage=question.stage,
        attempt=question.attempt,
        pool=choice.pool,
        work=question.needs[0].work,
        hardware=next(
            (hardware_of(question.needs[0], pool) for pool in question.pools if pool.name == choice.pool),
            None,
        ),
        market=choice.market,
        format=choice.format,
        storage_class=choice.storage_class,
        cache_hit=choice.cached,
        budget_usd=choice.budget_usd,
        est_usd=choice.est_usd,
        p95_usd=choice.p95_usd,
        est_s=choice.est_s,
        prior_s=choice.prior_s_of(samples) if samples is not None else 0.0,
        started_at=started_at,
        finished_at=finished_at,
        seconds=round((finished_at - started_at).total_seconds(), 3),
        **trial_fields(decision),
        **took,
    )


NOTHING_KNOWN: Mapping[str, str] = {}


def write_lost_receipts(
    world: World, run: Run, start: RunStart, known: Mapping[str, str] = NOTHING_KNOWN
) -> None:
    """An attempt that was settled without its frame gets a receipt all the same, from its last heartbeat. `known`: holds, and what became
    of their pods, where the one who settled them knows that.

    Without a decision there was no attempt: its router died between the reservation and writing it down.
    """
    state = Ledger(world.store, world.clock, str(world.pod)).state(start.account)
    for hold, spent_usd in state.settled_usd.items():
        key = decision_key(run.run_id, hold)
        if any(world.store.list(receipt_key(run.run_id, hold))) or not any(world.store.list(key)):
            continue
        beat = last_heartbeat(world.store, run.run_id, hold)
        said = world.cluster.lifetime(beat.pod).reason if beat else ""
        gone = "its pod was gone without a word" + (f": {said}" if said else "")
        began = beat.started_at if beat else world.clock.now()
        lost = receipt_for(
            read_record(world.store, key, Decision),
            decision_key=key,
            pod=beat.pod if beat else None,
            status="lost",
            cause="memory" if said == OUT_OF_MEMORY else "lost",
            why=known.get(hold) or (gone if beat else "its pod never began"),
            spent_usd=spent_usd,
            fees_usd=beat.fees_usd if beat else usd(0),
            prices=beat.prices if beat else (),
            used=beat.usage if beat else ResourceUsage(),
            changes=beat.changes if beat else (),
            started_at=began,
            finished_at=beat.at if beat else began,
            ledger_head=state.head_hash,
        )
        world.store.put(receipt_key(run.run_id, hold), record_bytes(lost))
