"""Faults of S3: requests are retried while it is down, and a lost response creates no second object."""

from __future__ import annotations

import io
import os
import resource
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path

import pytest
from s3_server import ADMIN, BUCKET, S3Server, environment
from small_s3 import QuickClock, SmallS3
from store_locations import FORKS, StoreLocation

from shoestring.backends.folder_store import FolderStore
from shoestring.backends.local import WallClock
from shoestring.backends.s3.client import MAX_OBJECT_BYTES, READ_TIMEOUT_S
from shoestring.backends.s3.location import S3Location
from shoestring.backends.s3.store import S3Store, open_s3_store
from shoestring.core.errors import NotInStore, StoreError, StoreFull
from shoestring.spending.audit.records import Anchor
from shoestring.spending.audit.verify import verify
from shoestring.spending.ledger.ledger import Ledger

pytestmark = pytest.mark.usefixtures("credentials")


@pytest.mark.parametrize("key", ["", "/a", "a//b", "a/", "../a", "a/./b", "a\\b", "a\nb"])
def test_a_malformed_key_is_refused(store: S3Store, key: str) -> None:
    with pytest.raises(StoreError, match="cannot name an object"):
        store.put(key, b"")
    with pytest.raises(StoreError, match="cannot name an object"):
        store.fetch(key)


@pytest.mark.parametrize("fault", ["PUT lost", "PUT late", "PUT dropped", "PUT 503", "PUT 409", "PUT 500"])
def test_a_write_whose_response_was_lost_succeeds_and_is_written_once(
    store: S3Store, small: SmallS3, fault: str
) -> None:
    small.faults = [fault]
    assert store.put("ledger/run/00000001.json", b"ours", if_absent=True)
    assert not store.put("ledger/run/00000001.json", b"theirs", if_absent=True)
    assert small.objects["ledger/run/00000001.json"] == b"ours"


def test_a_small_write_to_a_connection_that_is_silent_is_sent_again_within_seconds(
    store: S3Store, small: SmallS3
) -> None:
    small.faults = ["PUT silent"]
    began_s = time.monotonic()
    assert store.put("runs/r/heartbeats/train-1.json", b"beat")
    assert time.monotonic() - began_s < READ_TIMEOUT_S / 2


def test_a_write_whose_response_was_lost_fails_if_another_writer_was_first(
    store: S3Store, small: SmallS3, tmp_path: Path
) -> None:
    small.objects["ledger/run/00000001.json"] = b"theirs"
    for ours in (b"ours", b"yours!"):
        small.faults = ["PUT lost"]
        (tmp_path / "ours").write_bytes(ours)
        assert not store.put("ledger/run/00000001.json", ours, if_absent=True)
        small.faults = ["PUT dropped"]
        assert not store.put("ledger/run/00000001.json", tmp_path / "ours", if_absent=True)


def test_equal_bytes_of_another_writer_are_not_this_write_if_no_response_was_lost(
    store: S3Store, small: SmallS3
) -> None:
    small.objects["learned/it"] = b"same"
    assert not store.put("learned/it", b"same", if_absent=True)


def test_a_ledger_with_repeatedly_lost_responses_has_every_entry_once(
    store: S3Store, small: SmallS3, clock: QuickClock, tmp_path: Path
) -> None:
    ledger = Ledger(store, clock)
    ledger.open("run", Decimal(1))
    for number in range(20):
        small.faults = ["PUT lost", "PUT dropped"] if number % 2 else ["PUT dropped", "PUT lost", "PUT lost"]
        ledger.reserve("run", f"work-{number}", "work", number, Decimal("0.01"))
        small.faults = []
    state = Ledger(store, clock).state("run")
    assert (state.entries, state.held_usd) == (21, Decimal("0.20"))
    copy = FolderStore(tmp_path / "there")
    for key, data in small.objects.items():
        copy.put(key, data)
    assert verify(copy, {"run": (Anchor(state.head_hash),)}).entries == 21 + 2


def test_a_truncated_download_is_repeated(store: S3Store, small: SmallS3, tmp_path: Path) -> None:
    small.objects["blobs/it"] = b"x" * 3_000_000
    small.faults = ["GET cut", "GET dropped", "GET 503"]
    assert store.fetch("blobs/it").read_bytes() == b"x" * 3_000_000
    assert [path.name for path in (tmp_path / "scratch/blobs").iterdir()] == ["it"]


