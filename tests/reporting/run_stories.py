"""Runs in every state that a report has to show."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from recorded_run import ROWS, RUN_ID, Recording

from shoestring.config.engines import EngineTimes, assumed_times
from shoestring.config.tariffs import Tariffs
from shoestring.core import store_layout
from shoestring.core.money import usd
from shoestring.core.record import record_bytes
from shoestring.core.types import Market, MarketTerms, Need, Pool
from shoestring.data.inspect.page_records import ColumnEntry, DataPage, DataWarning, TargetEntry

HOSTILE = (
    "<script>alert('x')</script> & \"quoted\" 'single' </style><img src=http:evil.example/x.png "
    "onerror=alert(1)>"
)
BOTH = {Market.ON_DEMAND: MarketTerms(), Market.SPOT: MarketTerms(preemptions_per_hour=0.2)}
CLOUD = tuple(
    Pool(name=name, cores=cores, memory_gb=4 * cores, startup_s=45, markets=BOTH)
    for name, cores in (
        ("n2-standard-4", 4),
        ("n2-standard-16", 16),
        ("c3-highcpu-22", 22),
        ("c3-highcpu-176", 176),
    )
)


def done(folder: Path) -> Recording:
    run = Recording(folder)
    put_data_page(run, "x0")
    run.evaluated()
    return run


def put_data_page(run: Recording, name: str) -> None:
    """Store the look at the run's data: a feature of this name, which is the target recoded."""
    target = TargetEntry(column="y", task="regression", quantiles={"minimum": 0.5, "maximum": 1e12})
    feature = ColumnEntry(
        name=name, table="rows", type="number", use="numeric", reason="a number", values=9, missing=40
    )
    warning = DataWarning(column=name, fault="target recoded", finding="of 400 rows", advice="add it")
    page = DataPage(
        recipe="flights",
        rows=336_776,
        is_whole=False,
        rows_read=400,
        misfits=2,
        without_target=7,
        splits={"train": 270_000, "val": 33_000, "test": 33_000},
        prediction="target y: regression, a number is predicted",
        refusal="",
        target=target,
        columns=(feature,),
        warnings=(warning,),
    )
    run.store.put(store_layout.data_page(RUN_ID), record_bytes(page))


def on_argo(folder: Path) -> Recording:
    """Record a run whose engine took 0.8 s between two stages. 15 s were planned."""
    run = Recording(folder)
    run.engine = assumed_times("argo", pod_s=3.0)
    run.evaluated()
    return run


def in_the_cloud(folder: Path) -> Recording:
    """Record a run with many offers, and a budget a million times its cost."""
    run = Recording(folder, "4200", CLOUD, "list price")
    run.evaluated()
    return run


def refused(folder: Path) -> Recording:
    run = Recording(folder, "0.0002")
    run.route("ingest")
    return run


def impossible(folder: Path) -> Recording:
    """Record a run for which no budget is enough."""
    run = Recording(folder, "1", (Pool(name="tiny", cores=1, memory_gb=0.01),))
    run.route("ingest")
    return run


def running(folder: Path) -> Recording:
    run = Recording(folder)
    run.start()
    run.route("ingest", cached="cache/1.json")
    run.end(0.2, rows=ROWS)
    run.route("preprocess")
    run.end(7.0, rows=ROWS)
    run.route("train")
    run.beat(20.0, "stable", 800_000, 3_200_000, val_loss=0.4512)
    return run


def just_routed(folder: Path) -> Recording:
    run = Recording(folder)
    run.start()
    run.route("ingest")
    return run


def failed(folder: Path) -> Recording:
    run = Recording(folder)
    run.start()
    run.route("ingest")
    run.end(6.1, rows=ROWS)
    run.route("preprocess")
    run.end(3.0, "failed", "preprocess failed: ArrowInvalid: column 'dep_time' has 3 values that are no time")
    run.close()
    return run


