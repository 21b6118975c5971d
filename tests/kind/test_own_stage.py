"""A stage that somebody made by the authoring page, from `shoestring new` to a pod that its router placed."""

from __future__ import annotations

from concurrent.futures import Future

import pytest
from kind_cluster import OWN_IMAGE, Kind
from on_argo import Ended, Pods, decision, node_pools

from shoestring.backends.local import WallClock
from shoestring.core.interfaces import Store
from shoestring.core.receipt import Receipt
from shoestring.data.run_records import read_record
from shoestring.spending.audit.verify import load_anchors, verify
from shoestring.spending.ledger.ledger import Ledger

pytestmark = pytest.mark.kind


def test_an_authors_stage_runs_on_argo_in_its_own_image_where_its_router_said_and_is_settled(
    argo: Kind, own_run: Future[Ended], pods: Pods, store: Store
) -> None:
    ended = own_run.result()
    assert ended.code == 0, ended.err
    assert [(stage.name, stage.attempts) for stage in ended.summary.stages] == [("ingest", 1), ("dedupe", 1)]
    run_id = ended.run_id
    (pod,), made = pods.of_stage(run_id, "dedupe"), decision(store, run_id, "dedupe")
    assert made.choice and made.placement
    assert f"{node_pools(argo)[pod['spec']['nodeName']]}/{made.placement.cpu}" == made.choice.pool
    assert [each["image"] for each in pod["spec"]["containers"] if each["name"] == "main"] == [OWN_IMAGE]
    # The weather of three airports.
    outcome = read_record(store, f"runs/{run_id}/receipts/dedupe-1.json", Receipt).outcome
    assert outcome and outcome.rows == 3
    state = Ledger(store, WallClock(), "test").state(run_id)
    assert state.closed and state.reservations == {} and state.stages["dedupe"].spent_usd > 0
    verify(store, load_anchors(store))
