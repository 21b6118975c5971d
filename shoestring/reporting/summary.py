"""The summary of a run, which scripts rely on."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from pydantic import AwareDatetime, Field

from shoestring.core.money import Usd
from shoestring.core.record import Record, StoredRecord
from shoestring.core.text import join_names
from shoestring.core.types import STANDARD_CLASS, Format, Market, StorageClassName
from shoestring.data.run_records import StepError
from shoestring.reporting import number_text
from shoestring.reporting.run_story import (
    DONE,
    AttemptStory,
    RunStatus,
    RunStory,
    StageState,
    StageStory,
)
from shoestring.routing.pages.refusal_text import refusal_head, refusal_lines
from shoestring.spending.audit.heads import LedgerHead

MAX_REASONS = 3


class StageSummary(Record):
    """A stage that was placed. With several attempts: the last placement, and the totals of all attempts."""

    name: str
    state: StageState
    pool: str
    market: Market
    format: Format | None = Field(description="format of the data set that it wrote; null if it writes none")
    budget_usd: Usd
    est_usd: Usd
    p95_usd: Usd
    spent_usd: Usd
    seconds: float
    cache_hit: bool
    attempts: int
    storage_class: StorageClassName = STANDARD_CLASS


class RunSummary(StoredRecord):
    """A run in brief. Money is in strings; `stages` is in the order in which they were routed."""

    run_id: str
    status: RunStatus
    reason: str = Field(
        description="why the run was refused, failed or stopped; empty if it is done or running"
    )
    smallest_budget_usd: Usd | None = Field(
        description="for a refused run: the smallest budget that is enough, if there is one"
    )
    budget_usd: Usd
    spent_usd: Usd
    overhead_usd: Usd = Field(description="the part of spent_usd for routing and settling")
    overrun_usd: Usd = Field(
        Decimal(0), description="cost above the cap, which the ledger could not book; not in spent_usd"
    )
    wall_s: float = Field(description="seconds that the run was active, all starts together")
    deadline_at: AwareDatetime | None = Field(None, description="of the last start; null: it has none")
    late_s: float = Field(
        0.0, description="seconds by which the last stage ended after the deadline; 0: it did not"
    )
    engine_s: float = Field(
        0.0, description="seconds that the engine took between its stages; 0: nothing was measured"
    )
    engine_planned_s: float = Field(0.0, description="seconds that the decisions kept free for them")
    starts: int = Field(description="number of starts: 1, plus 1 per resume; 0 if the run was refused")
    stages: tuple[StageSummary, ...]
    not_taken: tuple[str, ...] = Field(
        (), description="stages of branches that the pipeline's conditions did not take"
    )
    may_be_done: bool = Field(
        False,
        description="only stages are missing of which it is not known whether their branch was taken: the "
        "engine's own state decides",
    )
    quality: dict[str, float]
    quality_warning: str = Field(
        "", description="set where the model is no better than a constant prediction"
    )
    sealed_test: str = Field(
        "", description="how many evaluations the test rows have had: the 12th evaluation on these 33 days"
    )
    ledger_heads: tuple[LedgerHead, ...] = Field(
        (), description="of the run's accounts, its month and its campaign: `ledger verify --against`"
    )


def summarise_run(story: RunStory) -> RunSummary:
    rows = [(attempt, stage) for stage in story.stages if (attempt := placed_attempt(stage))]
    rows.sort(key=lambda row: row[1].attempts[0].decision.question.asked_at)
    last = story.attempts[-1] if story.attempts else None
    return RunSummary(
        run_id=story.run_id,
        status=story.status,
        reason=end_reason(story),
        smallest_budget_usd=last.decision.smallest_budget_usd if last and last.state == "refused" else None,
        budget_usd=story.budget_usd,
        spent_usd=story.spent_usd,
        overhead_usd=story.overhead_usd,
        overrun_usd=story.overrun_usd,
        wall_s=round(story.wall_s(), 3),
        deadline_at=deadline_at(story),
        late_s=late_s(story),
        engine_s=round(sum(each.step_s for each in story.engine_steps), 3),
        engine_planned_s=round(sum(each.planned_s for each in story.engine_steps), 3),
        starts=len(story.start_accounts),
        stages=tuple(_stage(story, stage, attempt) for attempt, stage in rows),
        not_taken=tuple(stage.name for stage in story.stages if stage.state == "skipped"),
        may_be_done=story.status == "stopped" and all(map(is_done_or_unknown, story.stages)),
        quality=quality_of(story),
        quality_warning=story.evaluation.constant_warning if story.evaluation else "",
        sealed_test=_sealed_test(story),
        ledger_heads=story.ledger_heads,
    )


def is_done_or_unknown(stage: StageStory) -> bool:
    return stage.state in DONE or stage.may_be_skipped


def quality_of(story: RunStory) -> dict[str, float]:
    """Return the metrics of the evaluation, or those that the commands of a run reported."""
    if story.evaluation:
        return story.evaluation.quality
    receipts = [each.receipt for each in story.attempts if each.receipt] if story.record.command else []
    return {
        name: value
        for receipt in receipts
        if receipt.outcome
        for name, value in receipt.outcome.metrics.items()
    }


def deadline_at(story: RunStory) -> datetime | None:
    """Return the deadline of the last start; None: it has none."""
    return story.start_accounts[-1].start.deadline_at if story.start_accounts else None


def late_s(story: RunStory) -> float:
    """Return the seconds by which the last stage ended after the deadline; 0: it did not."""
    deadline = deadline_at(story)
    ends = [attempt.receipt.finished_at for attempt in story.attempts if attempt.receipt]
    if deadline is None or not ends:
        return 0.0
    return max(0.0, round((max(ends) - deadline).total_seconds(), 3))


def engine_text(summary: RunSummary) -> str:
    """Return what the engine took, and what was planned for it; empty if nothing was measured."""
    if not summary.engine_s:
        return ""
    return (
        f"{number_text.duration(summary.engine_s)} between the stages, "
        f"{number_text.duration(summary.engine_planned_s)} planned"
    )


def _sealed_test(story: RunStory) -> str:
    return story.evaluation.sealed_sentence if story.evaluation else ""


def placed_attempt(stage: StageStory) -> AttemptStory | None:
    """Return the last attempt that was placed, which a row of a stage describes."""
    return next((attempt for attempt in reversed(stage.attempts) if attempt.decision.choice), None)


def attempt_seconds(attempt: AttemptStory) -> float:
    """Return the seconds of an attempt: by its receipt, or up to its last heartbeat."""
    if attempt.receipt:
        return attempt.receipt.seconds
    heartbeat = attempt.heartbeat
    return (heartbeat.at - heartbeat.started_at).total_seconds() if heartbeat else 0.0


def _stage(story: RunStory, stage: StageStory, attempt: AttemptStory) -> StageSummary:
    choice = attempt.decision.choice
    assert choice is not None
    return StageSummary(
        name=stage.name,
        state=stage.state,
        pool=choice.pool,
        market=choice.market,
        format=choice.format,
        budget_usd=choice.budget_usd,
        est_usd=choice.est_usd,
        p95_usd=choice.p95_usd,
        spent_usd=story.stage_spent_usd(stage),
        seconds=round(sum(map(attempt_seconds, stage.attempts)), 3),
        cache_hit=choice.cached,
        attempts=len(stage.attempts),
        storage_class=choice.storage_class,
    )


def end_reason(story: RunStory) -> str:
    """Return why a run was refused, or ended before it was done; empty if it is done or running."""
    if story.status in ("done", "running"):
        return ""
    last = story.deciding_attempt
    if last is None:
        not_routed = with_error("the run started, but no stage was routed", story.error)
        return story.refusal.reason if story.refusal else not_routed
    if last.state == "refused":
        return refusal_text(last)
    outcome = {"failed": "failed", "lost": "was lost without a message", "stopped": "stopped"}.get(last.state)
    later = story.error if story.error and story.error.ended_at >= last.decision.question.asked_at else None
    if outcome is None:
        return with_error(unrouted_text(story, last.stage), later)
    is_lost = last.state == "lost" or (last.receipt is not None and last.receipt.cause == "lost")
    if is_lost and later is not None and later.step == last.stage:
        return with_error(f"{last.stage} failed", later)
    # A stage's own message already begins with its name.
    return (
        last.reason
        if last.reason.startswith(last.stage)
        else f"{last.stage} {outcome}" + (f": {last.reason}" if last.reason else "")
    )


def unrouted_text(story: RunStory, last_stage: str) -> str:
    """Return what is known of a run whose stages that were routed are done."""
    if unknown := [stage.name for stage in story.stages if stage.may_be_skipped]:
        was = "was" if len(unknown) == 1 else "were"
        return (
            f"the run ended after {last_stage}, and it is not known whether {join_names(unknown)} {was} to "
            "run: its exit step may not read the engine's Workflow"
        )
    return f"the run ended after {last_stage}, before the next stage was routed"


def with_error(sentence: str, error: StepError | None) -> str:
    """Return a sentence, followed by the error of a step if there is one."""
    return f"{sentence}: {error.reason}" if error else sentence


def refusal_text(attempt: AttemptStory) -> str:
    """Return the smallest change that helps, and the first few reasons."""
    decision = attempt.decision
    return "; ".join([refusal_head(decision), *refusal_lines(decision)[:MAX_REASONS]])
