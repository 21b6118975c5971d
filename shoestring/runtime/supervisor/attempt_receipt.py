"""The receipt of an attempt, by its supervisor."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

from shoestring.runtime.records.receipt_history import write_receipt
from shoestring.runtime.records.receipts import AttemptResult, make_receipt
from shoestring.runtime.records.world_ledger import world_ledger
from shoestring.runtime.supervisor.attempt import Attempt
from shoestring.runtime.supervisor.child import ChildResult


def write_attempt_receipt(attempt: Attempt, result: ChildResult, spent_usd: Decimal) -> None:
    """Write the attempt's receipt, and a copy for the performance model.

    Once the account is closed, the ledger holds the digests of the run's receipts, and none is written.
    """
    world, now = attempt.world, attempt.world.clock.now()
    state = world_ledger(world).state(attempt.run.start.account)
    if state.closed:
        return
    receipt = make_receipt(
        attempt.decision,
        AttemptResult(
            decision_key=attempt.decision_key,
            pod=world.pod,
            status=result.status,
            cause=result.cause,
            reason=result.reason,
            spent_usd=spent_usd,
            committed_usd=attempt.committed_usd,
            overrun_usd=attempt.overrun_usd,
            fees_usd=attempt.choice.incurred_usd(done=result.status == "done"),
            samples=attempt_samples(attempt, result),
            prices=attempt.prices(),
            started_at=now - timedelta(seconds=world.clock.monotonic_s() - attempt.started_s),
            finished_at=now,
            ledger_head=state.head_hash,
            usage=attempt.usage,
            changes=attempt.changes,
            forecast=attempt.progress.forecast,
            outcome=attempt.published or result.outcome,
            exit_code=result.exit_code,
            cpu_s=round(attempt.cpu_s, 3),
            peak_rss_bytes=attempt.peak_rss_bytes,
            gpu=attempt.gpu_usage.use,
        ),
    )
    write_receipt(world.store, receipt)


def attempt_samples(attempt: Attempt, result: ChildResult) -> int | None:
    """Return the samples of this attempt alone; None where its speed cannot be measured.

    The speed of an attempt is measured if it completed its work or migrated; that of a command never is.
    """
    if (result.outcome is None and result.cause != "migrated") or attempt.command:
        return None
    samples = result.outcome.samples if result.outcome else attempt.progress.samples
    own_samples = samples - attempt.progress.resumed_samples
    return own_samples if own_samples > 0 or not attempt.elastic else None
