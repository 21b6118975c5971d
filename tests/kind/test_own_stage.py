"""A stage that somebody made by the authoring page, from `shoestring new` to a pod that its router placed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from kind_cluster import OWN_IMAGE, Kind, run
from on_argo import Going, decision, node_pools, watched

from shoestring.data.runs import read
from shoestring.local import WallClock
from shoestring.receipt import Receipt
from shoestring.seams import Store
from shoestring.spending.ledger import Ledger
from shoestring.spending.verify import load_anchors, verify

pytestmark = pytest.mark.kind


def test_an_authors_stage_runs_on_argo_in_its_own_image_where_its_router_said_and_is_settled(
    argo: Kind, package: Path, store: Store, rain: str, tmp_path: Path
) -> None:
    compiling = ("compile", "--target", "argo", "--pipeline", "dedupe_rows.pipeline:pipeline", "--out", str(tmp_path))
    run("env", "--chdir", str(package), sys.executable, "-m", "shoestring", *compiling)
    argo.apply((tmp_path / "dedupe-rows.yaml").read_text())
    with watched(argo, tmp_path) as pods:
        ended = Going(argo, rain, "--template", "dedupe-rows").end()
    assert ended.code == 0, ended.err
    assert [(stage.name, stage.attempts) for stage in ended.summary.stages] == [("ingest", 1), ("dedupe", 1)]
    run_id = ended.summary.run_id
    (pod,), made = pods.of_stage("dedupe"), decision(store, run_id, "dedupe")
    assert made.choice and made.placement
    assert f"{node_pools(argo)[pod['spec']['nodeName']]}/{made.placement.cpu}" == made.choice.pool
    assert [each["image"] for each in pod["spec"]["containers"] if each["name"] == "main"] == [OWN_IMAGE]
    # The weather of three airports.
    outcome = read(store, f"runs/{run_id}/receipts/dedupe-1.json", Receipt).outcome
    assert outcome and outcome.rows == 3
    state = Ledger(store, WallClock(), "test").state(run_id)
    assert state.closed and state.holds == {} and state.stages["dedupe"].spent_usd > 0
    verify(store, load_anchors(store))
