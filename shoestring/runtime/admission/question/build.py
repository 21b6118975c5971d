"""Gather everything that a decision depends on into one Question, so that deciding can be pure."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from shoestring.config.engines import EngineTimes
from shoestring.config.retention import held_tariffs
from shoestring.config.tariffs import Tariffs
from shoestring.config.world import World
from shoestring.core.record import digest, record_bytes
from shoestring.data.formats.volume_probe import reading_fields
from shoestring.pricing.learned.learning import learn
from shoestring.routing.loop_items import budgets_of
from shoestring.routing.policy.migration import exploration_sd
from shoestring.routing.question import Question
from shoestring.runtime.admission.question.context import QuestionContext, joined_inputs, read_context
from shoestring.runtime.admission.stage_request import (
    StageRequest,
)
from shoestring.runtime.records.commitments import with_used_hours
from shoestring.runtime.records.egress_usage import with_egress_usage
from shoestring.runtime.records.policy_trial import rollback_reason


def build_question(world: World, request: StageRequest) -> Question:
    """Return the question about a stage, with everything that its decision depends on."""
    return question_in(read_context(world, request), world, request)


def question_in(read: QuestionContext, world: World, request: StageRequest) -> Question:
    """Return the question about a stage in a context that was read for it."""
    return Question(
        run_id=request.run_id,
        stage=request.needs[0].stage,
        attempt=request.attempt,
        seed=request.seed,
        asked_at=read.now,
        needs=read.needs,
        rows=read.size.rows,
        row_bytes=read.size.row_bytes,
        reads_format=read.size.format,
        reads_storage_class=read.size.storage_class,
        upstream=(*request.upstream, *joined_inputs(world.store, read.needs[0], read.size, request.inputs)),
        data_region=read.prices.tariffs.store_region,
        cached_outcome=read.cached.key,
        cached_format=read.cached.format,
        cached_storage_class=read.cached.storage_class,
        cached_later_stages=read.cached.later,
        families=read.families,
        budget_usd=request.budget_usd,
        spent_usd=request.spent_usd,
        held_usd=request.held_usd,
        stage_budgets=budgets_of(request.stage_budgets, request.needs),
        **time_fields(request.engine, request.engine_s, request.deadline_left_s, request.deadline_used_s),
        pools=read.pools,
        quotes=read.prices.quotes,
        rejected_prices=read.prices.rejected,
        commitments=with_used_hours(world.store, read.prices.committed),
        stockouts=read.stockouts,
        tariffs=current_tariffs(world, read),
        **reading_fields(world.store, world.clock),
        learned=learn(read.known.receipts, read.needs, read.pools),
        exploration_sd=exploration_sd(world.policy, read.needs[0], read.known.migrations),
        images=world.images,
        preferences=world.policy.preferences,
        candidate_policy=world.policy.candidate,
        rollback_reason=rollback_reason(world.store, world.policy.candidate),
        notes=read.notes,
        digests=question_digests(world, request, read.cache_key),
    )


def current_tariffs(world: World, read: QuestionContext) -> Tariffs:
    """Return the tariffs, with this month's transfers and the time for which data will be stored."""
    held = held_tariffs(read.prices.tariffs, world.policy.retention)
    return with_egress_usage(world.store, held, read.now)


def time_fields(
    engine: EngineTimes | None, engine_s: float, left_s: float | None, used_s: float
) -> dict[str, Any]:
    """Return the fields of a question with `left_s` to its deadline, of which the engine takes `engine_s`.

    `left_s` None: no deadline. `used_s`: the seconds of it that have passed.
    """
    fields = {"engine": engine, "engine_s": engine_s, "deadline_left_s": None, "deadline_used_s": 0.0}
    if left_s is None:
        return fields
    return fields | {"deadline_left_s": left_s - engine_s, "deadline_used_s": max(0.0, used_s + engine_s)}


def question_digests(world: World, request: StageRequest, cache_key: str) -> dict[str, str]:
    """Return the digests of what the question was made from, and the keys of the stage's inputs."""
    task, sha256 = "command" if request.command else "recipe", digest(record_bytes(request.task))
    item = {"item": request.item_sha256} if request.item_sha256 else {}
    return {"world": world.digest, task: sha256, "cache": cache_key} | item | asdict(request.inputs)
