"""A component of another author that never ends, in a pod that is labelled as Kubeflow labels it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from uuid import uuid4

import pytest
import yaml
from argo_runs import STAGE_LABEL, wait_for
from kind_cluster import NAMESPACE, Kind, base_pod
from pod_times import container_end, lived_s

from shoestring.config.world import World
from shoestring.core.errors import BudgetTooSmall
from shoestring.core.pod_ref import ClusterPod
from shoestring.core.receipt import Receipt
from shoestring.core.types import Need
from shoestring.data.recipe import Recipe
from shoestring.data.run_records import read_record
from shoestring.routing.decision import Decision
from shoestring.routing.placement import KUBEFLOW_RUN_LABEL, as_kubernetes
from shoestring.runtime.admission.first_request import RunRequest
from shoestring.runtime.admission.stage_request import StageInputs
from shoestring.runtime.open_world import open_world_on
from shoestring.runtime.route_step.route import route
from shoestring.runtime.settlement.settle import settle_run
from shoestring.spending.audit.verify import load_anchors, verify
from shoestring.spending.ledger.ledger import Ledger
from shoestring.spending.meter import cost_usd

pytestmark = pytest.mark.kind

THEIRS = Need(stage="theirs", setup_s=5.0)
ROUTER = ClusterPod(NAMESPACE, "0b5a4f6e-8a0c-4c67-9c3f-1d2e3f4a5b6c", "router-of-theirs")
GRACE_S = 5


@pytest.fixture
def world(kind: Kind) -> World:
    """The world of the cluster, as a router in it has it."""
    return replace(open_world_on(kind.context, NAMESPACE, reads_only=False), pod=ROUTER)


@pytest.fixture
def request_theirs(tmp_path: Path) -> RunRequest:
    (tmp_path / "rows.csv").write_text("x,y\n1,1\n2,0\n3,1\n4,0\n")
    content = {
        "name": "few",
        "source": {"rows": {"path": tmp_path / "rows.csv"}},
        "target": {"column": "y"},
    }
    recipe, run_id = Recipe.model_validate(content), f"endless-{uuid4().hex[:8]}"
    budget_usd = Decimal("0.000001")
    return RunRequest(
        run_id, recipe, (THEIRS,), budget_usd, None, 7, metered=False, job_id=uuid4().hex, engine="kubeflow"
    )


def route_theirs(world: World, request: RunRequest, folder: Path) -> Decision:
    """Route the component with little more than the smallest budget."""
    path, page = folder / "decision.json", folder / "page.md"
    with pytest.raises(BudgetTooSmall) as refused:
        refused_one = replace(request, run_id=f"{request.run_id}-0", job_id=f"{request.job_id}0")
        route(world, refused_one, StageInputs(), str(path), str(page))
    budget_usd = refused.value.smallest_usd + Decimal("0.0001")
    route(world, replace(request, budget_usd=budget_usd), StageInputs(), str(path), str(page))
    return Decision.model_validate_json(path.read_bytes())


@pytest.fixture
def endless(kind: Kind, world: World, request_theirs: RunRequest, tmp_path: Path) -> Iterator[Decision]:
    """Route the component, and start its pod, which sleeps and does not answer to SIGTERM."""
    decision = route_theirs(world, request_theirs, tmp_path)
    assert decision.placement
    pod, name = base_pod("sleep", "1800"), request_theirs.run_id
    pod["spec"] |= {
        "terminationGracePeriodSeconds": GRACE_S,
        "nodeSelector": decision.placement.node_selector,
        "tolerations": as_kubernetes(decision.placement.tolerations),
    }
    labels = {STAGE_LABEL: "theirs", KUBEFLOW_RUN_LABEL: request_theirs.job_id}
    about = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}}
    kind.apply(yaml.safe_dump(about | pod))
    yield decision
    kind.kubectl("delete", "pod", name, "--now", "--ignore-not-found")


def test_an_endless_component_is_extended_ended_by_the_reaper_and_paid_for_in_full(
    kind: Kind, world: World, endless: Decision
) -> None:
    run_id, choice = endless.question.run_id, endless.choice
    assert choice
    wait_for(lambda: container_end(kind.get("pod", run_id)), "the reaper ends the pod", timeout_s=300.0)
    pod, ledger = kind.get("pod", run_id), Ledger(world.store, world.clock, "test")
    assert pod["status"]["reason"] == "DeadlineExceeded"
    assert pod["metadata"]["annotations"]["shoestring.dev/ended"].startswith("OutOfMoney: it cost $")
    reserved_usd = ledger.state(run_id).reservations["theirs-1"].amount_usd
    assert reserved_usd > choice.p95_usd
    settle_run(world, run_id)
    receipt = read_record(world.store, f"runs/{run_id}/receipts/theirs-1.json", Receipt)
    assert (receipt.status, receipt.cause, receipt.seconds) == ("failed", "money", lived_s(pod))
    cost = receipt.spent_usd + receipt.overrun_usd
    assert cost == cost_usd(choice.usd_per_hour, lived_s(pod))
    # A look, the request to the cluster, and the grace period.
    assert reserved_usd <= cost <= reserved_usd + cost_usd(choice.usd_per_hour, 10 + GRACE_S + 5)
    assert ledger.state(run_id).closed
    verify(world.store, load_anchors(world.store))
