"""Write down what was asked for before anything starts."""

from __future__ import annotations

import importlib.metadata
import platform
from datetime import timedelta
from decimal import Decimal

from shoestring.data.recipe import Recipe
from shoestring.data.runs import RunRecord, Start, read
from shoestring.errors import Refused
from shoestring.model import digest, record
from shoestring.seams import World

VERSIONS_OF = ("shoestring", "kfp", "numpy", "pyarrow", "pydantic", "scikit-learn", "torch")


def write_record(world: World, run_id: str, recipe: Recipe, seed: int) -> RunRecord:
    """Write down what was asked for; a record that is there already is kept."""
    new = RunRecord(
        run_id=run_id,
        recipe=recipe,
        recipe_sha256=digest(record(recipe)),
        seed=seed,
        world=world.name,
        world_sha256=world.digest,
        created_at=world.clock.now(),
        environment=environment(),
    )
    world.store.put(f"runs/{run_id}/run.json", record(new), if_absent=True)
    return read(world.store, f"runs/{run_id}/run.json", RunRecord)


def write_start(world: World, run_id: str, number: int, budget_usd: Decimal, deadline_s: float | None, supervisor: str | None) -> Start:
    """Begin a start, or find it begun. Raises Refused when somebody else began it: two of them would spend one budget twice."""
    now = world.clock.now()
    start = Start(
        number=number,
        account=run_id if number == 1 else f"{run_id}.{number}",
        budget_usd=budget_usd,
        started_at=now,
        deadline_at=None if deadline_s is None else now + timedelta(seconds=deadline_s),
        supervisor=supervisor,
    )
    key = f"runs/{run_id}/starts/{number}.json"
    world.store.put(key, record(start), if_absent=True)
    there = read(world.store, key, Start)
    if there.supervisor != supervisor:
        raise Refused(f"{run_id} was begun by somebody else just now: follow it with `shoestring watch {run_id}`")
    return there


def environment() -> dict[str, str]:
    """Versions of what computes, for whoever wants to do it again."""
    found = {"python": platform.python_version(), "machine": f"{platform.system()} {platform.machine()}"}
    for name in VERSIONS_OF:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