def stopped(folder: Path) -> Recording:
    run = Recording(folder)
    run.start()
    run.route("ingest")
    run.end(6.1, "stopped", "told to stop by SIGTERM")
    run.close()
    return run


def refused_on_the_way(folder: Path) -> Recording:
    """Record a run whose ingest took so long that the rest of the budget is not enough."""
    run = Recording(folder, "0.000518")
    run.start()
    run.route("ingest")
    run.end(6.1, rows=ROWS)
    run.budget_usd = run.ledger.state(run.account).spent_usd
    run.route("preprocess")
    run.close()
    return run


def resumed(folder: Path, engine: EngineTimes | None = None) -> Recording:
    """Record a run that was lost in training, and an hour later resumed and finished."""
    run = Recording(folder)
    run.engine = engine
    run.start()
    for stage, seconds in (("ingest", 6.1), ("preprocess", 7.3)):
        run.route(stage)
        run.end(seconds, rows=ROWS)
    run.route("train")
    run.end(21.0, "lost", "its pod is gone; last heartbeat after 21.0 s")
    run.close()
    run.clock.sleep(3600)
    run.start()
    for stage in ("ingest", "preprocess"):
        run.route(stage, cached="cache/1.json")
        run.end(0.2, rows=ROWS)
    run.trained(30.0)
    run.route("evaluate")
    run.end(5.2, rows=33_412)
    run.close()
    return run


def extended(folder: Path) -> Recording:
    """Record a run whose preprocess took longer than its P95, and was given more."""
    run = Recording(folder)
    run.start()
    run.route("ingest", cached="cache/1.json")
    run.end(0.2, rows=ROWS)
    run.route("preprocess")
    run.extend("0.00004")
    run.end(8.9, rows=ROWS)
    run.close()
    return run


def looped(folder: Path) -> Recording:
    """Record a run in its loop of five items: one is done, two run, one has failed, one is not routed."""
    run = Recording(folder)
    run.needs = (
        Need(stage="first", after=(), setup_s=2.0),
        Need(stage="work", after=("first",), setup_s=6.0, items=5),
        Need(stage="joined", after=("work",), setup_s=2.0),
    )
    run.start()
    run.route("first")
    run.end(2.1)
    for item in ("work.0", "work.1", "work.2"):
        run.route(item)
    run.turn_to("work.0").end(6.4)
    run.turn_to("work.1").end(3.0, "failed", "work.1 failed: exit code 1")
    run.route("work.3")
    run.turn_to("work.2").beat(4.0)
    run.turn_to("work.3").beat(1.0)
    return run


def far(folder: Path) -> Recording:
    """Record a run in another region than its data and its store; a first attempt at preprocess fails."""
    pool = Pool(name="far", cores=2, memory_gb=8, region="far")
    routes = {"local->far": usd("0.02"), "far->local": usd("0.09")}
    run = Recording(
        folder, "4", (pool,), tariffs=Tariffs(egress_usd_per_gb=routes, storage_held_hours=24 * 30)
    )
    run.start()
    for stage, status in (("ingest", "done"), ("preprocess", "failed"), ("preprocess", "done")):
        run.route(stage)
        run.end(2.0, "done" if status == "done" else "failed")
    run.close()
    return run


def hostile(folder: Path) -> Recording:
    """Record a run with markup wherever a user, a price list or an exception can put text."""
    run = Recording(folder, "0.003", (Pool(name=HOSTILE, cores=1, memory_gb=4),), HOSTILE)
    put_data_page(run, HOSTILE)
    run.start()
    run.route("ingest")
    run.end(3.0, "failed", HOSTILE)
    run.close()
    return run


Story = Callable[[Path], Recording]
STORIES: dict[str, Story] = {
    story.__name__: story
    for story in (
        done,
        on_argo,
        in_the_cloud,
        refused,
        impossible,
        running,
        just_routed,
        failed,
        stopped,
        refused_on_the_way,
        resumed,
        extended,
        looped,
        hostile,
    )
}
