"""A run with an external component on a cluster, whose pods a test starts and whose price it moves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path

from reaper_world import SMALL, pending_pod, shares_world
from running_world import RunningQueue, TimedStore
from runtime_world import FakeCluster, run_request

from shoestring.config.world import PriceBook, Prices, World
from shoestring.core.interfaces import PodLifetime, StagePod
from shoestring.core.pod_ref import ClusterPod, LabelledPod, PodRef
from shoestring.core.receipt import Receipt
from shoestring.core.types import Market, Need, Pool, Quote
from shoestring.data.recipe import Recipe
from shoestring.data.run_records import open_run, read_record
from shoestring.routing.decision import Choice, Decision
from shoestring.routing.placement import KUBEFLOW_RUN_LABEL, STAGE_LABEL
from shoestring.runtime.admission.stage_request import StageInputs
from shoestring.runtime.route_step.route import route
from shoestring.runtime.settlement.looks import RunningPodsWatch, open_watch
from shoestring.runtime.settlement.settle import settle_run
from shoestring.spending.heartbeat import Heartbeat, last_heartbeat
from shoestring.spending.ledger.account import AccountState
from shoestring.spending.ledger.ledger import Ledger

THEIRS, LATER = Need(stage="theirs", setup_s=20.0), Need(stage="later", setup_s=200.0)
JOB = "0d3f-job"
"""Kubeflow's id of the run, which its pods' labels carry."""


class MovingPrices:
    """The world's prices, whose current ones are `factor` times as high; None: no price can be read."""

    def __init__(self, prices: Prices) -> None:
        self._prices = prices
        self.factor: Decimal | None = Decimal(1)

    def book(self) -> PriceBook:
        return self._prices.book()

    def current_usd_per_hour(self, quote: Quote, pool: Pool) -> Decimal | None:
        return self.charged_usd_per_hour(quote, pool)

    def charged_usd_per_hour(self, quote: Quote, pool: Pool) -> Decimal | None:
        return None if self.factor is None else quote.usd_per_hour * self.factor


class ListedCluster(FakeCluster):
    """A cluster that knows pods by their labels, too."""

    def __init__(self, pools: tuple[Pool, ...]) -> None:
        super().__init__(pools)
        self.queue: RunningQueue | None = None

    def lifetime(self, pod: PodRef) -> PodLifetime:
        if not isinstance(pod, LabelledPod) or self.queue is None:
            return super().lifetime(pod)
        *earlier, newest = [
            PodLifetime(alive=False),
            *(
                each.lifetime
                for each in self.queue.pods()
                if pod.selector == f"{STAGE_LABEL}={each.stage},{KUBEFLOW_RUN_LABEL}={each.run_id}"
            ),
        ]
        return replace(newest, earlier=tuple(earlier[1:]))


@dataclass
class ExternalRun:
    """The run `r`, whose first stage is an external component that was routed."""

    world: World
    queue: RunningQueue
    watch: RunningPodsWatch
    prices: MovingPrices
    folder: Path

    def route(self, needs: tuple[Need, ...] = (THEIRS,), budget_usd: str = "0.01") -> Decision:
        """Route the component, as its engine does."""
        request = run_request(recipe_in(self.folder), "r", needs, Decimal(budget_usd))
        request = replace(request, metered=False, job_id=JOB)
        path = self.folder / "decision.json"
        route(self.world, request, StageInputs(), str(path), str(self.folder / "page.md"))
        return Decision.model_validate_json(path.read_bytes())

    def start_pod(self, name: str, stage: str = "theirs") -> StagePod:
        """Let a node accept a pod of the component now."""
        pod = replace(pending_pod(self.world, 0.0, JOB, node="worker-1"), stage=stage, pending=False)
        pod = replace(pod, ref=ClusterPod("ns", name, name))
        self.queue.running.append(pod)
        return pod

    def run(self, seconds: int) -> list[str]:
        """Let time pass, with a look every 5 s; return the sentences of the reaper."""
        said: list[str] = []
        for second in range(seconds):
            said += self.watch.look() if second % 5 == 0 else []
            self.world.clock.sleep(1)
        return said

    def run_to_end(self) -> list[str]:
        """Let time pass until the reaper has ended a pod; return its sentences."""
        for _ in range(2000):
            if said := self.run(5):
                return said
        raise AssertionError("the reaper ended nothing")

    def settle(self) -> Receipt:
        settle_run(self.world, "r")
        return self.receipt()

    def receipt(self) -> Receipt:
        return read_record(self.world.store, "runs/r/receipts/theirs-1.json", Receipt)

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.world.store, self.world.clock, str(self.world.pod))

    @property
    def state(self) -> AccountState:
        return self.ledger.state(open_run(self.world.store, "r").start.account)

    @property
    def reserved_usd(self) -> Decimal:
        return self.state.reservations["theirs-1"].amount_usd

    @property
    def heartbeat(self) -> Heartbeat:
        found = last_heartbeat(self.world.store, "r", "theirs-1")
        assert found
        return found


def choice_of(decision: Decision) -> Choice:
    assert decision.choice is not None
    return decision.choice


def recipe_in(folder: Path) -> Recipe:
    (folder / "rows.csv").write_text("x,y\n1,1\n2,0\n3,1\n4,0\n")
    return Recipe.model_validate(
        {"name": "few", "source": {"rows": {"path": folder / "rows.csv"}}, "target": {"column": "y"}}
    )


def external_run(
    laptop: Path, folder: Path, floating: tuple[Market, ...] = (), stages: Mapping[str, Decimal] | None = None
) -> ExternalRun:
    """Return a world in which nothing was routed yet. `stages`: the budgets of stages."""
    world = shares_world(laptop, folder, (SMALL,))
    cluster, store = ListedCluster((SMALL,)), TimedStore(world.store, world.clock)
    prices, queue = MovingPrices(world.prices), RunningQueue(cluster, world.clock)
    cluster.queue = queue
    world = replace(
        world,
        cluster=cluster,
        store=store,
        prices=prices,
        policy=world.policy.model_copy(update={"floating_markets": floating}),
        budgets=world.budgets.model_copy(update={"stages": dict(stages or {})}),
    )
    return ExternalRun(world, queue, open_watch(world, queue, store), prices, folder)
