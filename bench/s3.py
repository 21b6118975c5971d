"""Claim: Shoestring's store adds little to S3 itself: a verb is one request, and takes about as long as
minio-py's.

The bench also measures the ledger's entries per second, and what a router reads of the past (a month's chain
and the newest receipts) in parallel and one after the other, from a server that is one round trip away.

python bench/s3.py [--seconds 5] [--round-trip-ms 30]
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import tempfile
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from statistics import median
from typing import Any

from machine import describe
from minio import Minio

sys.path.append(
    str(Path(__file__).parent.parent / "tests/backends")
)  # the S3 server and the processes of the tests

from s3_server import ADMIN, BUCKET, S3Server, environment
from store_locations import StoreLocation, at_once

from shoestring.backends.local import WallClock
from shoestring.core import store_layout
from shoestring.core.interfaces import Store
from shoestring.core.receipt import Receipt
from shoestring.core.types import Format, Market
from shoestring.data.run_records import read_record
from shoestring.runtime.records.receipt_history import add_to_history, earlier_receipts
from shoestring.spending.audit.verify import verify
from shoestring.spending.ledger.chain import AccountChain
from shoestring.spending.ledger.ledger import Ledger

SIZES = {"1 kB": (1_000, 200), "1 MB": (1_000_000, 40), "16 MB": (16_000_000, 6)}


def duration_s(work: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    work()
    return time.perf_counter() - began_s


def read_with_minio(minio: Minio, key: str, path: Path) -> None:
    response = minio.get_object(BUCKET, key)
    with path.open("wb") as file:
        for chunk in response.stream(1 << 20):
            file.write(chunk)
    response.release_conn()


def time_verbs(
    store: Store, minio: Minio, folder: Path, size_bytes: int, times: int
) -> dict[str, tuple[float, float]]:
    """Return the median seconds of each verb, of the store and of minio-py, which take turns."""
    data = os.urandom(size_bytes)
    seconds: dict[str, tuple[list[float], list[float]]] = {
        name: ([], []) for name in ("put", "put if absent", "fetch")
    }
    for number in range(times):
        key, plain = f"bench/{size_bytes}/{number}", f"plain/{size_bytes}/{number}"
        seconds["put if absent"][0].append(
            duration_s(lambda key=key: store.put(f"{key}-new", data, if_absent=True))
        )
        seconds["put"][0].append(duration_s(lambda key=key: store.put(key, data)))
        plain_s = duration_s(
            lambda plain=plain: minio.put_object(BUCKET, plain, io.BytesIO(data), size_bytes)
        )
        seconds["put"][1].append(plain_s)
        seconds["put if absent"][1].append(plain_s)
        seconds["fetch"][0].append(duration_s(lambda key=key: store.fetch(key)))
        seconds["fetch"][1].append(
            duration_s(lambda plain=plain: read_with_minio(minio, plain, folder / plain.replace("/", "-")))
        )
    return {name: (median(store_s), median(plain)) for name, (store_s, plain) in seconds.items()}


def append_entries(
    writer: int, gate: Any, location: StoreLocation, accounts: list[str], seconds: float
) -> int:
    ledger = Ledger(location.open(), WallClock())
    ledger.state(accounts[writer])
    gate.wait()
    until_s, number = time.monotonic() + seconds, 0
    while time.monotonic() < until_s:
        number += 1
        ledger.reserve(accounts[writer], f"work-{writer}-{number}", "work", number, Decimal("0.01"))
    return number


class DelayedStore:
    """A store whose fetches each take one more round trip."""

    def __init__(self, store: Store, round_trip_s: float) -> None:
        self._store, self._round_trip_s = store, round_trip_s
        self.put, self.list = store.put, store.list

    def fetch(self, key: str) -> Path:
        time.sleep(self._round_trip_s)
        return self._store.fetch(key)


def make_receipt(number: int) -> Receipt:
    now = WallClock().now()
    return Receipt(
        run_id=f"run-{now:%Y%m%d-%H%M%S}-{number:04d}",
        stage="ingest",
        attempt=1,
        decision_key="",
        pod=None,
        pool="cpu-1",
        market=Market.ON_DEMAND,
        format=Format.PACKED,
        status="done",
        cache_hit=False,
        budget_usd=Decimal("0.001"),
        est_usd=Decimal("0.0005"),
        p95_usd=Decimal("0.001"),
        spent_usd=Decimal("0.0005"),
        est_s=1.0,
        prior_s=1.0,
        started_at=now,
        finished_at=now,
        seconds=1.0,
        ledger_head="",
    )


def time_router_reads(
    store: Store, entries: int, receipts: int, round_trip_s: float
) -> dict[str, tuple[float, float]]:
    """Return the seconds of a router's reads: one after the other, and in parallel as routers do."""
    writer = Ledger(store, WallClock())
    writer.open("past", Decimal(10**6))
    for number in range(1, entries):
        writer.reserve("past", f"work-{number}", "work", number, Decimal("0.01"))
    for number in range(receipts):
        add_to_history(store, make_receipt(number))
    delayed = DelayedStore(store, round_trip_s)
    kept = list(store.list(store_layout.LEARNED_RECEIPTS))
    return {
        f"{entries:,} entries": (
            duration_s(lambda: AccountChain(delayed, "past")),
            duration_s(lambda: Ledger(delayed, WallClock()).state("past")),
        ),
        f"{len(kept)} of {receipts} receipts": (
            duration_s(lambda: [read_record(delayed, key, Receipt) for key in kept]),
            duration_s(lambda: earlier_receipts(delayed, ["ingest"], WallClock().now())),
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--round-trip-ms", type=float, default=30.0)
    options = parser.parse_args()
    os.environ |= environment(ADMIN)
    print(describe())
    with tempfile.TemporaryDirectory() as folder:
        server = S3Server(Path(folder) / "server", volumes=60)
        server.start()
        try:
            location = StoreLocation(Path(folder), server.location("bench"))
            store, minio = location.open(), server.minio()
            print(f"{'size':>7} {'verb':>14}  store ms  minio-py ms  ratio")
            for name, (size_bytes, times) in SIZES.items():
                for verb, (store_s, plain_s) in time_verbs(
                    store, minio, Path(folder), size_bytes, times
                ).items():
                    print(
                        f"{name:>7} {verb:>14}  {store_s * 1e3:8.2f}  {plain_s * 1e3:11.2f}  "
                        f"{store_s / plain_s:5.2f}"
                    )
            print(f"{'a router reads':>22}  serial s parallel s   (round trip {options.round_trip_ms:g} ms)")
            for what, (serial_s, parallel_s) in time_router_reads(
                store, 1000, 300, options.round_trip_ms / 1e3
            ).items():
                print(f"{what:>22}  {serial_s:8.2f}  {parallel_s:9.2f}")
            print(f"{'writers':>22}  appends/s")
            for label, accounts in (
                ("1", ["one"]),
                ("4 on 4 accounts", list("abcd")),
                ("4 on one account", ["shared"] * 4),
            ):
                for account in set(accounts):
                    Ledger(store, WallClock()).open(account, Decimal(10**6))
                counts = at_once(len(accounts), append_entries, location, accounts, options.seconds)
                print(f"{label:>22}  {sum(counts) / options.seconds:9.0f}")
            print(f"verify: {verify(store, {}).entries:,} entries, no error")
        finally:
            server.kill()


if __name__ == "__main__":
    main()
