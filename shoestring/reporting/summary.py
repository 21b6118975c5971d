"""The summary of a run that scripts rely on."""

from __future__ import annotations

from pydantic import Field

from shoestring.core.money import Usd
from shoestring.core.record import Record, StoredRecord
from shoestring.core.types import STANDARD_CLASS, Format, Market, StorageClassName
from shoestring.reporting.run_story import Attempt, RunStory, Stage, State, Status
from shoestring.routing.candidates import NONE, RefusalCode
from shoestring.routing.offers.offer_costs import stage_offer_table

SENTENCES = 3


class StageSummary(Record):
    """A stage that was given a place. Of several attempts: where the last was placed, and what all of them took."""

    name: str
    state: State
    pool: str
    market: Market
    format: Format | None = Field(description="of the data set that it wrote; null when it writes none")
    budget_usd: Usd
    est_usd: Usd
    p95_usd: Usd
    spent_usd: Usd
    seconds: float
    cache_hit: bool
    attempts: int
    storage_class: StorageClassName = STANDARD_CLASS


class RunSummary(StoredRecord):
    """A run in short. Money in strings; `stages` in the order in which they were routed."""

    run_id: str
    status: Status
    sentence: str = Field(
        description="why it was refused, failed or stopped; empty when it is done or running"
    )
    smallest_budget_usd: Usd | None = Field(
        description="of a run that was refused: the smallest budget that would work, if any would"
    )
    budget_usd: Usd
    spent_usd: Usd
    overhead_usd: Usd = Field(description="the part of spent_usd that deciding and settling took")
    wall_s: float = Field(description="seconds that the run was going, all starts together")
    starts: int = Field(
        description="1, and one more for each time that it was resumed; 0 when it was refused"
    )
    stages: tuple[StageSummary, ...]
    quality: dict[str, float]


def summarise_run(story: RunStory) -> RunSummary:
    rows = [(attempt, stage) for stage in story.stages if (attempt := placed(stage))]
    rows.sort(key=lambda row: row[1].attempts[0].decision.question.asked_at)
    last = story.attempts[-1] if story.attempts else None
    return RunSummary(
        run_id=story.run_id,
        status=story.status,
        sentence=sentence(story),
        smallest_budget_usd=last.decision.smallest_budget_usd if last and last.state == "refused" else None,
        budget_usd=story.budget_usd,
        spent_usd=story.spent_usd,
        overhead_usd=story.overhead_usd,
        wall_s=round(story.wall_s(), 3),
        starts=len(story.books),
        stages=tuple(_stage(story, stage, attempt) for attempt, stage in rows),
        quality=story.scorecard.quality if story.scorecard else {},
    )


def placed(stage: Stage) -> Attempt | None:
    """The last attempt that was given a place: the one that a stage's row is about."""
    return next((attempt for attempt in reversed(stage.attempts) if attempt.decision.choice), None)


def attempt_seconds(attempt: Attempt) -> float:
    """By the receipt; before there is one, up to the last heartbeat."""
    if attempt.receipt:
        return attempt.receipt.seconds
    beat = attempt.heartbeat
    return (beat.at - beat.started_at).total_seconds() if beat else 0.0


def _stage(story: RunStory, stage: Stage, attempt: Attempt) -> StageSummary:
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


def sentence(story: RunStory) -> str:
    """Why a run came to nothing, or to less than was asked."""
    if story.status in ("done", "running"):
        return ""
    if not story.attempts:
        return story.refusal.reason if story.refusal else "it was begun, and nothing was ever routed"
    last = story.attempts[-1]
    if last.state == "refused":
        return refusal(last)
    how = {"failed": "failed", "lost": "was lost without a word", "stopped": "stopped"}.get(last.state)
    if how is None:
        return f"it ended after {last.stage}, before the stage that follows was routed"
    # What a stage says of itself begins with its name already.
    return (
        last.why
        if last.why.startswith(last.stage)
        else f"{last.stage} {how}" + (f": {last.why}" if last.why else "")
    )


def refusal(attempt: Attempt) -> str:
    """The smallest budget that would do, and what stands against the cheapest offer; else the first few reasons."""
    decision = attempt.decision
    question, smallest_usd, columns = (
        decision.question,
        decision.smallest_budget_usd,
        stage_offer_table(decision.candidates, 0),
    )
    if smallest_usd is None:
        # Money is not what is missing, so what is said of it does not help.
        other = [
            refused for refused in decision.refusals if refused.code is not RefusalCode.OVER_BUDGET
        ] or decision.refusals
        why = list(dict.fromkeys(refused.sentence for refused in other))[:SENTENCES]
        return f"nothing can take {question.stage}, whatever the budget: {'; '.join(why)}"
    takeable = [refused for refused in decision.refusals if columns.exclusion[refused.candidate] == NONE]
    cheapest = min(takeable, key=lambda refused: columns.min_p95_microusd[refused.candidate])
    small = (
        f"a budget of ${question.budget_usd} is too small: ${smallest_usd} is the smallest that would work"
    )
    return f"{small}. The cheapest offer for {question.stage}: {cheapest.sentence}"
