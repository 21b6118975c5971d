"""Claim: on a cluster no stage takes a run above its cap by wall clock x price, except by the bound of
docs/money.md, of five that misbehave.

python bench/kind/stopwatch.py [--only NAME ...]

On the cluster of `make cluster`. The stopwatch is the kubelet: a pod costs its price from its scheduling to
the end of its last container, and a price applies from the moment when this process wrote it. The cap is the
run's without what it keeps for routers and the exit step, which no stage can spend. Each case is a run on a
small table, in an image with another body in place of ingest. The bound is the excess that a case may have,
in seconds x price:

- a stage that stops its supervisor: for each attempt that the reaper ended, the silence limit, 10 s in which
  the reaper finds it, and the pod's grace period
- a price that rises: the 100 s in which the kubelet passes a changed ConfigMap on to a running pod, the
  second between two looks and the exit, x (new price - old price)
- every other case: none
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import yaml
from kubernetes.utils import parse_quantity

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "kind"))

from cluster_engine import CLUSTER, cluster_engine
from engine_scenarios.argo_engine import ArgoEngine
from engine_scenarios.books import wait_for_pod
from engine_scenarios.engine import StartedRun
from engine_scenarios.recipes import RAIN
from engine_scenarios.waiting import wait_for
from kind_cluster import Kind, pack_images, run
from machine import describe
from misbehaving_stages import (
    kill_the_supervisor,
    leave_a_daemon_without_environment,
    obey,
    stop_the_supervisor,
    stop_the_supervisor_and_ignore_term,
)
from pod_times import container_end, scheduled_at
from world_changes import POOL_LABEL, placed_pod, read_world_file, restored_files, write_world_file

from shoestring.backends.kubernetes.pod_lifetime import ENDED_ANNOTATION
from shoestring.backends.local import WallClock
from shoestring.config.policy import Policy
from shoestring.config.world import IMAGES
from shoestring.core.money import usd
from shoestring.reporting.summary import RunSummary
from shoestring.routing.placement import POD_GRACE_S
from shoestring.runtime.records.overhead import OVERHEAD
from shoestring.spending.exit_money import CHECK_EVERY_S, EXIT_S
from shoestring.spending.heartbeat import silence_limit_s
from shoestring.spending.ledger.ledger import Ledger

BENCH = Path(__file__).parents[1]
IMAGE, NODE, POOL = "shoestring-stopwatch:1", "worker2", "cpu-spot"
BUDGET_FACTOR = Decimal("1.1")
LOOK_S, CONFIG_MAP_S = 10.0, 100.0
RISE = Decimal(4)
SITE = """\
import json, pathlib, sys
if "shoestring.runtime.supervisor.child" in sys.orig_argv:
    if json.loads(pathlib.Path(sys.orig_argv[-1], "job.json").read_text())["stage"] == "ingest":
        import shoestring.stages.ingest
        from misbehaving_stages import BY_NAME
        def run(work):
            return BY_NAME[work.recipe.name.rpartition("-")[0].replace("-", "_")](work)
        shoestring.stages.ingest.run = run
"""
DOCKERFILE = f"""\
FROM {IMAGES["base"]}
COPY misbehaving_stages.py sitecustomize.py /opt/stopwatch/
ENV PYTHONPATH=/opt/stopwatch
"""
CASES = (
    stop_the_supervisor,
    stop_the_supervisor_and_ignore_term,
    kill_the_supervisor,
    leave_a_daemon_without_environment,
    obey,
)
PRICE_CASE = f"price rises {RISE} times"


@dataclass(frozen=True)
class Measured:
    """One case: the cap of its stages, their cost by the stopwatch, what the ledger booked for them, and
    the bound above the cap.
    """

    name: str
    cap_usd: Decimal
    wall_s: tuple[float, ...]
    wall_usd: Decimal
    booked_usd: Decimal
    bound_usd: Decimal
    how: str

    @property
    def is_within(self) -> bool:
        return self.wall_usd <= self.cap_usd + self.bound_usd


@contextmanager
def misbehaving_image(kind: Kind) -> Iterator[None]:
    """Let stages run in an image whose ingest misbehaves as the recipe's name says."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "sitecustomize.py").write_text(SITE)
        (folder / "Dockerfile").write_text(DOCKERFILE)
        (folder / "misbehaving_stages.py").write_bytes((BENCH / "misbehaving_stages.py").read_bytes())
        run("docker", "build", "--quiet", "--tag", IMAGE, temporary)
        kind.load(NODE, pack_images(folder / "image.tar", [IMAGE]))
    with restored_files(kind, "world") as (world,):
        images = world.get("images", {}) | {"base": IMAGE}
        write_world_file(kind, "world", yaml.safe_dump(world | {"images": images}))
        yield


def recipe_of(folder: Path, body: str) -> str:
    """Write a recipe whose name selects the body of ingest, and is new, so that nothing is cached."""
    path = folder / "recipe.yaml"
    path.write_text(RAIN.replace("name: rain", f"name: {body.replace('_', '-')}-{uuid4().hex[:8]}"))
    return str(path)


def smallest_budget(engine: ArgoEngine, recipe: str) -> Decimal:
    found = engine.run(recipe, "--budget", "0.000001").wait().not_done().smallest_budget_usd
    assert found is not None
    return found


@dataclass(frozen=True)
class PodPrice:
    """The price of a pod, and when it rose; None: never."""

    usd_per_hour: Decimal
    raised_at: datetime | None

    def cost_usd(self, began: datetime, end: datetime) -> Decimal:
        risen = max(timedelta(0), end - max(began, self.raised_at)) if self.raised_at else timedelta(0)
        seconds = Decimal(str((end - began).total_seconds()))
        risen_s = Decimal(str(round(risen.total_seconds(), 3)))
        return self.usd_per_hour * (seconds + (RISE - 1) * risen_s) / 3600


