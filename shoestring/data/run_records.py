"""What is written down of a run before its stages start. Read here; written by whoever admits the run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Literal, TypeVar

from pydantic import AwareDatetime, BaseModel, ValidationError

from shoestring.core.errors import DataError, NotInStore, UnknownName
from shoestring.core.interfaces import Store
from shoestring.core.money import Usd
from shoestring.core.types import Record, validation_message
from shoestring.data.recipe import Recipe
from shoestring.spending.ledger.entry import READERS

RUN_MOMENT = re.compile(r"\d{8}-\d{6}")
AnyNoun = TypeVar("AnyNoun", bound=BaseModel)


class RunRecord(Record):
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


class Start(Record):
    """One start of a run: the first, or a `--resume`. Each has an account of its own in the ledger.

    What does no stage's work goes by the price and the allowance that admission found: a stage's pod and the exit step may not even
    look at the nodes.
    """

    schema_version: Literal[1] = 1
    number: int
    account: str
    budget_usd: Usd
    started_at: AwareDatetime
    deadline_at: AwareDatetime | None
    supervisor: str | None
    overhead_usd_per_hour: Usd = Decimal(0)
    overhead_pod_s: float = 0.0


class Refusal(Record):
    """Why a run was not begun, the last time that somebody tried: by its price there is a decision beside it."""

    schema_version: Literal[1] = 1
    at: AwareDatetime
    sentence: str


@dataclass(frozen=True, slots=True)
class Run:
    """A run that was admitted, or refused: then it has no starts."""

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
    """Parse a record from the store. Raises NotInStore, and DataError for one that another version wrote, or nobody of us."""
    try:
        return noun.model_validate_json(store.fetch(key).read_bytes())
    except ValidationError as error:
        # A record of another version differs in everything; that it is one is all there is to say.
        other = next(
            (
                sentence
                for sentence in validation_message(error).split("; ")
                if sentence.startswith("schema_version: ")
            ),
            None,
        )
        wrong = f"{key} is not a {noun.__name__} as this version of Shoestring writes it ({other or validation_message(error)})"
        raise DataError(f"{wrong}: use the version that wrote it, or delete it if nobody needs it") from None


def readable(store: Store, keys: Sequence[str], noun: type[AnyNoun]) -> tuple[list[AnyNoun], tuple[str, ...]]:
    """The records under these keys, and a sentence on those that cannot be read: what others left there must stop nobody."""

    def one(key: str) -> AnyNoun | DataError | None:
        try:
            return read(store, key, noun)
        except NotInStore:
            return None
        except DataError as error:
            return error

    with ThreadPoolExecutor(READERS) as readers:
        found = list(readers.map(one, keys))
    unread = [each for each in found if isinstance(each, DataError)]
    notes = (
        (f"{len(unread)} of {len(found)} records were left out, like this one: {unread[0]}",)
        if unread
        else ()
    )
    return [each for each in found if isinstance(each, noun)], notes


def newest(store: Store, kind: str, most: int) -> list[str]:
    """Keys of the newest records of a kind (receipts, decisions) of all runs: run ids begin with a recipe's name, and then a moment."""

    def begun(key: str) -> str:
        found = RUN_MOMENT.search(key)
        return found.group() if found else key

    return sorted((key for key in store.list("runs/") if f"/{kind}/" in key), key=begun)[-most:]


def open_run(store: Store, run_id: str) -> Run:
    """Raises UnknownName, with the runs there are; DataError."""
    try:
        found = read(store, f"runs/{run_id}/run.json", RunRecord)
    except NotInStore:
        known = sorted({key.split("/")[1] for key in store.list("runs/")})
        raise UnknownName("run", run_id, known[-10:]) from None
    starts = [read(store, key, Start) for key in store.list(f"runs/{run_id}/starts/")]
    return Run(found, tuple(sorted(starts, key=lambda start: start.number)))
