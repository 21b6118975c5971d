"""Receipts: what an attempt really took, next to what its decision expected. Also for attempts whose pods are
lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from decimal import Decimal
from types import MappingProxyType

from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.errors import StageFailed
from shoestring.core.money import usd
from shoestring.core.pod_ref import PodRef
from shoestring.core.receipt import (
    AdaptationChange,
    Cause,
    GpuUse,
    Hardware,
    PricePoint,
    Receipt,
    ResourceUsage,
    SpendForecast,
)
from shoestring.core.record import record_bytes
from shoestring.core.types import StageOutcome
from shoestring.data.run_records import Run, RunStart, read_record
from shoestring.pricing.throughput import hardware_of
from shoestring.routing.decision import Choice, Decision
from shoestring.routing.policy.policy_trial import trial_fields
from shoestring.runtime.records.world_ledger import world_ledger
from shoestring.spending.end_evidence import EndEvidence, EndStatus
from shoestring.spending.ends import how_it_ended
from shoestring.spending.heartbeat import Heartbeat, last_heartbeat

NO_REASONS: Mapping[str, str] = MappingProxyType({})
NO_USAGE = ResourceUsage()


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptResult:
    """The fields of a receipt that only the attempt knows; its decision supplies the others.

    `samples` are those that the attempt made, which its time is compared with. For fixed work any number will
    do: all of it was done. None: the attempt's speed is unknown, so the receipt teaches nothing.
    """

    decision_key: str
    pod: PodRef | None
    status: EndStatus
    started_at: datetime
    finished_at: datetime
    spent_usd: Decimal
    ledger_head: str
    cause: Cause = ""
    reason: str = ""
    samples: int | None = None
    committed_usd: Decimal = Decimal(0)
    overrun_usd: Decimal = Decimal(0)
    fees_usd: Decimal = Decimal(0)
    prices: tuple[PricePoint, ...] = ()
    usage: ResourceUsage = NO_USAGE
    changes: tuple[AdaptationChange, ...] = ()
    forecast: SpendForecast | None = None
    outcome: StageOutcome | None = None
    exit_code: int | None = None
    cpu_s: float = 0.0
    peak_rss_bytes: int = 0
    gpu: GpuUse | None = None


def make_receipt(decision: Decision, result: AttemptResult) -> Receipt:
    """Return the receipt of an attempt at what `decision` chose.

    Raises:
        StageFailed: the decision chose nothing.
    """
    if decision.choice is None:
        raise StageFailed(f"{decision.question.attempt_id} cannot have a receipt: its decision chose nothing")
    receipt = _receipt(decision, decision.choice, result)
    return receipt.model_copy(update=trial_fields(decision)._asdict())


def _receipt(decision: Decision, choice: Choice, result: AttemptResult) -> Receipt:
    """Return the receipt without the fields of a policy trial."""
    known = {each.name: getattr(result, each.name) for each in fields(result) if each.name != "samples"}
    return Receipt(
        run_id=decision.question.run_id,
        stage=decision.question.stage,
        attempt=decision.question.attempt,
        pool=choice.pool,
        market=choice.market,
        format=choice.format,
        storage_class=choice.storage_class,
        cache_hit=choice.cached,
        budget_usd=choice.budget_usd,
        est_usd=choice.est_usd,
        p95_usd=choice.p95_usd,
        est_s=choice.est_s,
        prior_s=choice.prior_s_of(result.samples) if result.samples is not None else 0.0,
        work=decision.question.needs[0].work,
        hardware=decision_hardware(decision, choice),
        seconds=round((result.finished_at - result.started_at).total_seconds(), 3),
        **known,
    )


def decision_hardware(decision: Decision, choice: Choice) -> Hardware:
    """Return the hardware that the attempt's per-row work runs on."""
    return hardware_of(decision.question.needs[0], decision.question.pool(choice.pool))


def write_lost_receipts(
    world: World, run: Run, start: RunStart, reasons: Mapping[str, str] = NO_REASONS
) -> None:
    """Write a receipt for each attempt that was settled without its supervisor, from its last heartbeat.

    `reasons` are the ends of the pods, by reservation, where the caller knows them.

    A reservation without a decision gets no receipt: its router died before it wrote the decision, so there
    was no attempt.
    """
    state = world_ledger(world).state(start.account)
    written = set(world.store.list(store_layout.receipts(run.run_id)))
    for name, spent_usd in state.settled_usd.items():
        decision_key = store_layout.decision(run.run_id, name)
        receipt_key = store_layout.receipt(run.run_id, name)
        if receipt_key in written or not any(world.store.list(decision_key)):
            continue
        heartbeat = last_heartbeat(world.store, run.run_id, name)
        result = lost_result(
            world, heartbeat, decision_key, reasons.get(name, ""), spent_usd, state.head_hash
        )
        result = replace(result, overrun_usd=state.overruns_usd.get(name, Decimal(0)))
        lost = make_receipt(read_record(world.store, decision_key, Decision), result)
        world.store.put(receipt_key, record_bytes(lost))


def lost_result(
    world: World,
    heartbeat: Heartbeat | None,
    decision_key: str,
    reason: str,
    spent_usd: Decimal,
    ledger_head: str,
) -> AttemptResult:
    """Return the result of an attempt whose pod is lost. `heartbeat` None: the pod never started."""
    pod_reason = world.cluster.lifetime(heartbeat.pod).reason if heartbeat else ""
    end, now = how_it_ended(EndEvidence(pod_reason=pod_reason, heartbeat=heartbeat)), world.clock.now()
    result = AttemptResult(
        decision_key=decision_key,
        pod=heartbeat.pod if heartbeat else None,
        status=end.status,
        cause=end.cause,
        reason=reason or end.reason,
        spent_usd=spent_usd,
        started_at=now,
        finished_at=now,
        ledger_head=ledger_head,
    )
    if heartbeat is None:
        return result
    return replace(
        result,
        fees_usd=usd(heartbeat.fees_usd),
        prices=heartbeat.prices,
        usage=heartbeat.usage,
        gpu=heartbeat.gpu,
        changes=heartbeat.changes,
        started_at=heartbeat.started_at,
        finished_at=heartbeat.at,
    )
