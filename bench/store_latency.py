"""Claim: a store that is far away slows a run and hides nothing: at 150 ms and at 500 ms a request the run is
done, and the books hold all seconds of its stages by wall clock but 0.7 s a stage.

Each case is `shoestring run` on a small table, with its store on a real S3 server behind a proxy that lets
each request wait. The proxy counts requests, by the process that makes them and by what they read or write.
The stopwatch is this process: it follows the processes of the stages in the table of the kernel. Each case
has a store of its own, so nothing is cached.

python bench/store_latency.py [--ms 0 50 150 500] [--epochs 20] [--requests] [--quick]

--requests: also each request of each process. --quick: 150 ms alone, in about two minutes.
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
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from cli import start
from delaying_proxy import DelayingProxy, ProxiedRequest, delaying_proxy
from far_store import USD_PER_HOUR, ProcessTimes, write_files
from machine import describe

sys.path.append(str(Path(__file__).parent.parent / "tests/backends"))  # the S3 server of the tests

from s3_server import ADMIN, BUCKET, environment, start_server

from shoestring.backends.local import WallClock
from shoestring.backends.s3.location import S3Location
from shoestring.backends.s3.store import open_s3_store
from shoestring.spending.ledger.ledger import Ledger

TIMEOUT_S = 2400.0
MAX_UNBOOKED_S = 0.7
"""A launcher looks five times a second, and books no less than 0.5 s."""
STAGES = ("ingest", "preprocess", "train", "evaluate")


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


def run_case(folder: Path, proxy: DelayingProxy, ms: float, epochs: int) -> Measured:
    write_files(folder, epochs)
    location = S3Location(endpoint=f"127.0.0.1:{proxy.port}", bucket=BUCKET, prefix=folder.name, secure=False)
    variables = {
        "PYTHONPATH": os.pathsep.join((str(folder / "site"), os.environ.get("PYTHONPATH", ""))),
        "BENCH_STORE": location.model_dump_json(),
        "BENCH_SCRATCH": str(folder / "scratch"),
    }
    proxy.delay_s, proxy.requests = ms / 1000, []
    began_s, times, over = time.monotonic(), ProcessTimes(folder / "scratch"), threading.Event()
    run = start(
        *("run", str(folder / "planes.yaml"), "--world", str(folder / "world.yaml")),
        *("--budget", "2", "--out", str(folder / "out"), "--json"),
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
    run_s, requests = time.monotonic() - began_s, [without(folder.name, each) for each in proxy.requests]
    near = location.model_copy(update={"endpoint": proxy.server})
    return measured_run(ms, folder, json.loads(text), near, run_s, times.seconds(), requests)


def measured_run(
    ms: float,
    folder: Path,
    summary: dict[str, Any],
    near: S3Location,
    run_s: float,
    seconds: dict[str, float],
    requests: Sequence[ProxiedRequest],
) -> Measured:
    """Return the run with its ledger and its receipts."""
    store = open_s3_store(near, folder / "scratch", WallClock())
    books = Ledger(store, WallClock()).state(summary["run_id"]).settled_usd
    receipts = {
        path.stem.rpartition("-")[0]: json.loads(path.read_text())
        for path in sorted((folder / "out" / "receipts").glob("*.json"))
    }

    def as_seconds(usd: str | Decimal) -> float:
        return float(Decimal(usd) / USD_PER_HOUR * 3600)

    return Measured(
        ms,
        summary["status"],
        summary["reason"],
        run_s,
        seconds,
        {name.rpartition("-")[0]: as_seconds(usd) for name, usd in books.items()},
        {stage: receipt["est_s"] for stage, receipt in receipts.items()},
        {stage: as_seconds(receipt["p95_usd"]) for stage, receipt in receipts.items()},
        requests,
    )


def without(prefix: str, request: ProxiedRequest) -> ProxiedRequest:
    return replace(request, key=request.key.removeprefix(f"{prefix}/"))


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
        verbs = ", ".join(
            f"{kinds[name, verb]} {verb}" for verb in ("GET", "PUT", "LIST", "HEAD") if kinds[name, verb]
        )
        print(f"  {name:24} {verbs}")


def print_summary(measured: Sequence[Measured]) -> None:
    print(
        f"\n{'ms':>5} {'status':8} {'run s':>7} {'requests':>8} {'of stages':>9} "
        f"{'stages: clock s':>15} {'booked s':>8} {'others: clock s':>15} {'booked s':>8}  claim"
    )
    for found in measured:
        of_stages = sum(each.process.removesuffix(" code") in STAGES for each in found.requests)
        clock_s = dict.fromkeys((True, False), 0.0)
        booked_s = dict(clock_s)
        for times, into in ((found.seconds, clock_s), (found.booked_s, booked_s)):
            for name, seconds in times.items():
                into[name in STAGES] += seconds
        print(
            f"{found.ms:5g} {found.status:8} {found.run_s:7.1f} {len(found.requests):8} {of_stages:9} "
            f"{clock_s[True]:15.1f} {booked_s[True]:8.1f} {clock_s[False]:15.1f} {booked_s[False]:8.1f}  "
            + ("holds" if is_held(found, clock_s[True], booked_s[True]) else "DOES NOT HOLD")
        )


def is_held(found: Measured, clock_s: float, booked_s: float) -> bool:
    """Return whether the run is done, and each of its stages has at most `MAX_UNBOOKED_S` in no book."""
    return found.status == "done" and clock_s - booked_s <= MAX_UNBOOKED_S * len(STAGES)


def main() -> None:
    parser = argparse.ArgumentParser(description=Path(__file__).name)
    parser.add_argument("--ms", nargs="*", type=float, default=[0.0, 50.0, 150.0, 500.0])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--requests", action="store_true", help="print each request")
    parser.add_argument("--quick", action="store_true", help="150 ms alone, in about two minutes")
    options = parser.parse_args()
    print(describe())
    os.environ |= environment(ADMIN)
    with tempfile.TemporaryDirectory() as name:
        server = start_server(Path(name) / "s3")
        try:
            with delaying_proxy(server.endpoint, BUCKET) as proxy:
                measured = []
                for ms in [150.0] if options.quick else options.ms:
                    measured.append(run_case(Path(name) / f"at-{ms:g}-ms", proxy, ms, options.epochs))
                    print_case(measured[-1], every_request=options.requests)
        finally:
            server.kill()
    print_families(measured)
    print_summary(measured)


if __name__ == "__main__":
    main()