def test_immutable_objects_are_fetched_once_and_a_missing_one_is_requested_again(
    store: S3Store, small: SmallS3
) -> None:
    with pytest.raises(NotInStore):
        store.fetch("blobs/it")
    small.objects |= {"blobs/it": b"x", "ledger/run/head.json": b"y"}
    for _ in range(3):
        store.fetch("blobs/it")
        store.fetch("ledger/run/head.json")
    assert small.requests == ["GET blobs/it", "GET blobs/it", *["GET ledger/run/head.json"] * 3]


def test_an_existing_file_is_not_sent(store: S3Store, small: SmallS3, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * 5_000_000)
    assert store.put("blobs/it", tmp_path / "large", if_absent=True)
    assert not store.put("blobs/it", tmp_path / "large", if_absent=True)
    assert small.requests == ["HEAD blobs/it", "PUT blobs/it", "HEAD blobs/it"]


def test_requests_are_retried_while_the_server_is_down_for_a_minute(
    store: S3Store, small: SmallS3, clock: QuickClock
) -> None:
    small.faults = ["PUT 503"] * 10_000

    def come_back_after_a_minute() -> None:
        if clock.slept_s > 60:
            small.faults = []

    clock.meanwhile = come_back_after_a_minute
    assert store.put("runs/r/curve.json", b"points")
    assert small.objects["runs/r/curve.json"] == b"points"
    assert 60 < clock.slept_s < 70


def test_a_full_server_is_reported_and_nothing_is_written(store: S3Store, small: SmallS3) -> None:
    small.faults = ["PUT 507"]
    with pytest.raises(
        StoreFull, match=r'PUT shoestring/blobs/it at http://\S+: no space left \(507 SomePut of "507"\)'
    ):
        store.put("blobs/it", b"x")
    assert "blobs/it" not in small.objects


@pytest.mark.parametrize("status", [301, 400, 404, 501])
def test_an_unexpected_response_is_an_error(store: S3Store, small: SmallS3, status: int) -> None:
    small.faults = [f"PUT {status}"]
    with pytest.raises(StoreError, match=rf"PUT shoestring/blobs/it at \S+: {status} SomePut"):
        store.put("blobs/it", b"x", if_absent=True)


def test_a_full_scratch_folder_is_reported_and_left_unchanged(
    store: S3Store, small: SmallS3, tmp_path: Path
) -> None:
    small.objects |= {"blobs/large": b"x" * 9_000_000, "blobs/small": b"y"}
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, before[1]))
    try:
        with pytest.raises(StoreFull, match=r"cannot write blobs/large to \S+scratch: .*ephemeral storage"):
            store.fetch("blobs/large")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list((tmp_path / "scratch/blobs").iterdir()) == []
    assert store.fetch("blobs/small").read_bytes() == b"y"


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def put_sparse(location: S3Location, folder: Path) -> None:
    os.environ |= environment(ADMIN)
    store = open_s3_store(location, folder / "scratch", WallClock())
    before = peak_bytes()
    store.put("blobs/large", folder / "large", if_absent=True)
    assert peak_bytes() - before < 32_000_000


def test_a_large_file_is_streamed(small: SmallS3, tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(400_000_000)
    process = FORKS.Process(target=put_sparse, args=(small.location(), tmp_path))
    process.start()
    process.join()
    assert process.exitcode == 0


def test_a_file_above_the_s3_limit_is_refused_before_it_is_sent(
    store: S3Store, small: SmallS3, tmp_path: Path
) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(MAX_OBJECT_BYTES + 1)
    with pytest.raises(
        StoreError,
        match=f"has {MAX_OBJECT_BYTES + 1} bytes, and S3 takes {MAX_OBJECT_BYTES} bytes in one request",
    ):
        store.put("blobs/it", tmp_path / "large")
    assert small.requests == []


def test_all_pages_of_a_list_are_read_and_console_folders_are_left_out(
    s3_server: S3Server, s3_location: StoreLocation
) -> None:
    store = s3_location.open()
    assert s3_location.s3
    s3_server.minio().put_object(BUCKET, f"{s3_location.s3.root}runs/folder/", io.BytesIO(b""), 0)
    keys = [f"runs/{number:04d}" for number in range(1_010)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda key: store.put(key, b""), keys))
    assert list(store.list("runs/")) == keys
