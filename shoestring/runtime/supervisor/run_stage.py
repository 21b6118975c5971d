"""Run one routed stage and keep its books: settle and write the receipt on success, error and signal alike."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal

from shoestring.config.world import World
from shoestring.core.errors import BudgetExceeded, LedgerConflict, StageFailed
from shoestring.core.types import StageOutcome
from shoestring.data.run_records import Run, open_run, read_record
from shoestring.data.storage import cache
from shoestring.routing.decision import Decision
from shoestring.runtime.admission.build_question import StageInputs, cache_key
from shoestring.runtime.records.commitments import committed_usd
from shoestring.runtime.records.egress_usage import record_egress
from shoestring.runtime.records.overhead import overhead_timer
from shoestring.runtime.records.receipt_history import write_receipt
from shoestring.runtime.records.receipts import receipt_for
from shoestring.runtime.supervisor.attempt import Attempt, pod_started_s
from shoestring.runtime.supervisor.attempt_lock import lock_attempt
from shoestring.runtime.supervisor.child import ChildResult
from shoestring.runtime.supervisor.guardrails import earlier_usage
from shoestring.runtime.supervisor.supervisor import (
    raise_unless_done,
    stop_on_signals,
    supervise,
    write_heartbeat,
)
from shoestring.spending.ledger.ledger import Ledger
from shoestring.stages.work import Origin


def run_stage(
    world: World,
    world_argument: str,
    run_id: str,
    decision_key: str,
    inputs: Mapping[str, str],
    origin: Origin | None = None,
) -> StageOutcome:
    """Do what the decision says, inside its reservation. `origin`: whose code does it, where that is not ours.

    Raises:
        StageStopped: the money, the time, a signal or a lost parent ended it; a checkpoint may be there.
        StageFailed: the stage's own code, or its process, failed; or the reservation is another pod's.
    """
    decision = read_record(world.store, decision_key, Decision)
    if decision.choice is not None and not decision.choice.cached:
        lock_attempt(world, decision, decision.choice)
    run = open_run(world.store, run_id)
    if decision.choice is not None and decision.choice.cached:
        return return_cached(world, run, decision, decision_key)
    held = (
        Ledger(world.store, world.clock, str(world.pod))
        .state(run.start.account)
        .reservations.get(str(decision.question.attempt_id))
    )
    if held is None:
        raise StageFailed(
            f"{decision_key} has no open reservation in the ledger: route the stage again, or resume the run"
        )
    attempt = Attempt(world, run, decision, decision_key, inputs, pod_started_s(world), held.amount_usd, origin)
    record_egress(world.store, decision, world.clock.now())
    attempt.usage_before = earlier_usage(world.store, run_id, attempt.stage)
    with stop_on_signals(attempt):
        ending = ChildResult(status="failed", cause="lost", why="the frame itself failed")
        try:
            ending = supervise(attempt, world_argument)
        finally:
            settle_and_record(attempt, ending)
        raise_unless_done(attempt, ending)
        if ending.outcome is None:
            raise StageFailed(f"{attempt.stage} ended as done and left no outcome")
        cache_outcome(attempt, ending.outcome)
        return ending.outcome


def cache_outcome(attempt: Attempt, outcome: StageOutcome) -> None:
    """Remember the result under what made it: this pod's code, which may be newer than its router's."""
    store, question, run, origin = attempt.world.store, attempt.decision.question, attempt.run, attempt.origin
    if origin is not None:
        origin = origin.model_copy(update={"code": cache.package_digest(origin.module)})
    reads = StageInputs(question.digests["upstream"], question.digests["also"])
    key, made_from = cache_key(
        store, run.record.recipe, question.seed, run.run_id, question.stage, reads, origin
    )
    cache.save_outcome(store, key, outcome, made_from)


def return_cached(world: World, run: Run, decision: Decision, decision_key: str) -> StageOutcome:
    """A cached result costs nothing but this pod's own moment, which goes on the overhead line."""
    stage = decision.question.stage
    with overhead_timer(world, run, f"cached-{stage}"):
        outcome = cache.find_outcome(world.store, str(decision.question.cached_outcome))
        if outcome is None:
            raise StageFailed(
                f"the cached result of {stage} was damaged after it was routed: a resumed run makes it again"
            )
        attempt = Attempt(world, run, decision, decision_key, {}, pod_started_s(world), Decimal(0))
        write_attempt_receipt(attempt, ChildResult(status="done", outcome=outcome), Decimal(0))
        return outcome


