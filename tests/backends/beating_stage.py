"""Writes a heartbeat each second, as a supervisor does, and goes on while its store is away."""

from __future__ import annotations

import contextlib
import sys
import time
from decimal import Decimal
from pathlib import Path

from shoestring.backends.local import WallClock, this_process
from shoestring.backends.s3.location import S3Location
from shoestring.backends.s3.store import open_s3_store
from shoestring.core import store_layout
from shoestring.core.errors import StoreError
from shoestring.core.record import record_bytes
from shoestring.spending.heartbeat import Heartbeat

INTERVAL_S = 1.0


def main(run_id: str, location: str, scratch: str) -> None:
    clock, pod = WallClock(), this_process()
    store = open_s3_store(S3Location.model_validate_json(location), Path(scratch), clock)
    began = clock.now()
    while True:
        heartbeat = Heartbeat(
            run_id=run_id,
            stage="train",
            attempt=1,
            pod=pod,
            state="running",
            usd_per_hour=Decimal(1),
            started_at=began,
            at=clock.now(),
            interval_s=INTERVAL_S,
            spent_usd=Decimal(0),
        )
        with contextlib.suppress(StoreError):
            store.put(store_layout.heartbeat(run_id, "train-1"), record_bytes(heartbeat))
        time.sleep(INTERVAL_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
