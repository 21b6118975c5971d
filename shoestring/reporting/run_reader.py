"""Reads everything about a run from the store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal

from pydantic import BaseModel

from shoestring.core import store_layout
from shoestring.core.attempt_id import declared_stage, item_of, item_order
from shoestring.core.datasets import Manifest
from shoestring.core.errors import CorruptObject, LedgerCorrupt, NotInStore
from shoestring.core.interfaces import Store
from shoestring.core.money import from_microusd
from shoestring.core.receipt import Receipt
from shoestring.core.types import Need
from shoestring.data.inspect.page_records import DataPage
from shoestring.data.run_records import (
    AdmissionRefusal,
    EngineEnd,
    RecordType,
    RunRecord,
    RunStart,
    read_each,
    read_record,
    read_run_record,
    read_step_error,
    run_of,
)
from shoestring.data.storage.blobs import load_manifest
from shoestring.evaluation.results import EvaluationResults
from shoestring.models.run_models import PREDICTIONS_RECORD, RunPredictions
from shoestring.reporting.charges import Charge, settled_charges
from shoestring.reporting.run_story import AttemptStory, RunStory, StageStory, StartAccount
from shoestring.routing.decision import Decision
from shoestring.routing.policy.migration import MigrationCheck
from shoestring.spending.audit.heads import LedgerHead
from shoestring.spending.heartbeat import Heartbeat
from shoestring.spending.ledger.chain import AccountChain
from shoestring.spending.ledger.entry import read_head
from shoestring.training.window_log import read_curve

DATA_STAGES = ("ingest", "preprocess")


class RunReader:
    """Reads one run repeatedly; records that cannot change are read once."""

    def __init__(self, store: Store, run_id: str) -> None:
        self._store, self._run_id = store, run_id
        self._record: RunRecord | None = None
        self._cache: dict[str, BaseModel] = {}
        self._chains: dict[str, AccountChain] = {}

    def read(self) -> RunStory:
        """Return the current state of the run, without its curve and evaluation.

        Raises:
            UnknownName: there is no such run.
            LedgerCorrupt: a ledger chain is broken.
        """
        self._record = self._record or read_run_record(self._store, self._run_id)
        starts = self._read_all(store_layout.starts(self._run_id), RunStart, immutable=True)
        run = run_of(self._record, starts)
        start_accounts = tuple(self._start_account(start) for start in run.starts)
        attempts = self._attempts(start_accounts)
        # A pipeline may list a stage for some of its routers only.
        listed = [need for each in attempts for need in each.decision.question.may_be_routed]
        needs = [*{need.stage: need for need in listed}.values()]
        end = None
        if start_accounts and start_accounts[-1].account.closed:
            key = store_layout.engine_end(self._run_id, start_accounts[-1].start.number)
            end = _read_if_present(self._store, key, EngineEnd)
        by_stage: dict[str, list[AttemptStory]] = defaultdict(list)
        for attempt in attempts:
            by_stage[attempt.stage].append(attempt)
        stages = tuple(
            StageStory(name, need.elastic, tuple(by_stage[name]), end)
            for name, need in stages_of(needs, attempts).items()
        )
        refusal = None
        if not start_accounts:
            refusal = _read_if_present(self._store, store_layout.refusal(self._run_id), AdmissionRefusal)
        charges = self._charges(run.record, attempts)
        story = RunStory(run.record, start_accounts, stages, None, None, charges, refusal)
        if story.status in ("done", "running"):
            return story
        return replace(story, error=read_step_error(self._store, self._run_id))

    def _attempts(self, start_accounts: tuple[StartAccount, ...]) -> list[AttemptStory]:
        """Return all attempts, in the order in which they were routed."""
        # Heartbeats before receipts: an attempt that ends in between then counts as ended, not as silent.
        heartbeats = {
            (each.stage, each.attempt): each
            for each in self._read_all(store_layout.heartbeats(self._run_id), Heartbeat)
        }
        receipts = {
            (each.stage, each.attempt): each
            for each in self._read_all(store_layout.receipts(self._run_id), Receipt, immutable=True)
        }
        decisions = self._read_all(store_layout.decisions(self._run_id), Decision, immutable=True)
        attempts = []
        for decision in sorted(decisions, key=lambda each: each.question.asked_at):
            question = decision.question
            key = (question.stage, question.attempt)
            earlier = [each for each in start_accounts if each.start.started_at <= question.asked_at]
            check = None
            if question.needs[0].elastic:
                check_key = store_layout.migration_check(self._run_id, question.attempt_id)
                check = _read_if_present(self._store, check_key, MigrationCheck)
            start_account = earlier[-1] if earlier else None
            attempts.append(
                AttemptStory(decision, receipts.get(key), heartbeats.get(key), start_account, check)
            )
        return attempts

    def _charges(self, run: RunRecord, attempts: list[AttemptStory]) -> tuple[Charge, ...]:
        """Return the settled charges, with their records."""
        by_key = {attempt.key: attempt for attempt in attempts}
        found = [charge for chain in self._chains.values() for charge in settled_charges(chain)]
        return tuple(
            replace(
                charge,
                run=run,
                decision=attempt.decision if attempt else None,
                receipt=attempt.receipt if attempt else None,
            )
            for charge in found
            for attempt in [by_key.get(charge.entry.reservation)]
        )

    def _read_all(
        self, prefix: str, record_type: type[RecordType], *, immutable: bool = False
    ) -> list[RecordType]:
        keys = list(self._store.list(prefix))
        known = {key: each for key in keys if isinstance(each := self._cache.get(key), record_type)}
        new = [key for key in keys if key not in known]
        known |= dict(zip(new, read_each(self._store, new, record_type), strict=True))
        if immutable:
            self._cache |= known
        return [known[key] for key in keys]

    def _start_account(self, start: RunStart) -> StartAccount:
        chain = self._chains.get(start.account)
        if chain is None:
            head = None
            with suppress(LedgerCorrupt):
                # Only so that the entries are read in parallel.
                head = read_head(self._store, start.account)
            chain = AccountChain(self._store, start.account, head.number if head else 0)
            self._chains[start.account] = chain
        else:
            chain.read_new()
        last_entry_at = chain.entries[-1].entry.at if chain.entries else start.started_at
        extended_usd: dict[str, Decimal] = {}
        for entry in (sealed.entry for sealed in chain.entries if sealed.entry.kind == "extend"):
            amount_usd = from_microusd(entry.amount_microusd)
            extended_usd[entry.reservation] = extended_usd.get(entry.reservation, Decimal(0)) + amount_usd
        return StartAccount(start, chain.account.state(), last_entry_at, extended_usd)


def read_run_story(store: Store, run_id: str) -> RunStory:
    """Read all records of a run. Parts that do not exist, or not yet, are None.

    Raises:
        UnknownName: there is no such run.
        LedgerCorrupt: a ledger chain is broken.
    """
    story = RunReader(store, run_id).read()
    parents = {name for each in story.start_accounts for name in (each.account.parent, each.account.campaign)}
    heads = ((name, read_head(store, name)) for name in sorted(filter(None, parents)))
    return replace(
        story,
        parent_heads=tuple(
            LedgerHead(account=name, entries=head.number, sha256=head.sha256) for name, head in heads if head
        ),
        data=_read_if_present(store, store_layout.data_page(run_id), DataPage),
        curve=read_curve(store, run_id),
        evaluation=_read_if_present(store, store_layout.evaluation(run_id), EvaluationResults),
        data_sets=tuple(_data_sets(store, story)),
        predictions=_read_if_present(
            store, store_layout.result_record(run_id, PREDICTIONS_RECORD), RunPredictions
        ),
    )


def stages_of(needs: Sequence[Need], attempts: Sequence[AttemptStory]) -> dict[str, Need]:
    """Return the needs of a run by the names of its stages: of a loop, those of its routed items."""
    items: dict[str, set[str]] = defaultdict(set)
    for attempt in attempts:
        if item_of(attempt.stage):
            items[declared_stage(attempt.stage)].add(attempt.stage)
    declared = {declared_stage(need.stage): need for need in needs}
    return {
        stage: need
        for name, need in declared.items()
        for stage in sorted(items.get(name, {name}), key=item_order)
    }


def _data_sets(store: Store, story: RunStory) -> Iterator[Manifest]:
    """Yield the manifests that ingest and preprocess have made, of those that are still there."""
    for stage in story.stages:
        attempt = stage.last_attempt
        if stage.name in DATA_STAGES and attempt and attempt.receipt and attempt.receipt.outcome:
            with suppress(NotInStore, CorruptObject):
                yield load_manifest(store, attempt.receipt.outcome.key)


def _read_if_present(store: Store, key: str, record_type: type[RecordType]) -> RecordType | None:
    try:
        return read_record(store, key, record_type)
    except NotInStore:
        return None
