"""Runs that have no records in the store, for what watches the processes and heartbeats of a run."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

from shoestring.data.run_records import Run, RunRecord, RunStart


def unadmitted_run(run_id: str = "r") -> Run:
    """Return a run with one start that may spend more than any test does. It has no account."""
    start = RunStart(
        number=1,
        account=run_id,
        budget_usd=Decimal(1000),
        started_at=datetime.now(UTC),
        deadline_at=None,
        launcher=None,
    )
    return Run(RunRecord.model_construct(run_id=run_id), (start,))
