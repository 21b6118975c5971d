"""The runs of a store, newest first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Literal

from pydantic import AwareDatetime, Field

from shoestring.core import store_layout
from shoestring.core.errors import DataError, NotInStore
from shoestring.core.interfaces import PARALLEL_READS, Cluster, Store
from shoestring.core.money import Usd
from shoestring.core.record import Record
from shoestring.data.run_records import Run, RunRecord, open_run, read_record, read_records
from shoestring.reporting.run_reader import read_run_story
from shoestring.reporting.run_story import RunStatus
from shoestring.reporting.summary import RunSummary, summarise_run

ListedStatus = Literal[RunStatus, "interrupted"]
"""Of a run in a list. Interrupted: its account is open, and the process that launched it has ended."""


class RunOverview(Record):
    """A run in one line. Money in dollars, time in seconds."""

    run_id: str
    name: str = Field(description="of its recipe or of its command")
    command: str = Field(description="the command; empty: it ran a recipe")
    requested_at: AwareDatetime
    status: ListedStatus
    budget_usd: Usd
    spent_usd: Usd
    wall_s: float
    starts: int
    reason: str = Field(description="why it was refused, failed, stopped or interrupted; else empty")
    quality: dict[str, float]


def list_runs(
    store: Store,
    cluster: Cluster,
    name: str | None = None,
    status: ListedStatus | None = None,
    since: datetime | None = None,
) -> tuple[tuple[RunOverview, ...], tuple[str, ...]]:
    """Return the runs of a store, newest first, and notes on records that could not be read.

    Args:
        cluster: knows which launchers have ended.
        name: only runs of the recipe or command of this name.
        status: only runs with this status.
        since: only runs that were requested at this time or later.
    """
    keys: dict[str, set[str]] = {}
    for key in store.list(store_layout.RUNS):
        keys.setdefault(key.split("/")[1], set()).add(key)
    requests = [key for run_id in keys if (key := store_layout.run_record(run_id)) in keys[run_id]]
    records, notes = read_records(store, requests, RunRecord)
    wanted = [each for each in records if name in (None, each.job.name)]
    wanted = [each for each in wanted if since is None or each.created_at >= since]

    def overview(record: RunRecord) -> RunOverview | str:
        try:
            summary = current_summary(store, record.run_id, keys[record.run_id])
        except DataError as error:
            return str(error)
        is_running = summary.status == "running"
        if is_running or (record.command and summary.starts > 1):
            run = open_run(store, record.run_id)
            return run_overview(run.record, summary, is_gone=is_running and launcher_is_gone(cluster, run))
        return run_overview(record, summary, is_gone=False)

    with ThreadPoolExecutor(PARALLEL_READS) as readers:
        found = list(readers.map(overview, wanted))
    runs = [each for each in found if isinstance(each, RunOverview) and status in (None, each.status)]
    unread = tuple(each for each in found if isinstance(each, str))
    return tuple(sorted(runs, key=lambda each: each.requested_at, reverse=True)), notes + unread


def current_summary(store: Store, run_id: str, keys: Iterable[str]) -> RunSummary:
    """Return the summary of a run as it is now. The stored one counts unless the run was started again.

    Raises:
        DataError: a record of the run is not readable.
    """
    starts = sum(key.startswith(store_layout.starts(run_id)) for key in keys)
    try:
        stored = read_record(store, store_layout.summary(run_id), RunSummary)
    except NotInStore:
        stored = None
    if stored and stored.status != "running" and stored.starts == starts:
        return stored
    return summarise_run(read_run_story(store, run_id))


def launcher_is_gone(cluster: Cluster, run: Run) -> bool:
    """Return whether the process that launched a run has ended. One of another machine counts as alive."""
    launcher = run.start.launcher if run.starts else None
    return launcher is not None and not cluster.lifetime(launcher).alive


def interrupted_reason(record: RunRecord) -> str:
    """Return why a run is interrupted, and what to do."""
    return f"the process that launched it has ended: resume it with `{record.resume_text}`"


def run_overview(record: RunRecord, summary: RunSummary, *, is_gone: bool) -> RunOverview:
    """Return a run in one line. `is_gone`: it is running, and its launcher has ended."""
    found = RunOverview(
        name=record.job.name,
        command=record.command.text if record.command else "",
        requested_at=record.created_at,
        **{name: getattr(summary, name) for name in SUMMARY_FIELDS},
    )
    changed = {"status": "interrupted", "reason": interrupted_reason(record)}
    return found.model_copy(update=changed) if is_gone else found


SUMMARY_FIELDS: Sequence[str] = sorted(RunOverview.model_fields.keys() & RunSummary.model_fields.keys())
