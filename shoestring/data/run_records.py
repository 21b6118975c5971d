"""The records that describe a run before its stages start, and how stored records are read. Admission
writes them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Self, TypeVar

from pydantic import AwareDatetime, BaseModel, Field, ValidationError, model_validator

from shoestring.config.engines import Engine
from shoestring.core import store_layout
from shoestring.core.errors import DataError, NotInStore, StoreError, UnknownName
from shoestring.core.interfaces import PARALLEL_READS, Store
from shoestring.core.money import Usd
from shoestring.core.pod_ref import PodRef
from shoestring.core.record import StoredRecord, validation_message
from shoestring.core.store_layout import is_key
from shoestring.data.job import Command, Job, Task, job_of_recipe
from shoestring.data.recipe import Recipe

RUN_TIMESTAMP = re.compile(r"\d{8}-\d{6}")
RecordType = TypeVar("RecordType", bound=BaseModel)


class RunRecord(StoredRecord):
    """The request for a run. It is written once; a resumed run reads it again. It has either a recipe or a
    command. `recipe_sha256`: empty for a command.
    """

    run_id: str
    job: Job
    recipe: Recipe | None = None
    recipe_sha256: str = ""
    command: Command | None = None
    world: str
    world_sha256: str
    created_at: AwareDatetime
    environment: dict[str, str]

    @model_validator(mode="before")
    @classmethod
    def _with_job(cls, data: Any) -> Any:
        """Records of version 4 have a recipe, whose terms are the job's, and a seed."""
        if not isinstance(data, dict) or "job" in data or "recipe" not in data:
            return data
        rest = {name: value for name, value in data.items() if name != "seed"}
        return rest | {"job": job_of_recipe(Recipe.model_validate(data["recipe"]), seed=data.get("seed"))}

    @model_validator(mode="after")
    def _has_one_task(self) -> Self:
        if (self.recipe is None) == (self.command is None):
            raise ValueError("a run has either a recipe or a command")
        return self

    @property
    def resume_text(self) -> str:
        """The command that resumes it. A command without a folder is the stage of a pipeline."""
        is_exec = self.command is not None and self.command.folder
        return f"shoestring {'exec' if is_exec else 'run'} --resume {self.run_id}"

    @property
    def task(self) -> Task:
        """The recipe or the command."""
        found = self.command or self.recipe
        assert found is not None
        return found


class RunStart(StoredRecord):
    """One start of a run: the first, or a `--resume`. Each start has its own account in the ledger.

    Overhead pods are charged with the prices and the allowance that admission determined, because a
    stage's pod and the exit step may lack the permission to read nodes. `overhead_usd` is what admission
    reserved for them. `engine` is None where an earlier version wrote the start. `elastic_stage` is empty for
    a pipeline without one.
    """

    number: int
    account: str
    budget_usd: Usd
    started_at: AwareDatetime
    deadline_at: AwareDatetime | None
    launcher: PodRef | None
    overhead_usd_per_hour: Usd = Field(
        Decimal(0), description="of a route or exit step: the highest, where its node pool is not known"
    )
    step_usd_per_hour: dict[str, Usd] = Field(
        {},
        exclude_if=lambda prices: not prices,
        description="of a route or exit step, by node pool: its share of a node; empty: it has no share",
    )
    overhead_pod_s: float = 0.0
    overhead_usd: Usd = Decimal(0)
    engine: Engine | None = None
    elastic_stage: str = ""
    workflow: str = Field(
        "",
        exclude_if=lambda name: not name,
        description="NAMESPACE/NAME of the engine's Workflow; empty: none, or an earlier version wrote it",
    )
    command: Command | None = Field(
        None,
        exclude_if=lambda command: command is None,
        description="the command from this start on; null: as before",
    )
    argv: tuple[str, ...] = Field(
        (),
        exclude_if=lambda argv: not argv,
        description="the command's words from this start on, where an earlier version wrote the start",
    )

    def command_after(self, before: Command) -> Command:
        """Return the command of this start. `before`: that of the start before it."""
        return self.command or (before.model_copy(update={"argv": self.argv}) if self.argv else before)


class AdmissionRefusal(StoredRecord):
    """Why the latest attempt to start a run was refused. A refusal by price also has a stored decision."""

    refused_at: AwareDatetime
    reason: str


class StepError(StoredRecord):
    """The latest error that ended a step of a run on its engine, such as a route step. A run that its first
    route step did not begin has no other record.
    """

    step: str = Field(description="route, settle, or the name of the stage")
    ended_at: AwareDatetime
    reason: str


class EngineEnd(StoredRecord):
    """How a start of a run ended on its engine, by its exit step."""

    start: int
    at: AwareDatetime
    succeeded: bool | None = Field(
        description="whether all that the exit step settles succeeded; null: it may not read that"
    )


