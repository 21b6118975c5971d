"""Which runs keep their data: those that run, that wrote a record lately, or that a window of the policy
holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta

from shoestring.config.retention import RetentionPolicy
from shoestring.core import store_layout
from shoestring.core.errors import DataError, LedgerCorrupt, NotInStore
from shoestring.core.interfaces import PARALLEL_READS, ListedObject, Store
from shoestring.data.run_records import RunRecord, RunStart, read_record
from shoestring.spending.ledger.chain import AccountChain


@dataclass(frozen=True, slots=True)
class RunUse:
    """A run as clean-up sees it. Times are the store's.

    `name`: of its recipe or command; empty if its record cannot be read; such a run keeps its data.
    `model`: the run whose model it predicts with; empty: it predicts no new rows.
    """

    run_id: str
    name: str
    model: str
    first_written: datetime
    last_written: datetime


@dataclass(frozen=True, slots=True)
class RunWindows:
    """The runs that keep their data, those that do not, and since when all objects are kept."""

    kept: frozenset[str]
    expired: tuple[RunUse, ...]
    keep_since: datetime


def run_of_key(key: str) -> str:
    return key.split("/")[1]


def apply_windows(
    store: Store, objects: Mapping[str, ListedObject], retention: RetentionPolicy, now: datetime
) -> RunWindows:
    """Return which runs keep their data at `now`, by the store's clock."""
    runs = list_runs_of(store, objects)
    outside = set() if retention.keeps_all else outside_windows(runs, retention, now)
    active_since = now - retention.grace
    checked = [run for run in runs if run.run_id in outside or run.last_written >= active_since]
    with ThreadPoolExecutor(PARALLEL_READS) as readers:
        running = {
            run.run_id
            for run, is_running in zip(
                checked, readers.map(lambda run: is_open(store, run), checked), strict=True
            )
            if is_running
        }
    # What a running stage writes is named by no record before the stage ends.
    begun = [run.first_written for run in runs if run.run_id in running and run.last_written >= active_since]
    expired = tuple(run for run in runs if run.run_id in outside - running)
    return RunWindows(
        kept=frozenset(run.run_id for run in runs) - {run.run_id for run in expired},
        expired=expired,
        keep_since=min([active_since, *begun]),
    )


def list_runs_of(store: Store, objects: Mapping[str, ListedObject]) -> list[RunUse]:
    """Return the runs that have a start, oldest first."""
    written: dict[str, list[datetime]] = {}
    for key, found in objects.items():
        # A report is made again whenever somebody wants to read it.
        if key.startswith(store_layout.RUNS) and not key.endswith(("/report.html", "/summary.json")):
            written.setdefault(run_of_key(key), []).append(found.modified_at)
    started = {run_of_key(key) for key in objects if key.startswith(store_layout.RUNS) and "/starts/" in key}

    def read(run_id: str) -> RunUse:
        try:
            record = read_record(store, store_layout.run_record(run_id), RunRecord)
            name, model = record.job.name, record.recipe.model if record.recipe else ""
        except (DataError, NotInStore):
            name = model = ""
        return RunUse(run_id, name, model, min(written[run_id]), max(written[run_id]))

    with ThreadPoolExecutor(PARALLEL_READS) as readers:
        return sorted(readers.map(read, sorted(started)), key=lambda run: (run.last_written, run.run_id))


def outside_windows(runs: Iterable[RunUse], retention: RetentionPolicy, now: datetime) -> set[str]:
    """Return the runs that no window holds; `runs` are in order, the oldest first.

    Predictions of new rows are windows of their own: many of them do not push the training out whose model
    they use. A run inside a window holds that training, too.
    """
    days = timedelta(days=retention.keep_days) if retention.keep_days is not None else timedelta(0)
    since = now - max(days, retention.grace)
    of_name: dict[tuple[str, bool], list[RunUse]] = {}
    known = [*runs]
    for run in known:
        of_name.setdefault((run.name, bool(run.model)), []).append(run)
    outside = set()
    for (name, _), found in of_name.items():
        older = found[: -retention.keep_runs] if retention.keep_runs is not None else found
        outside |= {run.run_id for run in older if name and run.last_written < since}
    return outside - {run.model for run in known if run.run_id not in outside}


def is_open(store: Store, run: RunUse) -> bool:
    """Return whether a start of a run is not closed, or cannot be read."""
    try:
        starts = [read_record(store, key, RunStart) for key in store.list(store_layout.starts(run.run_id))]
        chains = [AccountChain(store, start.account) for start in starts]
    except (DataError, NotInStore, LedgerCorrupt):
        return True
    return any(chain.entries and not chain.account.closed for chain in chains)