def raise_price(kind: Kind, engine: ArgoEngine, started: StartedRun) -> datetime:
    """Raise the price of the pool once the pod of ingest has mounted the former one; return when."""
    wait_for_pod(engine, started, "ingest")
    prices = yaml.safe_load(read_world_file(kind, "prices"))
    for row in prices["prices"]:
        if row["pool"] == POOL:
            row["usd_per_hour"] = str(Decimal(row["usd_per_hour"]) * RISE)
    write_world_file(kind, "prices", yaml.safe_dump(prices))
    return datetime.now(UTC)


def share_usd_per_hour(kind: Kind, pod: dict[str, Any]) -> Decimal:
    """Return the price of a pod's node, divided by how many pods of this size the node has room for."""
    rows = yaml.safe_load(read_world_file(kind, "prices"))["prices"]
    (price,) = [Decimal(row["usd_per_hour"]) for row in rows if row["pool"] == POOL]
    (main,) = [each for each in pod["spec"]["containers"] if each["name"] == "main"]
    node = kind.get("node", pod["spec"]["nodeName"])
    assert node["metadata"]["labels"][POOL_LABEL] == POOL
    has, takes = node["status"]["allocatable"], main["resources"]["requests"]
    return price / min(parse_quantity(has[name]) // parse_quantity(takes[name]) for name in ("cpu", "memory"))


def run_case(kind: Kind, engine: ArgoEngine, body: str, folder: Path, cap_usd: Decimal) -> Measured:
    is_price_case = body == obey.__name__
    recipe = recipe_of(folder, body)
    with restored_files(kind, "prices"):
        started = engine.run(recipe, "--budget", str(cap_usd))
        usd_per_hour = share_usd_per_hour(kind, placed_pod(engine, started, "ingest"))
        reserved = Ledger(engine.store, WallClock(), "bench").state(started.run_id).reservations
        (overhead_usd,) = [each.amount_usd for each in reserved.values() if each.stage == OVERHEAD]
        price = PodPrice(usd_per_hour, raise_price(kind, engine, started) if is_price_case else None)
        ended = started.wait()
    assert ended.summary is not None, ended.err
    found = ended_pods(engine, started)
    name = PRICE_CASE if is_price_case else body.replace("_", " ")
    return measure(kind, name, cap_usd - overhead_usd, price, found, ended.summary)


def ended_pods(engine: ArgoEngine, started: StartedRun) -> list[dict[str, Any]]:
    """Return the pods of ingest, once the kubelet has reported the end of all of their containers."""

    def find() -> list[dict[str, Any]] | None:
        found = engine.pods(started, "ingest")
        return found if found and all(map(container_end, found)) else None

    return wait_for(find, "the end of all containers of ingest")


def measure(
    kind: Kind, name: str, cap_usd: Decimal, price: PodPrice, pods: list[dict[str, Any]], summary: RunSummary
) -> Measured:
    spans = [(scheduled_at(pod), end) for pod in pods if (end := container_end(pod))]
    reasons = [pod["metadata"].get("annotations", {}).get(ENDED_ANNOTATION, "") for pod in pods]
    by_reaper = [reason.partition(":")[0] for reason in reasons if reason]
    policy = Policy.model_validate(yaml.safe_load(read_world_file(kind, "policy")))
    limit_s = silence_limit_s(policy.heartbeat_s, policy.silent_intervals)
    bound_s = len(by_reaper) * (limit_s + LOOK_S + POD_GRACE_S)
    if price.raised_at:
        bound_s += float(RISE - 1) * (CONFIG_MAP_S + CHECK_EVERY_S + EXIT_S)
    return Measured(
        name=name,
        cap_usd=cap_usd,
        wall_s=tuple((end - began).total_seconds() for began, end in spans),
        wall_usd=sum((price.cost_usd(*span) for span in spans), Decimal(0)),
        booked_usd=summary.spent_usd + summary.overrun_usd - summary.overhead_usd,
        bound_usd=Decimal(str(bound_s)) * price.usd_per_hour / 3600,
        how=f"{', '.join([*by_reaper, summary.status])}: {summary.reason[:60]}",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=Path(__file__).name)
    parser.add_argument("--only", nargs="*", help="names of cases")
    args = parser.parse_args()
    print(describe())
    print(f"{'case':38} {'cap $':>9} {'pods s':>13} {'clock $':>9} {'booked $':>9} {'bound $':>9}")
    kind, found = CLUSTER, []
    with tempfile.TemporaryDirectory() as scratch, misbehaving_image(kind):
        folder = Path(scratch)
        with cluster_engine() as engine:
            cap_usd = smallest_budget(engine, recipe_of(folder, obey.__name__)) * BUDGET_FACTOR
            for case in CASES:
                if args.only and case.__name__ not in args.only:
                    continue
                each = run_case(kind, engine, case.__name__, folder, usd(cap_usd))
                found.append(each)
                seconds = " + ".join(f"{lived:.0f}" for lived in each.wall_s)
                print(
                    f"{each.name:38} {each.cap_usd:9.6f} {seconds:>13} {each.wall_usd:9.6f} "
                    f"{each.booked_usd:9.6f} {each.bound_usd:9.6f}  {each.how}"
                    + ("" if each.is_within else "  ABOVE THE CAP"),
                    flush=True,
                )
    above = [each.name for each in found if not each.is_within]
    print(f"{len(found)} cases, {len(above)} above the cap and its bound: {', '.join(above) or 'none'}")
    raise SystemExit(bool(above))


if __name__ == "__main__":
    main()
