"""Everything about a run, from the store alone: the same for a run on a laptop or a cluster, going on, over, refused or broken off."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Literal

from pydantic import BaseModel

from shoestring.core.errors import NotInStore
from shoestring.core.interfaces import Store
from shoestring.core.money import usd
from shoestring.core.receipt import Receipt
from shoestring.data.run_records import (
    AdmissionRefusal,
    RecordType,
    RunRecord,
    RunStart,
    open_run,
    read_record,
)
from shoestring.evaluation.results import EvaluationResults
from shoestring.reporting.charges import OVERHEAD, Charge, settled
from shoestring.routing.decision import Decision
from shoestring.routing.policy.migration import MigrationCheck
from shoestring.spending.heartbeat import Heartbeat
from shoestring.spending.ledger.account import AccountState
from shoestring.spending.ledger.chain import AccountChain
from shoestring.training.curve import TrainingCurve

State = Literal["waiting", "placed", "running", "done", "reused", "stopped", "failed", "lost", "refused"]
Status = Literal["done", "refused", "failed", "stopped", "running"]
NOTHING = usd("0")


@dataclass(frozen=True, slots=True)
class StartAccount:
    """One start of the run and its account in the ledger. `last_at`: when that was last written to."""

    start: RunStart
    account: AccountState
    last_at: datetime


@dataclass(frozen=True, slots=True)
class Attempt:
    """One time that a stage was routed, and what came of it. `books` are of the start that it belongs to; None when nothing was started.

    `look`: the last one at where it ran, once it is over; None where nobody looked again.
    """

    decision: Decision
    receipt: Receipt | None
    heartbeat: Heartbeat | None
    books: StartAccount | None
    look: MigrationCheck | None = None

    @property
    def stage(self) -> str:
        return self.decision.question.stage

    @property
    def number(self) -> int:
        return self.decision.question.attempt

    @property
    def key(self) -> str:
        """Names its records in the store, and its hold in the ledger."""
        return str(self.decision.question.attempt_id)

    @property
    def state(self) -> State:
        if self.receipt:
            return (
                "reused" if self.receipt.cache_hit and self.receipt.status == "done" else self.receipt.status
            )
        if self.decision.choice is None:
            return "refused"
        if self.books is None or self.books.account.closed:
            return "lost"
        return "running" if self.heartbeat else "placed"

    @property
    def why(self) -> str:
        """Why it stopped, failed or did less than it could; empty when there is nothing to explain."""
        if self.receipt is None:
            return ""
        return self.receipt.reason or (self.receipt.outcome.stop_reason if self.receipt.outcome else "")


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of the run, in the order of the pipeline, with its attempts, oldest first; none when its turn has not come."""

    name: str
    elastic: bool
    attempts: tuple[Attempt, ...]

    @property
    def last(self) -> Attempt | None:
        return self.attempts[-1] if self.attempts else None

    @property
    def state(self) -> State:
        return self.last.state if self.last else "waiting"


@dataclass(frozen=True, slots=True)
class RunStory:
    """A run as its records tell it. `books` has one of each start: a run that was refused has none, and `refusal` says why."""

    record: RunRecord
    books: tuple[StartAccount, ...]
    stages: tuple[Stage, ...]
    curve: TrainingCurve | None
    scorecard: EvaluationResults | None
    charges: tuple[Charge, ...] = ()
    refusal: AdmissionRefusal | None = None

    @property
    def run_id(self) -> str:
        return self.record.run_id

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """Of all stages, in the order in which they were routed."""
        return tuple(
            sorted(
                (attempt for stage in self.stages for attempt in stage.attempts),
                key=lambda attempt: attempt.decision.question.asked_at,
            )
        )

    @property
    def status(self) -> Status:
        """What the last attempt came to; an account that is still open says that more is to come."""
        if self.stages and all(stage.state in ("done", "reused") for stage in self.stages):
            return "done"
        if self.books and not self.books[-1].account.closed:
            return "running"
        if not any(attempt.decision.choice for attempt in self.attempts) and (self.attempts or self.refusal):
            return "refused"
        return "failed" if self.attempts and self.attempts[-1].state in ("failed", "lost") else "stopped"

    @property
    def budget_usd(self) -> Decimal:
        """What the last start was given, and what was approved since; when nothing was started, what the router was asked to keep to."""
        if self.books:
            return self.books[-1].start.budget_usd + self.books[-1].account.cap_raised_usd
        return (
            self.attempts[-1].decision.question.budget_usd if self.attempts else self.record.recipe.budget_usd
        )

    @property
    def spent_usd(self) -> Decimal:
        settled = sum((books.account.spent_usd for books in self.books), NOTHING)
        return settled + sum((self._unsettled_usd(stage) for stage in self.stages), NOTHING)

    def stage_spent_usd(self, stage: Stage) -> Decimal:
        """By the ledger, which the exit step corrects to the pods' true times, and by heartbeat for what is not settled yet."""
        return self._settled_usd(stage.name) + self._unsettled_usd(stage)

    @property
    def overhead_usd(self) -> Decimal:
        """What deciding and settling took. Known once the exit step has settled it."""
        return self._settled_usd(OVERHEAD)

    def wall_s(self, now: datetime | None = None) -> float:
        """Seconds that the run was going, all starts together; of one that still is, until `now`, or else its last sign of life."""
        beats = [attempt.heartbeat.at for attempt in self.attempts if attempt.heartbeat]
        total_s = 0.0
        for books in self.books:
            last_at = books.last_at if books.account.closed else now or max([books.last_at, *beats])
            total_s += (last_at - books.start.started_at).total_seconds()
        return total_s

    def _settled_usd(self, stage: str) -> Decimal:
        found = [
            books.account.stages[stage].spent_usd for books in self.books if stage in books.account.stages
        ]
        return sum(found, NOTHING)

    def _unsettled_usd(self, stage: Stage) -> Decimal:
        holds = {hold for books in self.books for hold in books.account.reservations}
        beats = [
            attempt.heartbeat for attempt in stage.attempts if attempt.heartbeat and attempt.key in holds
        ]
        return sum((beat.spent_usd for beat in beats), NOTHING)


