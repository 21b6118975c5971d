"""A run of the flights recipe, written record by record with its ledger, without running its stages."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

from clocks import BOOT_S
from recorded_evaluation import curve, scorecard
from recorded_needs import NEEDS, SPEEDS

from shoestring.backends.folder_store import FolderStore
from shoestring.config.engines import EngineTimes
from shoestring.config.tariffs import Tariffs
from shoestring.core import store_layout
from shoestring.core.attempt_id import declared_stage, item_of
from shoestring.core.money import usd
from shoestring.core.pod_ref import PodRef
from shoestring.core.receipt import Receipt
from shoestring.core.record import digest, record_bytes
from shoestring.core.types import Format, Pool, Quote, RejectedPrice, StageOutcome
from shoestring.data.job import job_of_recipe
from shoestring.data.recipe_files import find_recipe
from shoestring.data.run_records import RunRecord, RunStart
from shoestring.routing.decide import decide
from shoestring.routing.decision import Choice, Decision
from shoestring.routing.loop_items import LoopItem, needs_of_item, with_open_items
from shoestring.routing.question import Question
from shoestring.spending.heartbeat import Heartbeat
from shoestring.spending.ledger.ledger import Ledger

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
RUN_ID = "flights-20261121-120000-ab12"
ROWS = 336_776
STALLED = "the validation loss stopped improving; the rest of the budget is not used"
LAPTOP = tuple(Pool(name=f"cpu-{cores}", cores=cores, memory_gb=4) for cores in (1, 2))
STAGES = [need.stage for need in NEEDS]


class RecordedClock:
    def __init__(self) -> None:
        self.at = NOON

    def now(self) -> datetime:
        return self.at

    def monotonic_s(self) -> float:
        return BOOT_S + (self.at - NOON).total_seconds()

    def sleep(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


class Recording:
    """Writes the records of a run, step by step. Each step advances the clock; data is charged if `tariffs`
    is given.
    """

    def __init__(
        self,
        folder: Path,
        budget_usd: str = "0.003",
        pools: tuple[Pool, ...] = LAPTOP,
        source: str = "assumption: $0.04 a core-hour",
        tariffs: Tariffs | None = None,
    ) -> None:
        self.tariffs = tariffs
        self.store, self.clock = FolderStore(folder), RecordedClock()
        self.ledger = Ledger(self.store, self.clock)
        self.budget_usd, self.spent_usd = usd(budget_usd), Decimal(0)
        self.pools, self.source = pools, source
        self.account, self.starts, self.attempts = "", 0, dict[str, int]()
        self.engine: EngineTimes | None = None
        self.needs, self.decisions = NEEDS, dict[str, Decision]()
        recipe = find_recipe("flights")
        run = RunRecord(
            run_id=RUN_ID,
            job=job_of_recipe(recipe, seed=7),
            recipe=recipe,
            recipe_sha256=digest(record_bytes(recipe)),
            world="laptop",
            world_sha256=digest(b"world"),
            created_at=NOON,
            environment={
                "python": "3.11.9",
                "machine": "Linux x86_64",
                "torch": "2.9.1",
                "shoestring": "0.1.0",
            },
        )
        self.put("run.json", run)

    def put(self, name: str, record: Any) -> None:
        self.store.put(f"runs/{RUN_ID}/{name}", record_bytes(record))

    def start(self) -> None:
        self.starts += 1
        self.account = RUN_ID if self.starts == 1 else f"{RUN_ID}.{self.starts}"
        start = RunStart(
            number=self.starts,
            account=self.account,
            budget_usd=self.budget_usd,
            started_at=self.clock.now(),
            deadline_at=None,
            launcher=None,
        )
        self.put(f"starts/{self.starts}.json", start)
        self.ledger.open(self.account, self.budget_usd - self.spent_usd)
        self.ledger.reserve(
            self.account, f"overhead-{self.starts}", "overhead", self.starts, self.overhead_usd
        )

    def evaluated(self) -> None:
        """Record a run from start to end, without cache hits."""
        self.start()
        for stage, seconds in (("ingest", 6.1), ("preprocess", 7.3)):
            self.route(stage)
            self.end(seconds, rows=ROWS)
        self.trained(61.2)
        self.route("evaluate")
        self.end(5.2, rows=33_412)
        self.put("evaluation.json", scorecard(RUN_ID))
        self.close()

    def trained(self, seconds: float) -> None:
        self.route("train")
        self.put("curve.json", curve(RUN_ID, self.spent(seconds)))
        self.end(seconds, samples=2_640_000, rows=269_420, stop_reason=STALLED)

    @property
    def overhead_usd(self) -> Decimal:
        return usd("0.0003") if self.budget_usd > usd("0.001") else usd("0")

    def quotes(self) -> tuple[Quote, ...]:
        return tuple(
            Quote(
                pool=pool.name,
                market=market,
                usd_per_hour=usd(
                    Decimal(pool.cores + 40 * pool.gpu_count)
                    * Decimal("0.04")
                    * (Decimal("0.35") if market == "spot" else 1)
                ),
                as_of=date(2026, 11, 1),
                source=self.source,
            )
            for pool in self.pools
            for market in pool.markets
        )

    def question(self, stage: str, cached: str | None) -> Question:
        number = [need.stage for need in self.needs].index(declared_stage(stage))
        needs = self.needs[number:]
        if item := item_of(stage):
            needs = needs_of_item(needs, LoopItem(item, needs[0].items, 0, "digest"))
        state = self.ledger.state(self.account) if self.account else None
        return Question(
            run_id=RUN_ID,
            stage=stage,
            attempt=self.attempts.get(stage, 0) + 1,
            seed=7,
            asked_at=self.clock.now(),
            needs=with_open_items(needs, self.attempts),
            rows=ROWS,
            row_bytes=60 if number else 0,
            reads_format=Format.PACKED if number else None,
            cached_outcome=cached,
            cached_format=Format.PACKED if cached else None,
            budget_usd=self.budget_usd,
            spent_usd=self.spent_usd + (state.spent_usd if state else 0),
            held_usd=state.held_usd if state else self.overhead_usd,
            pools=self.pools,
            quotes=self.quotes(),
            rejected_prices=(
                RejectedPrice(row="cpu-2 spot $0.20", reason="spot above on-demand: $0.20 over $0.08"),
            ),
            speeds=SPEEDS,
            tariffs=self.tariffs or Tariffs(),
            digests={"world": digest(b"world"), "recipe": digest(b"recipe")},
            engine=self.engine,
        )

    def route(self, stage: str, cached: str | None = None) -> Decision:
        """Decide and reserve. The route step's own pod takes 0.8 s."""
        self.clock.sleep(0.8)
        decision = decide(self.question(stage, cached))
        number = self.attempts[stage] = decision.question.attempt
        choice = decision.choice
        if choice and not choice.cached:
            self.ledger.reserve(
                self.account, f"{stage}-{number}", stage, number, choice.p95_usd, choice.reserved_later_usd
            )
        self.put(f"decisions/{stage}-{number}.json", decision)
        self.decision, self.extended_usd = decision, Decimal(0)
        self.decisions[stage] = decision
        return decision

    def turn_to(self, stage: str) -> Recording:
        """Continue with the last attempt at a stage, where those of several are open."""
        self.decision, self.extended_usd = self.decisions[stage], Decimal(0)
        return self

    @property
    def choice(self) -> Choice:
        assert self.decision.choice is not None
        return self.decision.choice

    @property
    def hold(self) -> str:
        return f"{self.decision.question.stage}-{self.decision.question.attempt}"

    def extend(self, amount_usd: str) -> None:
        """Extend the reservation of the attempt."""
        self.extended_usd = usd(amount_usd)
        self.ledger.extend(self.account, self.hold, self.extended_usd, self.choice.reserved_later_usd)

    def spent(self, seconds: float) -> Decimal:
        return min(usd(self.choice.usd_per_hour * Decimal(str(seconds)) / 3600), self.most_usd)

    @property
    def most_usd(self) -> Decimal:
        return self.choice.p95_usd + self.extended_usd

    def beat(
        self, seconds: float, phase: str = "", samples: int = 0, total: int | None = None, **quality: float
    ) -> None:
        """Write a heartbeat this many seconds after the pod began, which is now."""
        question = self.decision.question
        began = self.clock.now()
        self.clock.sleep(seconds)
        beat = Heartbeat(
            run_id=RUN_ID,
            stage=question.stage,
            attempt=question.attempt,
            pod=PodRef.parse("host.1.1"),
            state="running",
            usd_per_hour=self.choice.usd_per_hour,
            started_at=began,
            at=self.clock.now(),
            interval_s=1.0,
            spent_usd=self.spent(seconds),
            phase=phase,
            samples=samples,
            total=total,
            quality=quality,
        )
        self.store.put(store_layout.heartbeat(RUN_ID, self.hold), record_bytes(beat))

    def end(
        self,
        seconds: float,
        status: Literal["done", "failed", "stopped", "lost"] = "done",
        reason: str = "",
        **outcome: Any,
    ) -> None:
        """Settle an attempt that took this many seconds from now, and write its receipt."""
        question, choice = self.decision.question, self.choice
        began = self.clock.now()
        self.clock.sleep(seconds)
        fees_usd = choice.incurred_usd(done=status == "done") if self.tariffs else Decimal(0)
        spent_usd = Decimal(0) if choice.cached else min(self.spent(seconds) + fees_usd, self.most_usd)
        if not choice.cached:
            self.ledger.settle(self.account, self.hold, spent_usd, reason)
        receipt = Receipt(
            run_id=RUN_ID,
            stage=question.stage,
            attempt=question.attempt,
            pod=PodRef.parse("host.1.1"),
            decision_key=f"runs/{RUN_ID}/decisions/{self.hold}.json",
            status=status,
            reason=reason,
            pool=choice.pool,
            market=choice.market,
            format=choice.format,
            cache_hit=choice.cached,
            budget_usd=choice.budget_usd,
            est_usd=choice.est_usd,
            p95_usd=choice.p95_usd,
            est_s=choice.est_s,
            spent_usd=spent_usd,
            fees_usd=fees_usd,
            started_at=began,
            finished_at=self.clock.now(),
            seconds=seconds,
            outcome=StageOutcome(key="datasets/flights/1.json", **outcome) if status == "done" else None,
            ledger_head=self.ledger.state(self.account).head_hash,
        )
        self.put(f"receipts/{self.hold}.json", receipt)

    def close(self) -> None:
        self.clock.sleep(0.5)
        self.ledger.settle(self.account, f"overhead-{self.starts}", min(usd("0.000061"), self.overhead_usd))
        self.ledger.close(self.account)
        self.spent_usd += self.ledger.state(self.account).spent_usd
