"""Write down what was asked for before anything starts."""

from __future__ import annotations

import importlib.metadata
import platform
import re
from datetime import timedelta
from decimal import Decimal

from shoestring.config.world import World
from shoestring.core.errors import Refused, UsageError
from shoestring.core.interfaces import Store
from shoestring.core.pod_ref import PodRef
from shoestring.core.record import StoredRecord, digest, record_bytes
from shoestring.data.recipe import Recipe
from shoestring.data.run_records import RunRecord, RunStart, read_record
from shoestring.runtime.records.overhead import overhead_pod_s, overhead_usd_per_hour

VERSIONED_PACKAGES = ("shoestring", "kfp", "numpy", "pyarrow", "pydantic", "scikit-learn", "torch")


# No dot, which sets apart the account of a later start; and no month's name.
RUN_ID = re.compile(r"(?!\d{4}-\d{2}$)[A-Za-z0-9][A-Za-z0-9_-]{0,99}")


def check_run_id(run_id: str) -> None:
    """Raises UsageError for what would be taken for another account."""
    if not RUN_ID.fullmatch(run_id):
        raise UsageError(
            f"{run_id!r} cannot be a run's id: letters, digits, '_' and '-', at most 100, a letter or digit first, "
            "and not a month like 2026-11, whose account has that name"
        )


def write_run_record(world: World, run_id: str, recipe: Recipe, seed: int) -> RunRecord:
    """Write down what was asked for; a record that is there already is kept."""
    new = RunRecord(
        run_id=run_id,
        recipe=recipe,
        recipe_sha256=digest(record_bytes(recipe)),
        seed=seed,
        world=world.name,
        world_sha256=world.digest,
        created_at=world.clock.now(),
        environment=environment(),
    )
    world.store.put(f"runs/{run_id}/run.json", record_bytes(new), if_absent=True)
    return read_record(world.store, f"runs/{run_id}/run.json", RunRecord)


def new_start(
    world: World,
    run_id: str,
    number: int,
    budget_usd: Decimal,
    deadline_s: float | None,
    launcher: PodRef | None,
) -> RunStart:
    """A start that begins now."""
    now = world.clock.now()
    return RunStart(
        number=number,
        account=run_id if number == 1 else f"{run_id}.{number}",
        budget_usd=budget_usd,
        started_at=now,
        deadline_at=None if deadline_s is None else now + timedelta(seconds=deadline_s),
        launcher=launcher,
        overhead_usd_per_hour=overhead_usd_per_hour(world),
        overhead_pod_s=overhead_pod_s(world),
    )


def write_start(
    world: World,
    run_id: str,
    number: int,
    budget_usd: Decimal,
    deadline_s: float | None,
    launcher: PodRef | None,
) -> RunStart:
    """Begin a start, or find it begun. Raises Refused when somebody else began it: two of them would spend one budget twice."""
    start = new_start(world, run_id, number, budget_usd, deadline_s, launcher)
    key = f"runs/{run_id}/starts/{number}.json"
    world.store.put(key, record_bytes(start), if_absent=True)
    there = read_record(world.store, key, RunStart)
    if there.launcher != launcher:
        raise Refused(
            f"{run_id} was begun by somebody else just now: follow it with `shoestring watch {run_id}`"
        )
    return there


class EngineJob(StoredRecord):
    """Which run it is that an engine has an id of its own for."""

    run_id: str


def write_engine_job(world: World, run_id: str, job_id: str) -> None:
    """Let the run be found by what its engine calls it, which its pods' labels say. Empty, or the run's own id: nothing to write."""
    if job_id not in ("", run_id):
        world.store.put(job_key(job_id), record_bytes(EngineJob(run_id=run_id)), if_absent=True)


def run_id_for(store: Store, label: str) -> str:
    """The id of the run that a pod's label names: by what its engine calls it, or by its id itself."""
    key = job_key(label)
    return read_record(store, key, EngineJob).run_id if label and any(store.list(key)) else label


def job_key(job_id: str) -> str:
    return f"jobs/{job_id}.json"


def environment() -> dict[str, str]:
    """Versions of what computes, for whoever wants to do it again."""
    found = {"python": platform.python_version(), "machine": f"{platform.system()} {platform.machine()}"}
    for name in VERSIONED_PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
