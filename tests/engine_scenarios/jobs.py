"""Runs that nothing disturbs: the main job, a schedule, an author's stage, branches, and a refusal."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from engine_scenarios.books import (
    accounts,
    check_artifacts,
    check_books,
    check_dollars,
    check_placement,
    decision,
    end_of,
    receipts,
)
from engine_scenarios.engine import Engine, Feature, Job
from engine_scenarios.own_package import OWN_IMAGE, forked_pipeline, own_stage_pipeline
from engine_scenarios.recipes import IN_THE_IMAGE, RAIN, write_recipe
from engine_scenarios.waiting import wait_for
from pod_times import scheduled_at

from shoestring.data.run_records import read_run_record
from shoestring.routing.placement import ROUTE
from shoestring.runtime.records.run_setup import run_id_of_label

TRAINING = ("ingest", "preprocess", "train", "evaluate")
TOO_SMALL = "0.000001"


def require(engine: Engine, feature: Feature) -> None:
    """Skip the scenario, with the engine's reason, if it needs what the engine lacks."""
    if reason := engine.lacks.get(feature):
        pytest.skip(reason)


def main_job(engine: Engine, package: Path) -> None:
    """The flights with their own budget and deadline end with an evaluated model, in time."""
    run = engine.start(Job("flights"))
    summary = run.wait().done()
    assert (summary.status, [stage.name for stage in summary.stages]) == ("done", [*TRAINING])
    assert (summary.late_s, [stage.attempts for stage in summary.stages]) == (0, [1] * len(TRAINING))
    assert summary.spent_usd <= summary.budget_usd and summary.overrun_usd == 0
    assert summary.quality["log_loss"] < summary.quality["log_loss_class_prior"]
    assert engine.state(run.engine_id) == "succeeded"
    ends = [each.cause + each.reason for stage in TRAINING for each in receipts(engine, run.run_id, stage)]
    assert ends == [""] * len(TRAINING)
    ran = [stage.name for stage in summary.stages if not stage.cache_hit]
    check_placement(engine, run, *ran)
    check_dollars(engine, run, *ran)
    check_artifacts(engine, run.run_id)
    check_books(engine, run.run_id)


def recurring(engine: Engine, package: Path) -> None:
    """A schedule starts runs with ids of their own, each with an account of its own."""
    require(engine, "recurring")
    recipe = write_recipe(engine.scratch, RAIN, "recurring.yaml")
    schedule = engine.schedule(Job(recipe))
    try:
        (first, *_) = wait_for(
            lambda: engine.scheduled_runs(schedule) or None, "the first run of the schedule", timeout_s=300.0
        )
    finally:
        engine.unschedule(schedule)
    wait_for(lambda: engine.state(first) != "running" or None, f"the end of run {first}", timeout_s=1500.0)
    assert engine.state(first) == "succeeded"
    run_id = run_id_of_label(engine.store, first)
    assert run_id == first and len(accounts(engine, run_id)) == 1
    check_artifacts(engine, run_id)
    check_books(engine, run_id)


def cached_run(engine: Engine, package: Path) -> None:
    """A run of which every result is cached pays for no stage. Where the engine can leave its stages out, the
    first route step and the exit step are its only pods. Braces in the recipe arrive as they are written.
    """
    text = RAIN.replace("weather.csv}", "weather.csv, read: {missing: ['{{workflow.name}}', '{{=1+1}}']}}")
    job = Job(write_recipe(engine.scratch, text, "cached.yaml"))
    first = engine.start(job).wait().done()
    run = engine.start(job)
    summary = run.wait().done()
    read = read_run_record(engine.store, run.run_id).recipe.source["weather"].read
    assert read.missing == ("{{workflow.name}}", "{{=1+1}}")
    assert [(stage.name, stage.cache_hit) for stage in summary.stages] == [(name, True) for name in TRAINING]
    assert summary.spent_usd == summary.overhead_usd > 0 and summary.quality == first.quality
    started = [stage for stage in TRAINING if engine.pods(run, stage)]
    assert started == ([] if engine.leaves_out_cached_stages else [*TRAINING])
    routed = [stage for stage in TRAINING if engine.pods(run, f"{ROUTE}{stage}")]
    assert routed == (["ingest"] if engine.leaves_out_cached_stages else [*TRAINING])
    assert engine.state(run.engine_id) == "succeeded"
    check_artifacts(engine, run.run_id)
    check_books(engine, run.run_id)


def own_stage(engine: Engine, package: Path) -> None:
    """An author's stage runs in its own image, where its route step placed it."""
    recipe = write_recipe(engine.scratch, RAIN, "own.yaml")
    run = engine.start(Job(recipe, own_stage_pipeline(package)))
    summary = run.wait().done()
    assert [(stage.name, stage.attempts) for stage in summary.stages] == [("ingest", 1), ("dedupe", 1)]
    (receipt,) = receipts(engine, run.run_id, "dedupe")
    # The data set has the weather of three airports.
    assert receipt.outcome is not None and receipt.outcome.rows == 3
    placement = decision(engine, run.run_id, "dedupe").placement
    assert placement is not None and placement.image.endswith(OWN_IMAGE)
    check_placement(engine, run, "ingest", "dedupe")
    check_dollars(engine, run, "ingest", "dedupe")
    check_books(engine, run.run_id)


def branches(engine: Engine, package: Path) -> None:
    """The route step of a stage after two branches decides when both have ended."""
    recipe = write_recipe(engine.scratch, RAIN, "forked.yaml")
    run = engine.start(Job(recipe, forked_pipeline(package)))
    summary = run.wait().done()
    stages = ("ingest", "airports", "months", "both")
    assert sorted(stage.name for stage in summary.stages) == sorted(stages)
    (router,) = engine.pods(run, f"{ROUTE}both")
    for branch in ("airports", "months"):
        assert scheduled_at(router) >= end_of(engine.pods(run, branch)), branch
    check_dollars(engine, run, *stages)
    check_books(engine, run.run_id)


def unusable_recipe(engine: Engine, package: Path) -> None:
    """A recipe that the first route step cannot use ends the run, and the command prints that step's
    sentence.
    """
    assert IN_THE_IMAGE in RAIN
    elsewhere = RAIN.replace(IN_THE_IMAGE, "{path: /no/such/weather.csv}")
    run = engine.start(Job(write_recipe(engine.scratch, elsewhere, "unusable.yaml")))
    ended = run.wait()
    assert (ended.code, ended.summary) == (1, None), ended.err
    assert "there is no file or folder /no/such/weather.csv" in ended.err.splitlines()[-1], ended.err
    assert engine.state(run.engine_id) == "failed"
    assert [engine.pods(run, stage) for stage in TRAINING] == [[]] * len(TRAINING)


def refusal(engine: Engine, package: Path) -> None:
    """A budget that is too small is refused with the one that is enough, and no stage gets a pod."""
    run = engine.start(Job(write_recipe(engine.scratch, RAIN, "refused.yaml"), budget_usd=TOO_SMALL))
    summary = run.wait().not_done()
    assert (summary.status, summary.starts) == ("refused", 0)
    assert summary.smallest_budget_usd is not None and summary.smallest_budget_usd > Decimal(TOO_SMALL)
    assert f"the smallest budget that is enough is ${summary.smallest_budget_usd}" in summary.reason
    assert engine.state(run.engine_id) == "failed"
    assert [engine.pods(run, stage) for stage in TRAINING] == [[]] * len(TRAINING)
    engine.read("ledger", "verify")
