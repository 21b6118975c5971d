"""A scenario of Argo alone: of the items of a loop, one is refused, and the pod of another one is deleted."""

from __future__ import annotations

from pathlib import Path

from engine_scenarios.argo_engine import ArgoEngine
from engine_scenarios.books import check_books, receipts, wait_for_pod
from engine_scenarios.engine import Job, Pipeline
from engine_scenarios.own_package import AUTHORED
from engine_scenarios.waiting import wait_for
from pod_times import container_end

from shoestring.routing.placement import ROUTE

LOST, REFUSED = "work.2", "huge.5"


def lost_item(engine: ArgoEngine, package: Path) -> None:
    """The refusal ends its own pair of route and stage alone: the item whose pod is lost is tried again, and
    all others are done.
    """
    run = engine.start(Job("", Pipeline("parted:pipeline", AUTHORED, "scenario-parted")))
    engine.delete_pod(wait_for_pod(engine, run, LOST)["metadata"]["name"])
    wait_for(
        lambda: next(filter(None, map(container_end, engine.pods(run, f"{ROUTE}{REFUSED}"))), None),
        "the refusal of one item",
    )
    summary = run.wait().not_done()
    first, second = receipts(engine, run.run_id, LOST)
    assert first.status in ("stopped", "lost") and second.status == "done", (first, second)
    others = [f"work.{number}" for number in (0, 1, 3, 4, 6, 7)]
    assert {item: [each.status for each in receipts(engine, run.run_id, item)] for item in others} == {
        item: ["done"] for item in others
    }
    assert not receipts(engine, run.run_id, REFUSED)
    assert len(engine.pods(run, f"{ROUTE}{REFUSED}")) == 1
    assert summary.status == "stopped", summary
    assert summary.reason.startswith(f"no offer fits {REFUSED}: no budget is enough"), summary
    check_books(engine, run.run_id)