def settle_and_record(attempt: Attempt, ending: ChildResult) -> None:
    """Settle by this pod's own clock, its end foreseen, write the receipt, beat a last time."""
    ledger = Ledger(attempt.world.store, attempt.world.clock, str(attempt.world.pod))
    spent_usd, short = settle_attempt(attempt, ledger, ending.why, done=ending.status == "done")
    ending = ending.model_copy(update={"why": f"{ending.why}; {short}".lstrip("; ")}) if short else ending
    if ending.outcome is not None:
        done = ending.outcome.samples or ending.outcome.rows
        attempt.progress = attempt.progress.model_copy(
            update={"phase": ending.status, "samples": done, "total": None}
        )
    write_attempt_receipt(attempt, ending, spent_usd)
    write_heartbeat(attempt, ending.status)


def settle_attempt(attempt: Attempt, ledger: Ledger, why: str, *, done: bool) -> tuple[Decimal, str]:
    """Turn the reservation into what this pod took by its own clock, and what moving and holding its data costs. What then stands in the
    books, and a sentence where that is less."""
    ends_s = attempt.world.clock.monotonic_s() + attempt.world.policy.pod_exit_s
    took_usd = attempt.meter().spent_usd(ends_s)
    attempt.committed_usd = committed_usd(
        attempt.world.store, attempt.decision, attempt.world.pod, took_usd, ends_s - attempt.started_s
    )
    cost_usd = max(Decimal(0), took_usd - attempt.committed_usd) + attempt.choice.incurred_usd(done=done)
    spent_usd, account = min(cost_usd, attempt.reserved_usd), attempt.run.start.account
    try:
        ledger.settle(account, str(attempt.id), spent_usd, why)
        if cost_usd > spent_usd:
            # Polling is not instant: what leaving took beyond its price is on the books too, as far as the cap lets it.
            ledger.adjust(
                account,
                str(attempt.id),
                cost_usd - spent_usd,
                "leaving took longer than was kept back for it",
                id=str(attempt.id),
            )
        return cost_usd, ""
    except BudgetExceeded as error:
        return spent_usd, f"it cost ${cost_usd}, and {error}"
    except LedgerConflict:
        # A sweeper took this pod for dead and settled it: what stands in the ledger is what was paid.
        return ledger.state(account).settled_usd[str(attempt.id)], ""


def write_attempt_receipt(attempt: Attempt, ending: ChildResult, spent_usd: Decimal) -> None:
    world, now = attempt.world, attempt.world.clock.now()
    receipt = receipt_for(
        attempt.decision,
        decision_key=attempt.decision_key,
        pod=world.pod,
        status=ending.status,
        cause=ending.cause,
        why=ending.why,
        spent_usd=spent_usd,
        committed_usd=attempt.committed_usd,
        fees_usd=attempt.choice.incurred_usd(done=ending.status == "done"),
        samples=attempt_samples(attempt, ending),
        prices=attempt.prices(),
        started_at=now - timedelta(seconds=world.clock.monotonic_s() - attempt.started_s),
        finished_at=now,
        ledger_head=Ledger(world.store, world.clock, str(world.pod))
        .state(attempt.run.start.account)
        .head_hash,
        used=attempt.usage,
        changes=attempt.changes,
        forecast=attempt.progress.forecast,
        outcome=ending.outcome,
        cpu_s=round(attempt.cpu_s, 3),
        peak_rss_bytes=attempt.peak_rss_bytes,
        gpu_busy=attempt.gpu_usage.busy,
        peak_gpu_memory_bytes=attempt.gpu_usage.peak_memory_bytes,
    )
    write_receipt(world.store, str(attempt.id), receipt)


def attempt_samples(attempt: Attempt, ending: ChildResult) -> int | None:
    """Samples of this attempt alone, when it did its work or was moved: its time tells its pace. None: it does not."""
    if ending.outcome is None and ending.cause != "migrated":
        return None
    made = (ending.outcome.samples if ending.outcome else attempt.progress.samples) - attempt.progress.began
    return made if made > 0 or not attempt.decision.question.needs[0].elastic else None
