"""Claim: the store adds little to S3 itself: a verb is one request, and takes about what minio-py's takes; and so many entries a second.

python bench/s3.py [--seconds 5]
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

sys.path.append(str(Path(__file__).parent.parent / "tests/outside"))  # the server and the processes of the tests

from s3_server import ADMIN, BUCKET, S3Server, environment
from store_places import Place, at_once

from shoestring.local import WallClock
from shoestring.seams import Store
from shoestring.spending.ledger import Ledger
from shoestring.spending.verify import verify

SIZES = {"1 kB": (1_000, 200), "1 MB": (1_000_000, 40), "16 MB": (16_000_000, 6)}


def timed_s(work: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    work()
    return time.perf_counter() - began_s


def read_plainly(minio: Minio, key: str, path: Path) -> None:
    response = minio.get_object(BUCKET, key)
    with path.open("wb") as file:
        for chunk in response.stream(1 << 20):
            file.write(chunk)
    response.release_conn()


def verbs(store: Store, minio: Minio, folder: Path, size_bytes: int, times: int) -> dict[str, tuple[float, float]]:
    """Median seconds of each verb: ours, and the plain call. They take turns."""
    data = os.urandom(size_bytes)
    took: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in ("put", "put if absent", "fetch")}
    for number in range(times):
        key, plain = f"bench/{size_bytes}/{number}", f"plain/{size_bytes}/{number}"
        took["put if absent"][0].append(timed_s(lambda key=key: store.put(f"{key}-new", data, if_absent=True)))
        took["put"][0].append(timed_s(lambda key=key: store.put(key, data)))
        plain_s = timed_s(lambda plain=plain: minio.put_object(BUCKET, plain, io.BytesIO(data), size_bytes))
        took["put"][1].append(plain_s)
        took["put if absent"][1].append(plain_s)
        took["fetch"][0].append(timed_s(lambda key=key: store.fetch(key)))
        took["fetch"][1].append(timed_s(lambda plain=plain: read_plainly(minio, plain, folder / plain.replace("/", "-"))))
    return {name: (median(ours), median(plain)) for name, (ours, plain) in took.items()}


def append_for(me: int, gate: Any, place: Place, accounts: list[str], seconds: float) -> int:
    ledger = Ledger(place.open(), WallClock())
    ledger.state(accounts[me])
    gate.wait()
    until_s, number = time.monotonic() + seconds, 0
    while time.monotonic() < until_s:
        number += 1
        ledger.reserve(accounts[me], f"work-{me}-{number}", "work", number, Decimal("0.01"))
    return number


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=5.0)
    asked = parser.parse_args()
    os.environ |= environment(ADMIN)
    print(describe())
    with tempfile.TemporaryDirectory() as folder:
        server = S3Server(Path(folder) / "server", volumes=60)
        server.start()
        try:
            place = Place(Path(folder), server.place("bench"))
            store, minio = place.open(), server.minio()
            print(f"{'size':>7} {'verb':>14}   ours ms  minio-py ms  ratio")
            for name, (size_bytes, times) in SIZES.items():
                for verb, (ours_s, plain_s) in verbs(store, minio, Path(folder), size_bytes, times).items():
                    print(f"{name:>7} {verb:>14}  {ours_s * 1e3:8.2f}  {plain_s * 1e3:11.2f}  {ours_s / plain_s:5.2f}")
            print(f"{'writers':>22}  appends/s")
            for label, accounts in (("1", ["one"]), ("4 on 4 accounts", list("abcd")), ("4 on one account", ["shared"] * 4)):
                for account in set(accounts):
                    Ledger(store, WallClock()).open(account, Decimal(10**6))
                print(f"{label:>22}  {sum(at_once(len(accounts), append_for, place, accounts, asked.seconds)) / asked.seconds:9.0f}")
            print(f"verify: {verify(store, {}).entries:,} entries, all hold")
        finally:
            server.kill()


if __name__ == "__main__":
    main()
