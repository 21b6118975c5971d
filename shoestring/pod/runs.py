"""What is written down of a run before it starts, and where its books are."""

from __future__ import annotations

import importlib.metadata
import platform
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Literal, TypeVar

from pydantic import AwareDatetime, BaseModel

from shoestring.data.recipe import Recipe
from shoestring.errors import NotInStore, UnknownName
from shoestring.model import Noun, Usd, digest, record
from shoestring.seams import Store, World

VERSIONS_OF = ("shoestring", "kfp", "numpy", "pyarrow", "pydantic", "scikit-learn", "torch")

AnyNoun = TypeVar("AnyNoun", bound=BaseModel)


class RunRecord(Noun):
    """What was asked for. Written once; a resumed run reads it again."""

    schema_version: Literal[1] = 1
    run_id: str
    recipe: Recipe
    recipe_sha256: str
    seed: int
    world: str
    world_sha256: str
    created_at: AwareDatetime
    environment: dict[str, str]


class Start(Noun):
    """One start of a run: the first, or a `--resume`. Each has an account of its own in the ledger."""

    schema_version: Literal[1] = 1
    number: int
    account: str
    budget_usd: Usd
    started_at: AwareDatetime
    deadline_at: AwareDatetime | None
    supervisor: str | None


@dataclass(frozen=True, slots=True)
class Run:
    """A run that was begun, as a pod sees it."""

    record: RunRecord
    starts: tuple[Start, ...]

    @property
    def run_id(self) -> str:
        return self.record.run_id

    @property
    def start(self) -> Start:
        return self.starts[-1]

    def deadline_left_s(self, now: datetime) -> float | None:
        at = self.start.deadline_at
        return None if at is None else max(0.0, (at - now).total_seconds())


def read(store: Store, key: str, noun: type[AnyNoun]) -> AnyNoun:
    """Parse a record from the store. Raises NotInStore."""
    return noun.model_validate_json(store.fetch(key).read_bytes())


def open_run(store: Store, run_id: str) -> Run:
    """Raises UnknownName, with the runs there are."""
    try:
        found = read(store, f"runs/{run_id}/run.json", RunRecord)
    except NotInStore:
        known = sorted({key.split("/")[1] for key in store.list("runs/")})
        raise UnknownName("run", run_id, known[-10:]) from None
    starts = [read(store, key, Start) for key in store.list(f"runs/{run_id}/starts/")]
    return Run(found, tuple(sorted(starts, key=lambda start: start.number)))


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
    return read(world.store, key, Start)


def environment() -> dict[str, str]:
    """Versions of what computes, for whoever wants to do it again."""
    found = {"python": platform.python_version(), "machine": f"{platform.system()} {platform.machine()}"}
    for name in VERSIONS_OF:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
