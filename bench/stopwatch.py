"""Claim: no stage takes a run above its cap by wall clock x price: of 27 stages that misbehave and 12 prices
that move on a laptop, none, except by a bound of docs/money.md, which is printed for each case.

The stopwatch is this process. It follows all processes of a stage in /proc, from the start of its
supervisor to the end of the last of them, and multiplies that time by the price that this process wrote.
Books and records play no part in it. Each case is `shoestring run` on a small table, with another body in
place of evaluate. The results of the stages before it are in the store. So the body can spend all money of
the run, which lasts for 25 s at its price or longer, and most bodies do.

python bench/stopwatch.py [--only NAME ...] [--parallel 3] [--quick]

--quick: every sixth case, in about two minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import psutil
from cli import PLANES, SHOESTRING
from machine import describe
from misbehaving_stages import SLOW_VARIABLE, fail
from stopwatch_cases import CASES, ON_DEMAND, SPOT, Case, PriceCase

from shoestring.backends.processes import boot_fraction_s, descendants
from shoestring.core.pod_ref import LocalProcess, PodRef
from shoestring.spending.exit_money import CHECK_EVERY_S, EXIT_S

MORE_USD = ON_DEMAND * 20 / 3600
"""What the budget is above the smallest one that is accepted."""
STAGE = "evaluate"
TIMEOUT_S = 400.0
WORLD = """\
schema_version: 5
name: stopwatch
store: %s
pools:
  - {name: cpu-1, cores: 1, memory_gb: 4, startup_s: 0, markets: {on-demand: {}%s}}
  - {name: router, cores: 1, memory_gb: 0.1, startup_s: 0}
prices: [%s]
tariffs: {storage_usd_per_gb_month: "0"}
# On two busy cores, a supervisor takes a second from its last ledger entry to its end.
policy: {pod_exit_s: 1.5}
"""
ROW = "{pool: cpu-1, market: %s, usd_per_hour: '%s', as_of: 2026-11-01, source: the stopwatch}"
# The price of route steps, so that stages get nearly all money. The pool has memory for no stage.
ROUTER_ROW = "{pool: router, market: on-demand, usd_per_hour: '0.001', as_of: 2026-11-01, source: a test}"
SITE = """\
import json, os, pathlib, sys
if "shoestring.runtime.supervisor.child" in sys.orig_argv:
    if json.loads(pathlib.Path(sys.orig_argv[-1], "job.json").read_text())["stage"] == "evaluate":
        import shoestring.stages.evaluate
        from misbehaving_stages import BY_NAME
        shoestring.stages.evaluate.run = BY_NAME[os.environ["STOPWATCH_CASE"]]
if "SLOW" in os.environ.get("STOPWATCH_CASE", "").upper():
    import misbehaving_stages
    misbehaving_stages.slow_down_stores()
