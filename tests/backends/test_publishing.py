"""Many processes publish a result, or take a lease, at once: one of them succeeds, on every kind of store."""

from __future__ import annotations

import os
from typing import Any

from s3_server import ADMIN, environment
from store_locations import StoreLocation, at_once

from shoestring.core import store_layout
from shoestring.core.interfaces import Store
from shoestring.core.pod_ref import PodRef
from shoestring.core.types import StageOutcome
from shoestring.data.storage import cache
from shoestring.data.storage.blobs import put_blob
from shoestring.data.storage.leases import Lease, newest_lease, take_lease

KEY, WRITERS = "0" * 64, 4


def opened(location: StoreLocation) -> Store:
    # The server of these processes may have been started before the one of S3.
    os.environ.update(environment(ADMIN))
    return location.open()


def publish(number: int, gate: Any, location: StoreLocation) -> int:
    store = opened(location)
    blob = store_layout.blob(put_blob(store, b"%d" % number))
    gate.wait()
    return cache.publish_outcome(store, KEY, StageOutcome(key=blob, rows=number), {}).rows


def take(number: int, gate: Any, location: StoreLocation) -> bool:
    store = opened(location)
    before = newest_lease(store, KEY)
    lease = Lease(
        run_id=f"run-{number}",
        account=f"run-{number}",
        stage="ingest",
        attempt=1,
        router=PodRef.parse(f"host.{number}.1"),
        launcher=None,
        expected_s=1.0,
    )
    gate.wait()
    return take_lease(store, KEY, before, lease)


def test_of_results_that_are_published_at_once_all_use_one(shared_location: StoreLocation) -> None:
    used = at_once(WRITERS, publish, shared_location)
    assert used in [[number] * WRITERS for number in range(WRITERS)]
    found = cache.find_outcome(shared_location.open(), KEY)
    assert found is not None and found.rows == used[0]


def test_each_fence_of_a_lease_is_held_by_one(shared_location: StoreLocation) -> None:
    for fence in (1, 2):
        taken = at_once(WRITERS, take, shared_location)
        assert sorted(taken) == [False] * (WRITERS - 1) + [True]
        newest = newest_lease(shared_location.open(), KEY)
        assert newest is not None and newest.lease is not None
        assert (newest.fence, newest.lease.run_id) == (fence, f"run-{taken.index(True)}")