class RunReader:
    """Reads one run again and again; what can no longer change is read once."""

    def __init__(self, store: Store, run_id: str) -> None:
        self._store, self._run_id = store, run_id
        self._kept: dict[str, BaseModel] = {}
        self._chains: dict[str, AccountChain] = {}

    def look(self) -> RunStory:
        """The run as it is now, without its curve and scorecard.

        Raises:
            UnknownName: there is no such run.
            LedgerCorrupt: its books do not hold.
        """
        run = open_run(self._store, self._run_id)
        books = tuple(self._books(start) for start in run.starts)
        # Beats before receipts: an attempt that ends in between is then seen as over, not as silent.
        beats = {(beat.stage, beat.attempt): beat for beat in self._all("heartbeats", Heartbeat)}
        receipts = {
            (receipt.stage, receipt.attempt): receipt for receipt in self._all("receipts", Receipt, keep=True)
        }
        attempts = []
        for decision in sorted(
            self._all("decisions", Decision, keep=True), key=lambda decision: decision.question.asked_at
        ):
            question = decision.question
            key = (question.stage, question.attempt)
            begun = [each for each in books if each.start.started_at <= question.asked_at]
            look = (
                _maybe(self._store, f"runs/{self._run_id}/looks/{question.attempt_id}.json", MigrationCheck)
                if question.needs[0].elastic
                else None
            )
            attempts.append(
                Attempt(decision, receipts.get(key), beats.get(key), begun[-1] if begun else None, look)
            )
        needs = attempts[0].decision.question.needs if attempts else ()
        stages = (
            Stage(need.stage, need.elastic, tuple(each for each in attempts if each.stage == need.stage))
            for need in needs
        )
        refusal = None if books else _maybe(self._store, f"runs/{self._run_id}/refusal.json", AdmissionRefusal)
        return RunStory(
            run.record, books, tuple(stages), None, None, self._charges(run.record, attempts), refusal
        )

    def _charges(self, run: RunRecord, attempts: list[Attempt]) -> tuple[Charge, ...]:
        """What is settled already."""
        of = {attempt.key: attempt for attempt in attempts}
        found = [charge for chain in self._chains.values() for charge in settled(chain)]
        return tuple(
            replace(
                charge,
                run=run,
                decision=attempt.decision if attempt else None,
                receipt=attempt.receipt if attempt else None,
            )
            for charge in found
            for attempt in [of.get(charge.entry.reservation)]
        )

    def _all(self, folder: str, noun: type[RecordType], *, keep: bool = False) -> list[RecordType]:
        found = []
        for key in self._store.list(f"runs/{self._run_id}/{folder}/"):
            kept = self._kept.get(key)
            each = kept if isinstance(kept, noun) else read_record(self._store, key, noun)
            if keep:
                self._kept[key] = each
            found.append(each)
        return found

    def _books(self, start: RunStart) -> StartAccount:
        chain = self._chains.setdefault(start.account, AccountChain(self._store, start.account))
        chain.read_new()
        last_at = chain.entries[-1].entry.at if chain.entries else start.started_at
        return StartAccount(start, chain.account.state(), last_at)


def read_run_story(store: Store, run_id: str) -> RunStory:
    """Read what there is of a run. What it did not come to, or has not yet, is missing.

    Raises:
        UnknownName: there is no such run.
        LedgerCorrupt: its books do not hold.
    """
    return replace(
        RunReader(store, run_id).look(),
        curve=_maybe(store, f"runs/{run_id}/curve.json", TrainingCurve),
        scorecard=_maybe(store, f"runs/{run_id}/evaluation.json", EvaluationResults),
    )


def _maybe(store: Store, key: str, noun: type[RecordType]) -> RecordType | None:
    try:
        return read_record(store, key, noun)
    except NotInStore:
        return None
