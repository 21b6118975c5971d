"""An author's own stage, from `shoestring new` to a pod that its router placed."""

from __future__ import annotations

from concurrent.futures import Future

import pytest
from argo_runs import EndedRun, PodHistory, decision, node_pools
from engine_scenarios.own_package import OWN_IMAGE
from kind_cluster import Kind

from shoestring.backends.local import WallClock
from shoestring.core.interfaces import Store
from shoestring.core.receipt import Receipt
from shoestring.data.run_records import read_record
from shoestring.spending.audit.verify import load_anchors, verify
from shoestring.spending.ledger.ledger import Ledger

pytestmark = pytest.mark.kind


def test_an_authors_stage_runs_in_its_own_image_on_the_chosen_pool_and_is_settled(
    argo: Kind, own_run: Future[EndedRun], pods: PodHistory, store: Store
) -> None:
    ended = own_run.result()
    assert ended.code == 0, ended.err
    assert [(stage.name, stage.attempts) for stage in ended.summary.stages] == [("ingest", 1), ("dedupe", 1)]
    run_id = ended.run_id
    (pod,), made = pods.of_stage(run_id, "dedupe"), decision(store, run_id, "dedupe")
    assert made.choice and made.placement
    assert f"{node_pools(argo)[pod['spec']['nodeName']]}/{made.placement.cpu}" == made.choice.pool
    assert [each["image"] for each in pod["spec"]["containers"] if each["name"] == "main"] == [OWN_IMAGE]
    # The data set has the weather of three airports.
    outcome = read_record(store, f"runs/{run_id}/receipts/dedupe-1.json", Receipt).outcome
    assert outcome and outcome.rows == 3
    state = Ledger(store, WallClock(), "test").state(run_id)
    assert state.closed and state.reservations == {} and state.stages["dedupe"].spent_usd > 0
    verify(store, load_anchors(store))
