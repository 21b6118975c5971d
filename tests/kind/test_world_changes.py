"""A changed world: a decision takes other prices, or their last good copy, and refuses a pool without
capacity.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from engine_scenarios.argo_engine import ArgoEngine
from engine_scenarios.books import check_books, wait_for_decision
from engine_scenarios.engine import Job
from engine_scenarios.recipes import RAIN, write_recipe
from engine_scenarios.waiting import wait_for
from kind_cluster import Kind, a_pod
from world_changes import POOL_LABEL, restored_files, write_world_file

pytestmark = pytest.mark.kind


def plan(engine: ArgoEngine, folder: Path) -> Any:
    """Return the decision with which a run would begin, as JSON."""
    return engine.read("plan", write_recipe(folder, RAIN), "--json").json


def refusals_of(decision: Any) -> list[str]:
    """Return why the stage is not elsewhere."""
    return [refusal["sentence"] for refusal in decision["refusals"]]


def test_a_changed_price_changes_the_pool(argo: Kind, engine: ArgoEngine, tmp_path: Path) -> None:
    assert plan(engine, tmp_path)["choice"]["pool"].startswith("cpu-spot/")
    with restored_files(argo, "prices") as (prices,):
        for row in prices["prices"]:
            row["usd_per_hour"] = "0.01" if row["pool"] == "cpu-on-demand" else row["usd_per_hour"]
        write_world_file(argo, "prices", yaml.safe_dump(prices))
        made = plan(engine, tmp_path)
    assert made["choice"]["pool"].startswith("cpu-on-demand/")


def test_broken_prices_are_replaced_by_the_last_good_copy_and_the_decision_says_so(
    argo: Kind, engine: ArgoEngine, tmp_path: Path
) -> None:
    with restored_files(argo, "prices"):
        run = engine.start(Job(write_recipe(tmp_path, RAIN)))
        first = wait_for_decision(engine, run.run_id, "ingest")
        write_world_file(argo, "prices", "prices: [")
        second = wait_for_decision(engine, run.run_id, "preprocess")
        engine.terminate(run.engine_id)
    assert run.wait().not_done().status in ("stopped", "failed")
    assert [
        note
        for note in second.question.notes
        if "prices.yaml" in note and "the last good copy is used" in note
    ], second.question.notes
    assert (first.question.notes, second.question.quotes) == ((), first.question.quotes)
    check_books(engine, run.run_id)


def test_a_cordoned_pool_is_refused_with_the_reason(argo: Kind, engine: ArgoEngine, tmp_path: Path) -> None:
    (spot,) = argo.get("nodes", "--selector", f"{POOL_LABEL}=cpu-spot")["items"]
    argo.kubectl("cordon", spot["metadata"]["name"])
    try:
        made = plan(engine, tmp_path)
    finally:
        argo.kubectl("uncordon", spot["metadata"]["name"])
    assert made["choice"]["pool"].startswith("cpu-on-demand/")
    sentences = refusals_of(made)
    assert any("cpu-spot" in sentence and "cordoned" in sentence for sentence in sentences), sentences


def test_a_pool_that_other_pods_fill_is_refused_with_the_numbers(
    argo: Kind, engine: ArgoEngine, tmp_path: Path
) -> None:
    (spot,) = argo.get("nodes", "--selector", f"{POOL_LABEL}=cpu-spot")["items"]
    most = f"{int(spot['status']['allocatable']['cpu']) * 1000 - 500}m"
    with a_pod(argo, "filler", cpu=most, nodeSelector={POOL_LABEL: "cpu-spot"}):
        wait_for(
            lambda: argo.get("pod", "filler", namespace="default")["spec"].get("nodeName"),
            "a node for the filler",
        )
        made = plan(engine, tmp_path)
    assert made["choice"]["pool"].startswith("cpu-on-demand/")
    numbers = re.compile(
        r"no capacity: the node of cpu-spot has 0\.\d+ cores and [\d.]+ GB free, "
        r"a pod requests 1 core and [\d.]+ GB"
    )
    assert any(map(numbers.fullmatch, refusals_of(made))), refusals_of(made)
