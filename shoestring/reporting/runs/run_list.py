"""The runs of a store, newest first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

from pydantic import AwareDatetime, Field

from shoestring.core import store_layout
from shoestring.core.errors import DataError, NotInStore
from shoestring.core.interfaces import PARALLEL_READS, Store
from shoestring.core.money import Usd
from shoestring.core.record import Record
from shoestring.data.run_records import RunRecord, read_record, read_records
from shoestring.reporting.run_reader import read_run_story
from shoestring.reporting.run_story import RunStatus
from shoestring.reporting.summary import RunSummary, summarise_run


class RunOverview(Record):
    """A run in one line. Money in dollars, time in seconds."""

    run_id: str
    recipe: str
    requested_at: AwareDatetime
    status: RunStatus
    budget_usd: Usd
    spent_usd: Usd
    wall_s: float
    starts: int
    reason: str = Field(description="why it was refused, failed or stopped; else empty")
    quality: dict[str, float]


def list_runs(
    store: Store,
    recipe: str | None = None,
    status: RunStatus | None = None,
    since: datetime | None = None,
) -> tuple[tuple[RunOverview, ...], tuple[str, ...]]:
    """Return the runs of a store, newest first, and notes on records that could not be read.

    Args:
        recipe: only runs of the recipe of this name.
        status: only runs with this status.
        since: only runs that were requested at this time or later.
    """
    keys: dict[str, set[str]] = {}
    for key in store.list(store_layout.RUNS):
        keys.setdefault(key.split("/")[1], set()).add(key)
    requests = [key for run_id in keys if (key := store_layout.run_record(run_id)) in keys[run_id]]
    records, notes = read_records(store, requests, RunRecord)
    wanted = [
        record
        for record in records
        if recipe in (None, record.recipe.name) and (since is None or record.created_at >= since)
    ]

    def overview(record: RunRecord) -> RunOverview | str:
        try:
            summary = current_summary(store, record.run_id, keys[record.run_id])
        except DataError as error:
            return str(error)
        return run_overview(record, summary)

    with ThreadPoolExecutor(PARALLEL_READS) as readers:
        found = list(readers.map(overview, wanted))
    runs = [each for each in found if isinstance(each, RunOverview) and status in (None, each.status)]
    unread = tuple(each for each in found if isinstance(each, str))
    return tuple(sorted(runs, key=lambda each: each.requested_at, reverse=True)), notes + unread


def current_summary(store: Store, run_id: str, keys: Iterable[str]) -> RunSummary:
    """Return the summary of a run as it is now. The stored one counts unless the run goes on since.

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


def run_overview(record: RunRecord, summary: RunSummary) -> RunOverview:
    return RunOverview(
        recipe=record.recipe.name,
        requested_at=record.created_at,
        **{name: getattr(summary, name) for name in SUMMARY_FIELDS},
    )


SUMMARY_FIELDS: Sequence[str] = sorted(RunOverview.model_fields.keys() & RunSummary.model_fields.keys())
