"""The records of a run that are written before anything starts: its request, its starts, its engine's id for
it.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

from shoestring.config.engines import EngineTimes
from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.errors import Refused, UsageError
from shoestring.core.interfaces import Store
from shoestring.core.pod_ref import WORKFLOW_VARIABLE, ClusterPod, PodRef
from shoestring.core.record import StoredRecord, digest, record_bytes
from shoestring.core.types import Need
from shoestring.data.job import Command, Job, Task
from shoestring.data.run_records import Run, RunRecord, RunStart, read_record
from shoestring.runtime.records.overhead import EXIT_STEP, overhead_prices, overhead_times
from shoestring.runtime.records.store_version import check_store_version
from shoestring.runtime.records.world_ledger import world_ledger

VERSIONED_PACKAGES = ("shoestring", "kfp", "numpy", "pyarrow", "pydantic", "scikit-learn", "torch")

# Without a dot, which separates the number of a later start's account; and not the name of a month's account.
RUN_ID = re.compile(r"(?!\d{4}-\d{2}$)[A-Za-z0-9][A-Za-z0-9_-]{0,99}")


class EngineJob(StoredRecord):
    """The run that an engine knows under an id of its own."""

    run_id: str


def check_run_id(run_id: str) -> None:
    """Raise UsageError if `run_id` could be mistaken for another account's name."""
    if not RUN_ID.fullmatch(run_id):
        raise UsageError(
            f"{run_id!r} is not a valid run id: use at most 100 letters, digits, '_' and '-', and begin with "
            "a letter or a digit; a month like 2026-11 is not valid, since it names that month's account"
        )


def write_run_record(world: World, run_id: str, job: Job, task: Task) -> RunRecord:
    """Write what was requested, and return it. If the run has a record already, that one stays and is
    returned.

    Raises:
        DataError: another schema version wrote to the store.
    """
    check_store_version(world.store)
    new = RunRecord(
        run_id=run_id,
        job=job,
        **of_task(task),
        world=world.name,
        world_sha256=world.digest,
        created_at=world.clock.now(),
        environment=environment(),
    )
    world.store.put(store_layout.run_record(run_id), record_bytes(new), if_absent=True)
    return read_record(world.store, store_layout.run_record(run_id), RunRecord)


def of_task(task: Task) -> dict[str, Any]:
    """Return the fields of a run's record that hold its task."""
    if isinstance(task, Command):
        return {"command": task}
    return {"recipe": task, "recipe_sha256": digest(record_bytes(task))}


@dataclass(frozen=True, slots=True)
class StartTerms:
    """What a start may spend, by when, and what runs it.

    `deadline_s` is in seconds from now; None: no deadline. `overhead_usd` is what is reserved for pods that
    run no stage. `elastic_stage` is the pipeline's; empty: it has none. `command`: the command, if it is
    another one than before.
    """

    budget_usd: Decimal
    deadline_s: float | None
    launcher: PodRef | None
    engine: EngineTimes
    overhead_usd: Decimal
    elastic_stage: str
    command: Command | None = None


def elastic_stage(needs: Iterable[Need]) -> str:
    """Return the name of the pipeline's elastic stage; empty: it has none."""
    return next((need.stage for need in needs if need.elastic), "")


def new_start(world: World, run_id: str, number: int, terms: StartTerms) -> RunStart:
    """Return a start that begins now."""
    now, prices = world.clock.now(), overhead_prices(world)
    return RunStart(
        number=number,
        account=run_id if number == 1 else f"{run_id}.{number}",
        budget_usd=terms.budget_usd,
        started_at=now,
        deadline_at=None if terms.deadline_s is None else now + timedelta(seconds=terms.deadline_s),
        launcher=terms.launcher,
        overhead_usd_per_hour=prices.step_usd_per_hour,
        step_usd_per_hour=prices.step_by_pool,
        overhead_pod_s=terms.engine.pod_s,
        overhead_usd=terms.overhead_usd,
        engine=terms.engine.engine,
        elastic_stage=terms.elastic_stage,
        workflow=own_workflow(world),
        command=terms.command,
    )


def own_workflow(world: World) -> str:
    """Return NAMESPACE/NAME of the Workflow of this pod; empty: no engine of a cluster created it."""
    name, pod = os.environ.get(WORKFLOW_VARIABLE, ""), world.pod
    return f"{pod.namespace}/{name}" if name and isinstance(pod, ClusterPod) else ""


def write_start(world: World, run_id: str, number: int, terms: StartTerms) -> RunStart:
    """Write a start, or read the one that exists.

    Raises:
        Refused: another launcher began it. Two launchers would spend one budget twice.
    """
    start = new_start(world, run_id, number, terms)
    key = store_layout.start(run_id, number)
    world.store.put(key, record_bytes(start), if_absent=True)
    stored = read_record(world.store, key, RunStart)
    if stored.launcher != terms.launcher:
        raise just_started(run_id)
    return stored


def just_started(run_id: str) -> Refused:
    """Return the refusal of a second launcher."""
    return Refused(f"another process has just started {run_id}: follow it with `shoestring watch {run_id}`")


def has_ended(world: World, run: Run) -> bool:
    """Return whether the last start of a run on a cluster has ended: its account is closed, or its exit step
    has come and left it to the reaper. That of a launcher ends with it.
    """
    if run.start.launcher is not None:
        return False
    is_closed = world_ledger(world).state(run.start.account).closed
    return is_closed or any(each.name == EXIT_STEP for each in overhead_times(world, run, run.start))


def write_engine_job(world: World, run_id: str, job_id: str) -> None:
    """Record under which id the engine knows the run; its pods' labels carry that id.

    Nothing is written if `job_id` is empty or the run's own id.
    """
    if job_id not in ("", run_id):
        world.store.put(store_layout.job(job_id), record_bytes(EngineJob(run_id=run_id)), if_absent=True)


def run_id_of_label(store: Store, label: str) -> str:
    """Return the id of the run that a pod's label names: the engine's id for it, or the run id itself."""
    key = store_layout.job(label)
    return read_record(store, key, EngineJob).run_id if label and any(store.list(key)) else label


def environment() -> dict[str, str]:
    """Return the versions of everything that computes, so that the run can be repeated."""
    found = {"python": platform.python_version(), "machine": f"{platform.system()} {platform.machine()}"}
    for name in VERSIONED_PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