"""


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
            except (ValueError, TypeError, FileNotFoundError):
                # The stage garbled or removed it.
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
        return min(process.create_time() for process in self.seen[attempt]) + boot_fraction_s()


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
    rows = [ROUTER_ROW, ROW % ("on-demand", ON_DEMAND)]
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
        env=os.environ
        | {"PYTHONPATH": paths, "STOPWATCH_CASE": case, SLOW_VARIABLE: str(folder / "store-is-slow")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def warm_up(folder: Path) -> dict[bool, Decimal]:
    """Run the stages before the last one, and return the caps of the cases without and with spot prices."""
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(SITE)
    (folder / "planes.yaml").write_text(PLANES)
    write_world(folder, None, has_spot=False)
    out, err = shoestring(folder, "--budget", "1", case=fail.__name__).communicate()
    assert "a stage that fails" in json.loads(out)["reason"], err
    caps = {}
    for has_spot in (False, True):
        write_world(folder, SPOT if has_spot else None, has_spot=has_spot)
        out, err = shoestring(folder, "--budget", "0.000001").communicate()
        caps[has_spot] = (Decimal(json.loads(out)["smallest_budget_usd"]) + MORE_USD).quantize(
            Decimal("0.000001")
        )
    for name in ("runs", "ledger"):
        shutil.rmtree(folder / "store" / name)
    return caps


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


def run_case(case: Case, warm: Path, cap_usd: Decimal) -> Measured:
    with tempfile.TemporaryDirectory(prefix="stopwatch-") as temporary:
        folder = Path(temporary)
        shutil.copytree(warm, folder, dirs_exist_ok=True)
        first = SPOT if case.price else None
        write_world(folder, first, has_spot=case.price is not None)
        run = shoestring(folder, "--budget", str(cap_usd), case=case.body)
        watch, prices = Stopwatch(folder / "store"), [(0.0, first or ON_DEMAND)]
        follow(run, watch, folder, case, prices)
        out, end_s = run.communicate()[0], time.monotonic() + 3.0
        while time.monotonic() < end_s:
            watch.look()
            time.sleep(0.05)
        summary = json.loads(out)
        cost = [cost_usd(watch.began(each), watch.ended[each], prices) for each in watch.ended]
        above = max((price for _, price in prices), default=ON_DEMAND) - ON_DEMAND
        bound_s = Decimal(str(CHECK_EVERY_S + EXIT_S))
        bound_usd = max(Decimal(0), above) * bound_s
        return Measured(
            case.name,
            cap_usd,
            sum(watch.ended[each] - watch.began(each) for each in watch.ended),
            sum(cost, Decimal(0)),
            Decimal(summary["spent_usd"]) + Decimal(summary["overrun_usd"]),
            bound_usd / 3600,
            f"{summary['status']}: {summary['reason'][:60]}",
        )


def follow(
    run: subprocess.Popen[str],
    watch: Stopwatch,
    folder: Path,
    case: Case,
    prices: list[tuple[float, Decimal]],
) -> None:
    """Look at the processes until the run ends, and change the price at the times of the case."""
    steps, began = list(case.price.steps) if case.price else [], 0.0
    due_s = time.monotonic() + TIMEOUT_S
    while run.poll() is None:
        assert time.monotonic() < due_s, "the run does not end"
        watch.look()
        if not began and case.price and has_begun(case.price, watch):
            began = time.time()
        while case.price and began and steps and time.time() - began >= steps[0][0]:
            _, price = steps.pop(0)
            broken = case.price.broken if price is None else ""
            write_world(folder, price, has_spot=True, broken=broken)
            # Without a price, on-demand is what the stage owes.
            prices.append((time.time(), ON_DEMAND if price is None else price))
        time.sleep(0.05)


def has_begun(price: PriceCase, watch: Stopwatch) -> bool:
    if price.from_decision:
        return any(watch.store.glob(f"runs/*/decisions/{STAGE}-1.json"))
    return f"{STAGE}-1" in watch.supervisors


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
    parser.add_argument("--quick", action="store_true", help="every sixth case, in about two minutes")
    args = parser.parse_args()
    print(describe())
    cases = CASES[::6] if args.quick else CASES
    found = [case for case in cases if not args.only or case.name in args.only]
    print(
        f"{'case':38} {'cap $':>9} {'clock s':>8} {'clock $':>9} {'of cap':>6} {'booked $':>9} {'bound $':>9}"
    )
    measured: list[Measured] = []
    with tempfile.TemporaryDirectory(prefix="stopwatch-") as warm, ThreadPoolExecutor(args.parallel) as pool:
        caps = warm_up(Path(warm))
        for each in pool.map(lambda case: run_case(case, Path(warm), caps[case.price is not None]), found):
            measured.append(each)
            verdict = "" if each.is_within else "  ABOVE THE CAP"
            print(
                f"{each.name:38} {each.cap_usd:9.6f} {each.wall_s:8.1f} {each.wall_usd:9.6f} "
                f"{each.wall_usd / each.cap_usd:6.0%} {each.booked_usd:9.6f} {each.bound_usd:9.6f}  "
                f"{each.how}{verdict}",
                flush=True,
            )
    above = [each.name for each in measured if not each.is_within]
    print(
        f"{len(measured)} cases, {sum(each.wall_usd > each.cap_usd for each in measured)} above the cap, "
        f"{len(above)} above the cap and its bound" + (f": {', '.join(above)}" if above else "")
    )


if __name__ == "__main__":
    main()