@dataclass(frozen=True, slots=True)
class Run:
    """A run that was admitted, or one that was refused and has no starts.

    The command in its record is that of the latest start.
    """

    record: RunRecord
    starts: tuple[RunStart, ...]

    @property
    def run_id(self) -> str:
        return self.record.run_id

    @property
    def start(self) -> RunStart:
        """The latest start."""
        return self.starts[-1]

    def deadline_left_s(self, now: datetime) -> float | None:
        """Return the seconds until the deadline, at least 0; None without a deadline."""
        at = self.start.deadline_at
        return None if at is None else max(0.0, (at - now).total_seconds())


def read_record(store: Store, key: str, record_type: type[RecordType]) -> RecordType:
    """Read a record from the store. Raises NotInStore; DataError for another version or content that is
    no record."""
    try:
        return record_type.model_validate_json(store.fetch(key).read_bytes())
    except ValidationError as error:
        raise DataError(
            f"{key} is not a readable {record_type.__name__}: {validation_message(error)}; "
            "use the version of Shoestring that wrote it, or delete the object if no run needs it"
        ) from None


def read_records(
    store: Store, keys: Sequence[str], record_type: type[RecordType]
) -> tuple[list[RecordType], tuple[str, ...]]:
    """Return the readable records under these keys, and a note about unreadable ones, which never stop
    the caller."""

    def read(key: str) -> RecordType | DataError | None:
        try:
            return read_record(store, key, record_type)
        except NotInStore:
            return None
        except DataError as error:
            return error

    with ThreadPoolExecutor(PARALLEL_READS) as readers:
        found = list(readers.map(read, keys))
    unreadable = [each for each in found if isinstance(each, DataError)]
    notes = (
        (f"{len(unreadable)} of {len(found)} records were skipped; the first: {unreadable[0]}",)
        if unreadable
        else ()
    )
    return [each for each in found if isinstance(each, record_type)], notes


def read_each(store: Store, keys: Sequence[str], record_type: type[RecordType]) -> list[RecordType]:
    """Return the records under these keys, read in parallel. Raises as `read_record` does."""
    if len(keys) < 2:
        return [read_record(store, key, record_type) for key in keys]
    with ThreadPoolExecutor(PARALLEL_READS) as readers:
        return list(readers.map(lambda key: read_record(store, key, record_type), keys))


def newest_keys(store: Store, kind: str, max_count: int) -> list[str]:
    """Return the keys of the newest records of a kind (receipts, decisions) over all runs, oldest first.

    A run id consists of the job's name and the start time, which orders the runs.
    """

    def started(key: str) -> str:
        found = RUN_TIMESTAMP.search(key)
        return found.group() if found else key

    keys = (key for key in store.list(store_layout.RUNS) if f"/{kind}/" in key)
    return sorted(keys, key=started)[-max_count:]


def open_run(store: Store, run_id: str) -> Run:
    """Read a run and its starts. Raises UnknownName, which lists the newest runs; DataError."""
    record = read_run_record(store, run_id)
    starts = [read_record(store, key, RunStart) for key in store.list(store_layout.starts(run_id))]
    return run_of(record, starts)


def run_of(record: RunRecord, starts: Iterable[RunStart]) -> Run:
    """Return a run of these records."""
    ordered = tuple(sorted(starts, key=lambda start: start.number))
    if commands := commands_of_starts({record.run_id: record}, ordered):
        record = record.model_copy(update={"command": commands[ordered[-1].account]})
    return Run(record, ordered)


def commands_of_starts(records: Mapping[str, RunRecord], starts: Iterable[RunStart]) -> dict[str, Command]:
    """Return the command of each of these starts, by its account. `records`: by run; one of a recipe has
    none.
    """
    last = {run_id: record.command for run_id, record in records.items() if record.command}
    found: dict[str, Command] = {}
    for start in sorted(starts, key=lambda start: start.number):
        # The account of a start is that of its run, with a number from the second one on.
        run_id = start.account.partition(".")[0]
        if before := last.get(run_id):
            found[start.account] = last[run_id] = start.command_after(before)
    return found


def read_run_record(store: Store, run_id: str) -> RunRecord:
    """Read the request for a run. Raises as `open_run` does."""
    try:
        if "/" in run_id or not is_key(run_id):
            raise NotInStore(run_id)
        return read_record(store, store_layout.run_record(run_id), RunRecord)
    except NotInStore:
        known = sorted(
            key.split("/")[1] for key in store.list(store_layout.RUNS) if key.endswith("/run.json")
        )
        raise UnknownName("run", run_id, known[-10:]) from None


def read_step_error(store: Store, run_id: str) -> StepError | None:
    """Return the latest error that ended a step of a run; None: none did, or the id is not valid."""
    try:
        return read_record(store, store_layout.step_error(run_id), StepError)
    except StoreError:
        return None
