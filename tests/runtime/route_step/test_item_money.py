"""The route steps of the items of a loop: each reserves for itself, and one without money waits for what the
others leave.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from runtime_world import FakeCluster, SetClock, on_cluster, small_world

from shoestring.config.world import World
from shoestring.core.errors import Refused
from shoestring.core.interfaces import PodLifetime
from shoestring.core.pod_ref import LabelledPod, PodRef
from shoestring.core.types import Need
from shoestring.data.recipe import Recipe
from shoestring.data.run_records import open_run
from shoestring.routing.decision import Decision
from shoestring.routing.loop_items import LoopItem, needs_of_item
from shoestring.runtime.admission.first_request import recipe_request
from shoestring.runtime.admission.stage_request import StageInputs
from shoestring.runtime.records.overhead import OverheadPod
from shoestring.runtime.records.world_ledger import world_ledger
from shoestring.runtime.route_step.item_money import ItemMoney
from shoestring.runtime.route_step.route import route
from shoestring.runtime.route_step.shared_result import SharedResult
from shoestring.runtime.settlement.settle import settle_run
from shoestring.spending.meter import cost_usd

WORK = Need(stage="work", after=(), setup_s=20.0, items=3)


@dataclass
class ItemPods(FakeCluster):
    """A cluster in which the pod of each item runs for this long after it was asked for first."""

    world: World
    runs_s: Callable[[str], float] = lambda _: 8.0
    reason: str = ""
    began: dict[str, datetime] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__(self.world.cluster.pools())

    def lifetime(self, pod: PodRef) -> PodLifetime:
        if not isinstance(pod, LabelledPod):
            return super().lifetime(pod)
        now = self.world.clock.now()
        began = self.began.setdefault(pod.item, now)
        ends = began + timedelta(seconds=self.runs_s(pod.item))
        if now < ends:
            return PodLifetime(True, began, asked_at=now)
        return PodLifetime(False, began, ends, self.reason, asked_at=now)


@pytest.fixture
def world(laptop: Path, tmp_path: Path) -> World:
    found = on_cluster(small_world(laptop, tmp_path, SetClock()))[0]
    return replace(found, cluster=ItemPods(found))


def route_item(
    world: World,
    folder: Path,
    number: int,
    budget_usd: str = "0.01",
    deadline_s: float | None = None,
    sha256: str = "",
) -> Decision:
    (folder / "rows.csv").write_text("x,y\n1,1\n2,0\n3,1\n4,0\n")
    recipe = Recipe.model_validate(
        {"name": "few", "source": {"rows": {"path": folder / "rows.csv"}}, "target": {"column": "y"}}
    )
    item = LoopItem(str(number), 3, 3, sha256 or f"value {number}")
    needs, money = needs_of_item((WORK,), item), Decimal(budget_usd)
    request = recipe_request("r", recipe, needs, money, deadline_s, 7, metered=False, item=item)
    path = folder / f"{number}.json"
    route(world, request, StageInputs(), str(path), str(folder / "page.md"))
    return Decision.model_validate_json(path.read_bytes())


def test_each_item_reserves_for_itself_and_is_settled_at_the_time_of_its_own_pod(
    world: World, tmp_path: Path
) -> None:
    found = [route_item(world, tmp_path, number) for number in range(3)]
    assert [[need.items for need in each.question.needs[1:]] for each in found] == [[2], [1], []]
    state = world_ledger(world).state("r")
    assert set(state.reservations) > {"work.0-1", "work.1-1", "work.2-1"}
    assert isinstance(world.cluster, ItemPods)
    world.cluster.runs_s = lambda item: 8.0 + int(item)
    world.clock.sleep(0.1)
    for number in range(3):
        world.cluster.lifetime(LabelledPod("ns", "", str(number)))
    world.clock.sleep(60)
    settle_run(world, "r")
    settled = world_ledger(world).state("r").settled_usd
    for number, decision in enumerate(found):
        assert decision.choice is not None
        assert settled[f"work.{number}-1"] == cost_usd(decision.choice.usd_per_hour, 8.0 + number)


def test_an_item_without_money_waits_until_another_of_its_loop_has_left_some(
    world: World, tmp_path: Path
) -> None:
    first = route_item(world, tmp_path, 0)
    assert first.choice is not None
    ledger = world_ledger(world)
    free_usd = ledger.state("r").left_usd
    assert free_usd is not None
    # What the price of the others was, less half an item.
    ledger.reserve("r", "rival-1", "rival", 1, free_usd - first.choice.p95_usd * Decimal("1.5"))
    began = world.clock.now()
    second = route_item(world, tmp_path, 1)
    waited_s = (world.clock.now() - began).total_seconds()
    assert second.choice is not None and 8.0 <= waited_s < 30.0
    assert second.question.waited_s == pytest.approx(waited_s, abs=0.1)
    assert second.question.notes[-1] == f"waited {waited_s:.1f} s for money that other items of its loop held"
    assert ledger.state("r").settled_usd["work.0-1"] == cost_usd(first.choice.usd_per_hour, 8.0)


def test_an_item_does_not_wait_for_money_of_items_that_have_failed(world: World, tmp_path: Path) -> None:
    first = route_item(world, tmp_path, 0)
    assert first.choice is not None
    assert isinstance(world.cluster, ItemPods)
    world.cluster.reason = "exit code 1"
    ledger, began = world_ledger(world), world.clock.now()
    free_usd = ledger.state("r").left_usd
    assert free_usd is not None
    ledger.reserve("r", "rival-1", "rival", 1, free_usd)
    with pytest.raises(Refused, match="of the 2 items of work that are left, none fits"):
        route_item(world, tmp_path, 1)
    waited_s = (world.clock.now() - began).total_seconds()
    # Until then an engine may have begun the item again.
    assert world.policy.queue_delay_s < waited_s < world.policy.queue_delay_s + 60.0


def test_an_item_decides_again_at_once_where_another_took_the_money_meanwhile(
    world: World, tmp_path: Path
) -> None:
    route_item(world, tmp_path, 0)
    run, ledger = open_run(world.store, "r"), world_ledger(world)
    money = ItemMoney(world, run, ledger, "work.1", SharedResult(world, run, ledger, OverheadPod()))
    money.look()
    route_item(world, tmp_path, 2)
    began = world.clock.now()
    assert money.may_come() and money.waited_s == 0.0
    assert world.clock.now() - began < timedelta(seconds=1)


def test_an_item_waits_at_most_until_the_deadline(world: World, tmp_path: Path) -> None:
    first = route_item(world, tmp_path, 0, deadline_s=600.0)
    assert first.choice is not None
    assert isinstance(world.cluster, ItemPods)
    world.cluster.runs_s = lambda _: 10_000.0
    ledger, began = world_ledger(world), world.clock.now()
    free_usd = ledger.state("r").left_usd
    assert free_usd is not None
    ledger.reserve("r", "rival-1", "rival", 1, free_usd)
    with pytest.raises(Refused, match="of the 2 items of work that are left, none fits"):
        route_item(world, tmp_path, 1, deadline_s=600.0)
    assert 500.0 < (world.clock.now() - began).total_seconds() < 620.0


def test_an_item_of_another_value_than_before_is_refused(world: World, tmp_path: Path) -> None:
    route_item(world, tmp_path, 0)
    world.clock.sleep(120)
    with pytest.raises(Refused, match="item 0 of work is another than the one that r began with"):
        route_item(world, tmp_path, 0, sha256="another")
