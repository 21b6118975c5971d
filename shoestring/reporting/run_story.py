"""Everything about a run, read from the store alone.

The result is the same for a run on a laptop or a cluster, and whether it runs, ended, was refused or was cut
off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from itertools import pairwise
from typing import Literal

from shoestring.core.attempt_id import AttemptId
from shoestring.core.datasets import Manifest
from shoestring.core.money import usd
from shoestring.core.receipt import Receipt
from shoestring.data.inspect.page_records import DataPage
from shoestring.data.run_records import (
    AdmissionRefusal,
    EngineEnd,
    RunRecord,
    RunStart,
    StepError,
)
from shoestring.evaluation.results import EvaluationResults
from shoestring.models.run_models import RunPredictions
from shoestring.reporting.charges import OVERHEAD, Charge
from shoestring.routing.analysis.engine_step import EngineStep, step_between
from shoestring.routing.decision import Decision
from shoestring.routing.policy.migration import MigrationCheck
from shoestring.spending.audit.heads import LedgerHead
from shoestring.spending.heartbeat import Heartbeat
from shoestring.spending.ledger.account import AccountState
from shoestring.training.curve import TrainingCurve

StageState = Literal[
    "waiting", "placed", "running", "done", "reused", "stopped", "failed", "lost", "refused", "skipped"
]
RunStatus = Literal["done", "refused", "failed", "stopped", "running"]
DONE: tuple[StageState, ...] = ("done", "reused", "skipped")
ZERO_USD = usd("0")


@dataclass(frozen=True, slots=True)
class StartAccount:
    """One start of the run and its account in the ledger.

    `last_entry_at`: the time of its last ledger entry. `extended_usd`: extensions of reservations, by name.
    """

    start: RunStart
    account: AccountState
    last_entry_at: datetime
    extended_usd: Mapping[str, Decimal] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AttemptStory:
    """One attempt at a stage: its routing decision and its outcome.

    `start_account` belongs to the start that made the attempt; None if nothing was started.
    `migration_check`: the last one of an ended attempt; None if there was none.
    """

    decision: Decision
    receipt: Receipt | None
    heartbeat: Heartbeat | None
    start_account: StartAccount | None
    migration_check: MigrationCheck | None = None

    @property
    def stage(self) -> str:
        return self.decision.question.stage

    @property
    def number(self) -> int:
        return self.decision.question.attempt

    @property
    def key(self) -> str:
        """Names its records in the store, and its reservation in the ledger."""
        return str(self.decision.question.attempt_id)

    @property
    def state(self) -> StageState:
        if self.receipt:
            return (
                "reused" if self.receipt.cache_hit and self.receipt.status == "done" else self.receipt.status
            )
        if self.decision.choice is None:
            return "refused"
        if self.start_account is None or self.start_account.account.closed:
            return "lost"
        return "running" if self.heartbeat else "placed"

    @property
    def reason(self) -> str:
        """The reason why it stopped, failed or did less than planned; empty if there is none."""
        if self.receipt is None:
            return ""
        return self.receipt.reason or (self.receipt.outcome.stop_reason if self.receipt.outcome else "")


@dataclass(frozen=True, slots=True)
class StageStory:
    """A stage of the run, in pipeline order, with its attempts, oldest first; it has none before its turn.
    `end`: how the run's last start ended on its engine; None: it has not ended, or that is not recorded.
    """

    name: str
    elastic: bool
    attempts: tuple[AttemptStory, ...]
    end: EngineEnd | None = None

    @property
    def last_attempt(self) -> AttemptStory | None:
        return self.attempts[-1] if self.attempts else None

    @property
    def state(self) -> StageState:
        if self.last_attempt:
            return self.last_attempt.state
        # A condition of the pipeline did not hold: else its engine would have routed it, or failed.
        return "skipped" if self.end and self.end.succeeded else "waiting"

    @property
    def may_be_skipped(self) -> bool:
        """Whether it was not routed, and its exit step could not read whether its branch was taken."""
        return not self.attempts and self.end is not None and self.end.succeeded is None


@dataclass(frozen=True)
class RunStory:
    """A run as its records describe it.

    `start_accounts` has one element per start. A refused run has none; `refusal` gives the reason. `error` is
    the latest error that ended one of its steps; None while it runs, and once it is done. `data` is the look
    at its data before its first start, and `data_sets` are what ingest and preprocess made of it.
    `predictions` are those that the run made of new rows. `parent_heads` are those of its month and its
    campaign, which change with every run.
    """

    record: RunRecord
    start_accounts: tuple[StartAccount, ...]
    stages: tuple[StageStory, ...]
    curve: TrainingCurve | None
    evaluation: EvaluationResults | None
    charges: tuple[Charge, ...] = ()
    refusal: AdmissionRefusal | None = None
    error: StepError | None = None
    parent_heads: tuple[LedgerHead, ...] = ()
    data: DataPage | None = None
    data_sets: tuple[Manifest, ...] = ()
    predictions: RunPredictions | None = None

    @property
    def ledger_heads(self) -> tuple[LedgerHead, ...]:
        """The heads of the accounts of all starts, then of their month and campaign."""
        accounts = [each.account for each in self.start_accounts if each.account.entries]
        own = (
            LedgerHead(account=each.account, entries=each.entries, sha256=each.head_hash) for each in accounts
        )
        return (*own, *self.parent_heads)

    @property
    def run_id(self) -> str:
        return self.record.run_id

    @cached_property
    def attempts(self) -> tuple[AttemptStory, ...]:
        """The attempts of all stages, in the order in which they were routed."""
        return tuple(
            sorted(
                (attempt for stage in self.stages for attempt in stage.attempts),
                key=lambda attempt: attempt.decision.question.asked_at,
            )
        )

    @property
    def status(self) -> RunStatus:
        """The state of `deciding_attempt`; while an account is open, the run counts as running."""
        if self.stages and all(stage.state in DONE for stage in self.stages):
            return "done"
        if self.start_accounts and not self.start_accounts[-1].account.closed:
            return "running"
        if not any(attempt.decision.choice for attempt in self.attempts) and (self.attempts or self.refusal):
            return "refused"
        deciding = self.deciding_attempt
        return "failed" if deciding and deciding.state in ("failed", "lost") else "stopped"

    @property
    def deciding_attempt(self) -> AttemptStory | None:
        """The last attempt. Where that is done, another branch may have failed or stopped before: the last
        such attempt of the same start. None: there is no attempt.
        """
        if not self.attempts:
            return None
        last = self.attempts[-1]
        ends = [stage.last_attempt for stage in self.stages]
        own = [each for each in self.attempts if each in ends and each.start_account == last.start_account]
        return next((each for each in reversed(own) if each.state not in DONE), last)

    @property
    def budget_usd(self) -> Decimal:
        """The budget of the last start plus later approvals; if nothing was started, the budget given to the
        router.
        """
        if self.start_accounts:
            return self.start_accounts[-1].start.budget_usd + self.start_accounts[-1].account.cap_raised_usd
        return self.attempts[-1].decision.question.budget_usd if self.attempts else self.record.job.budget_usd

    @property
    def spent_usd(self) -> Decimal:
        settled_usd = sum((each.account.spent_usd for each in self.start_accounts), ZERO_USD)
        return settled_usd + sum((self._unsettled_usd(stage) for stage in self.stages), ZERO_USD)

    @property
    def overrun_usd(self) -> Decimal:
        """The cost of attempts above the money left in the run's accounts."""
        return sum((each.account.overrun_usd for each in self.start_accounts), ZERO_USD)

    def stage_spent_usd(self, stage: StageStory) -> Decimal:
        """Return the settled cost of a stage, plus its heartbeats' cost where it is not settled yet.

        The exit step corrects settled costs to the pods' own times.
        """
        return self._settled_usd.get(stage.name, ZERO_USD) + self._unsettled_usd(stage)

    @property
    def overhead_usd(self) -> Decimal:
        """The cost of routing and settling, known once the exit step has settled it."""
        return self._settled_usd.get(OVERHEAD, ZERO_USD)

    def spent_by_stage_usd(self, start_accounts: Sequence[StartAccount]) -> dict[str, Decimal]:
        """Return the settled dollars of these starts, by stage; overhead counts as a stage."""
        spent: dict[str, Decimal] = {}
        for each in start_accounts:
            for name, amount_usd in each.account.settled_usd.items():
                stage = AttemptId.parse(self.record.run_id, name).stage
                spent[stage] = spent.get(stage, ZERO_USD) + amount_usd
        return spent

    def extended_usd(self, attempt: AttemptStory) -> Decimal:
        """Return by how much the reservation of an attempt was extended."""
        return sum((each.extended_usd.get(attempt.key, ZERO_USD) for each in self.start_accounts), ZERO_USD)

    def is_held(self, attempt: AttemptStory) -> bool:
        """Return whether the reservation of an attempt is not settled yet."""
        return any(attempt.key in each.account.reservations for each in self.start_accounts)

    def wall_s(self, now: datetime | None = None) -> float:
        """Return the seconds that the run was active, all starts together.

        A start whose launcher is its supervisor is paid for from the start of that process, before its
        admission. For a start that is not closed, the time counts until `now`, or else until its last sign of
        life.
        """
        heartbeats = [attempt.heartbeat.at for attempt in self.attempts if attempt.heartbeat]
        total_s = 0.0
        for each in self.start_accounts:
            ended_at = (
                each.last_entry_at if each.account.closed else now or max([each.last_entry_at, *heartbeats])
            )
            own = [attempt for attempt in self.attempts if attempt.start_account == each]
            signs = [sign.started_at for attempt in own if (sign := attempt.receipt or attempt.heartbeat)]
            total_s += (ended_at - min([each.start.started_at, *signs])).total_seconds()
        return total_s

    @property
    def engine_steps(self) -> list[EngineStep]:
        """The engine's steps between the stages, where they were measured; between two starts, none were."""
        ended = sorted(
            ((each.receipt, each) for each in self.attempts if each.receipt),
            key=lambda pair: pair[0].started_at,
        )
        return [
            step
            for (before, earlier), (after, later) in pairwise(ended)
            if earlier.start_account == later.start_account
            and (step := step_between(before, after, later.decision.question))
        ]

    @cached_property
    def _settled_usd(self) -> dict[str, Decimal]:
        return self.spent_by_stage_usd(self.start_accounts)

    def _unsettled_usd(self, stage: StageStory) -> Decimal:
        heartbeats = [each.heartbeat for each in stage.attempts if each.heartbeat and self.is_held(each)]
        return sum((heartbeat.spent_usd for heartbeat in heartbeats), ZERO_USD)
