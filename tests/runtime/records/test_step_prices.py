"""Route and exit steps of a cluster are booked at their share of a node, and held at the highest such
price.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from reaper_world import LARGE, SMALL, NodePrices
from runtime_world import INGEST, FakeCluster, SetClock, begin, run_request, small_world

from shoestring.config.engines import assumed_times
from shoestring.config.world import World
from shoestring.core.pod_ref import PodRef
from shoestring.core.record import record_bytes
from shoestring.core.types import Market
from shoestring.data.run_records import Run, RunStart, open_run
from shoestring.runtime.admission.admit import admit
from shoestring.runtime.records.overhead import (
    OverheadTime,
    overhead_timer,
    overhead_times,
    overhead_usd,
    read_overhead,
)
from shoestring.runtime.settlement.settle import exit_step, settle_start
from shoestring.spending.ledger.ledger import Ledger
from shoestring.spending.meter import cost_usd

STEP_USD = {"od": Decimal("0.02"), "cheap": Decimal("0.0075")}
POOL_OF_NODE = {"node-1": "od", "node-2": "cheap", "node-3": "new"}


class ClusterOfNodes(FakeCluster):
    """A cluster whose nodes form pools. The pods of this process are on `node`."""

    node = ""

    def pool_of_pod(self, pod: PodRef) -> str:
        return POOL_OF_NODE.get(self.node, "")


@pytest.fixture
def world(laptop: Path, tmp_path: Path) -> World:
    return at_prices(small_world(laptop, tmp_path, SetClock()), STEP_USD)


def at_prices(local: World, step_usd: dict[str, Decimal]) -> World:
    """Return a world of shares of nodes, whose pools take route and exit steps at these prices."""
    book = local.prices.book()
    steps = [
        book.quotes[0].model_copy(update={"pool": name, "usd_per_hour": price})
        for name, price in step_usd.items()
    ]
    return replace(local, prices=NodePrices(book, tuple(steps)), cluster=ClusterOfNodes((SMALL, LARGE)))


def route_on(world: World, run: Run, node: str) -> OverheadTime:
    """Return the record of a route step that ran on this node for 10 s."""
    assert isinstance(world.cluster, ClusterOfNodes)
    world.cluster.node = node
    with overhead_timer(world, run, f"route-{node}"):
        world.clock.sleep(10)
    (found,) = (each for each in overhead_times(world, run, run.start) if each.name == f"route-{node}")
    return found


@pytest.mark.parametrize(
    ("node", "pool"), [("node-1", "od"), ("node-2", "cheap"), ("node-3", ""), ("node-4", ""), ("", "")]
)
def test_a_step_is_booked_at_its_share_of_its_node_or_at_the_highest_price(
    world: World, flights_slice: Path, node: str, pool: str
) -> None:
    run = admit(world, run_request(flights_slice, needs=INGEST))
    found = route_on(world, run, node)
    assert (found.pool, found.usd_per_hour) == (pool, STEP_USD[pool or "od"])
    assert found.usd_per_hour <= run.start.overhead_usd_per_hour == max(STEP_USD.values())


def test_the_exit_step_says_which_steps_are_booked_at_the_highest_price(
    world: World, flights_slice: Path
) -> None:
    run = admit(world, run_request(flights_slice, needs=INGEST))
    for node in ("node-1", "node-2", "node-4"):
        route_on(world, run, node)
    sentences = exit_step(world, open_run(world.store, "r"))
    # The exit step itself is on node-4.
    expected = "r: 2 of 4 pods of the overhead are booked at $0.020000 an hour"
    assert sum(each.startswith(expected) for each in sentences) == 1
    spent_usd = Ledger(world.store, world.clock).state("r").settled_usd["overhead-1"]
    assert spent_usd == 2 * cost_usd(Decimal("0.02"), 10) + cost_usd(Decimal("0.0075"), 10)


def test_a_run_whose_steps_are_all_on_known_nodes_has_no_such_sentence(
    world: World, flights_slice: Path
) -> None:
    began = begin(world, run_request(flights_slice, needs=INGEST))
    route_on(world, began.run, "node-2")
    assert not any("highest price" in each for each in settle_start(world, began.run, began.run.start))


def test_what_a_step_is_booked_at_stays_what_it_was_held_at(
    laptop: Path, flights_slice: Path, tmp_path: Path
) -> None:
    """A price that rises after admission, or a pool that is new, moves no step above what is held."""
    local = small_world(laptop, tmp_path, SetClock())
    run = admit(at_prices(local, STEP_USD), run_request(flights_slice, needs=INGEST))
    raised = at_prices(local, dict.fromkeys(("od", "cheap", "new"), Decimal(1)))
    assert route_on(raised, run, "node-2").usd_per_hour == STEP_USD["cheap"]
    assert route_on(raised, run, "node-3").usd_per_hour == STEP_USD["od"]


@pytest.mark.parametrize("route", ["node-1", "node-2", "node-3", ""])
@pytest.mark.parametrize("settle", ["node-1", "node-2", ""])
def test_what_is_held_pays_for_all_steps_on_whatever_nodes_they_run(
    world: World, flights_slice: Path, route: str, settle: str
) -> None:
    """Each takes as long as is held for it; the second pod that is held as well is not there."""
    run = admit(world, replace(run_request(flights_slice, needs=INGEST), engine="argo"))
    for name, node in (("route", route), ("settle", settle)):
        assert isinstance(world.cluster, ClusterOfNodes)
        world.cluster.node = node
        with overhead_timer(world, run, name):
            world.clock.sleep(run.start.overhead_pod_s)
    spent_usd = read_overhead(world, run, run.start).spent_usd
    second_usd = cost_usd(STEP_USD["od"], run.start.overhead_pod_s)
    assert spent_usd <= run.start.overhead_usd - second_usd


def test_steps_are_held_at_the_highest_price_and_stages_pods_at_their_smallest_share(world: World) -> None:
    times = assumed_times("argo", pod_s=10.0)
    shares_usd = {quote.pool: quote.usd_per_hour for quote in world.prices.book().quotes}
    pod_usd = max(shares_usd[SMALL.name], shares_usd[LARGE.name])
    # A cached result, and a second pod that gets no attempt.
    for cached in (0, 1):
        held_usd = overhead_usd(world, 3, cached, times)
        exact_usd = (3 * max(STEP_USD.values()) + (cached + 1) * pod_usd) * 10 / 3600
        assert exact_usd <= held_usd < exact_usd + Decimal("0.000002")


def test_a_run_on_this_machine_has_no_shares_and_its_record_the_bytes_of_before(
    laptop: Path, flights_slice: Path, tmp_path: Path
) -> None:
    world = small_world(laptop, tmp_path, SetClock())
    run = admit(world, run_request(flights_slice, needs=INGEST))
    assert run.start.overhead_usd_per_hour == min(
        quote.usd_per_hour for quote in world.prices.book().quotes if quote.market is not Market.SPOT
    )
    assert b"step_usd_per_hour" not in record_bytes(run.start)
    assert RunStart.model_validate_json(record_bytes(run.start)) == run.start
