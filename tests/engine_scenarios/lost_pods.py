"""Runs that are disturbed: terminated and resumed, and with pods that are deleted, also by force."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine_scenarios.books import (
    accounts,
    check_artifacts,
    check_books,
    receipts,
    wait_for_checkpoint,
    wait_for_heartbeat,
    wait_for_pod,
)
from engine_scenarios.engine import Engine, Job, StartedRun
from engine_scenarios.recipes import LONG_RAIN, write_recipe

from shoestring.reporting.summary import RunSummary


def terminated_and_resumed(engine: Engine, package: Path) -> None:
    """A terminated run is settled; under its id it continues from its checkpoint, with the rest of its
    budget.
    """
    job = Job(write_recipe(engine.scratch, LONG_RAIN, "terminated.yaml"))
    run = train_to_checkpoint(engine, job)
    engine.terminate(run.engine_id)
    stopped = run.wait().not_done()
    assert stopped.status in ("stopped", "failed"), stopped.reason
    assert engine.state(run.engine_id) == "failed"
    check_books(engine, run.run_id)
    check_resumed(engine, run, engine.start(job, resume=run.run_id).wait().done())


HOOK: dict[str, Any] = {"lifecycle": {"preStop": {"sleep": {"seconds": 25}}}}
"""Lets a container run on, once its pod is deleted or overdue, before the first signal."""


def pod_deleted(engine: Engine, package: Path) -> None:
    """A training whose pod is deleted continues from its checkpoint: by itself where the engine routes its
    stage again, else when its user resumes the run. Where pods have a hook, it ends by itself, with notice.
    """
    job = Job(write_recipe(engine.scratch, LONG_RAIN, "deleted.yaml"))
    run = train_to_checkpoint(engine, job)
    pod = engine.pods(run, "train")[-1]
    engine.delete_pod(pod["metadata"]["name"])
    ended = run.wait()
    if any(each.get("lifecycle") == HOOK["lifecycle"] for each in pod["spec"]["containers"]):
        first = receipts(engine, run.run_id, "train")[0]
        assert (first.status, first.cause) == ("stopped", "stop-requested"), first
    if engine.reroutes_deleted_pods or not ended.code:
        summary = ended.done()
        assert len(receipts(engine, run.run_id, "train")) == 2
        check_whole(engine, run, summary)
        return
    assert ended.not_done().status in ("stopped", "failed")
    check_books(engine, run.run_id)
    check_resumed(engine, run, engine.start(job, resume=run.run_id).wait().done())


def pod_force_deleted(engine: Engine, package: Path) -> None:
    """A pod that is deleted by force soon after its start is created again, or its run is resumed; either
    way no attempt is paid twice.
    """
    job = Job(write_recipe(engine.scratch, LONG_RAIN, "forced.yaml"))
    run = engine.start(job)
    pod = wait_for_pod(engine, run, "train")
    # A pod that is deleted while Python starts has begun no attempt: the next pod is the first attempt.
    wait_for_heartbeat(engine, run.run_id, "train")
    engine.delete_pod(pod["metadata"]["name"], force=True)
    ended = run.wait()
    if ended.code:
        assert not engine.reroutes_deleted_pods, ended.err
        check_books(engine, run.run_id)
        ended = engine.start(job, resume=run.run_id).wait()
    check_whole(engine, run, ended.done())
    assert len(receipts(engine, run.run_id, "train")) >= 2


def train_to_checkpoint(engine: Engine, job: Job) -> StartedRun:
    """Start a run, and wait for a checkpoint of its training."""
    run = engine.start(job)
    wait_for_pod(engine, run, "train")
    wait_for_checkpoint(engine, run.run_id)
    return run


def check_resumed(engine: Engine, run: StartedRun, summary: RunSummary) -> None:
    """The second start found the stages before the training in the cache, and trained no part twice."""
    assert (summary.run_id, summary.starts) == (run.run_id, 2)
    assert len(accounts(engine, run.run_id)) == 2
    for stage in ("ingest", "preprocess"):
        first, again = receipts(engine, run.run_id, stage)
        assert (first.cache_hit, again.cache_hit, again.spent_usd) == (False, True, 0), stage
    check_whole(engine, run, summary)


def check_whole(engine: Engine, run: StartedRun, summary: RunSummary) -> None:
    """The run is done within its budget, its training continued from a checkpoint, and its books are in
    order.
    """
    assert summary.status == "done" and summary.spent_usd <= summary.budget_usd
    *lost, last = receipts(engine, run.run_id, "train")
    assert last.status == "done" and all(each.status != "done" for each in lost)
    check_artifacts(engine, run.run_id)
    check_books(engine, run.run_id)
