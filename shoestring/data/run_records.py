"""What is written down of a run before its stages start. Read here; written by whoever admits the run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import TypeVar

from pydantic import AwareDatetime, BaseModel, ValidationError

from shoestring.core.errors import DataError, NotInStore, UnknownName
from shoestring.core.interfaces import Store
from shoestring.core.money import Usd
from shoestring.core.pod_ref import PodRef
from shoestring.core.record import StoredRecord, validation_message
from shoestring.data.recipe import Recipe
from shoestring.spending.ledger.entry import PARALLEL_READS

RUN_TIMESTAMP = re.compile(r"\d{8}-\d{6}")
RecordType = TypeVar("RecordType", bound=BaseModel)


class RunRecord(StoredRecord):
    """What was asked for. Written once; a resumed run reads it again."""

    run_id: str
    recipe: Recipe
    recipe_sha256: str
    seed: int
    world: str
    world_sha256: str
    created_at: AwareDatetime
    environment: dict[str, str]


class RunStart(StoredRecord):
    """One start of a run: the first, or a `--resume`. Each has an account of its own in the ledger.

    What does no stage's work goes by the price and the allowance that admission found: a stage's pod and the exit step may not even
    look at the nodes.
    """

    number: int
    account: str
    budget_usd: Usd
    started_at: AwareDatetime
    deadline_at: AwareDatetime | None
    launcher: PodRef | None
    overhead_usd_per_hour: Usd = Decimal(0)
    overhead_pod_s: float = 0.0


class AdmissionRefusal(StoredRecord):
    """Why a run was not begun, the last time that somebody tried: by its price there is a decision beside it."""

    refused_at: AwareDatetime
    reason: str


@dataclass(frozen=True, slots=True)
class Run:
    """A run that was admitted, or refused: then it has no starts."""

    record: RunRecord
    starts: tuple[RunStart, ...]

    @property
    def run_id(self) -> str:
        return self.record.run_id

    @property
    def start(self) -> RunStart:
        return self.starts[-1]

    def deadline_left_s(self, now: datetime) -> float | None:
        at = self.start.deadline_at
        return None if at is None else max(0.0, (at - now).total_seconds())


def read_record(store: Store, key: str, noun: type[RecordType]) -> RecordType:
    """Parse a record from the store. Raises NotInStore, and DataError for one that another version wrote, or nobody of us."""
    try:
        return noun.model_validate_json(store.fetch(key).read_bytes())
    except ValidationError as error:
        raise DataError(
            f"{key} is not a readable {noun.__name__}: {validation_message(error)}; "
            "use the version of Shoestring that wrote it, or delete the object if no run needs it"
        ) from None


def read_records(
    store: Store, keys: Sequence[str], noun: type[RecordType]
) -> tuple[list[RecordType], tuple[str, ...]]:
    """The records under these keys, and a sentence on those that cannot be read: what others left there must stop nobody."""

    def one(key: str) -> RecordType | DataError | None:
        try:
            return read_record(store, key, noun)
        except NotInStore:
            return None
        except DataError as error:
            return error

    with ThreadPoolExecutor(PARALLEL_READS) as readers:
        found = list(readers.map(one, keys))
    unread = [each for each in found if isinstance(each, DataError)]
    notes = (
        (f"{len(unread)} of {len(found)} records were left out, like this one: {unread[0]}",)
        if unread
        else ()
    )
    return [each for each in found if isinstance(each, noun)], notes


def newest_keys(store: Store, kind: str, most: int) -> list[str]:
    """Keys of the newest records of a kind (receipts, decisions) of all runs: run ids begin with a recipe's name, and then a moment."""

    def begun(key: str) -> str:
        found = RUN_TIMESTAMP.search(key)
        return found.group() if found else key

    return sorted((key for key in store.list("runs/") if f"/{kind}/" in key), key=begun)[-most:]


def open_run(store: Store, run_id: str) -> Run:
    """Raises UnknownName, with the runs there are; DataError."""
    try:
        found = read_record(store, f"runs/{run_id}/run.json", RunRecord)
    except NotInStore:
        known = sorted({key.split("/")[1] for key in store.list("runs/")})
        raise UnknownName("run", run_id, known[-10:]) from None
    starts = [read_record(store, key, RunStart) for key in store.list(f"runs/{run_id}/starts/")]
    return Run(found, tuple(sorted(starts, key=lambda start: start.number)))
