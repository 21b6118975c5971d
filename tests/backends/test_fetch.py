"""Remote files that are fetched: continued after a kill, verified, and deleted."""

import fcntl
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from counting_sources import CountingSources
from s3_objects import LARGE, ROWS, put
from s3_server import BUCKET, S3Server

from shoestring.backends.folder_store import FolderStore
from shoestring.core.errors import DataError, StageStopped
from shoestring.data.sources.remote.fetch import PART_BYTES, FetchFolder, fetch_folder

FETCH_UNTIL_KILLED = """
import sys, time
from pathlib import Path
from shoestring.backends.folder_store import FolderStore
from shoestring.backends.sources.obstore_sources import ObstoreSources
from shoestring.data.sources.remote.fetch import PART_BYTES, FetchFolder

def report(found, done):
    print(done, flush=True)
    if done == 2 * PART_BYTES:
        time.sleep(60)

sources, folder = ObstoreSources(), Path(sys.argv[2])
with FetchFolder(sources, FolderStore(folder / "store"), report, folder) as fetched:
    fetched.fetch(sources.list(sys.argv[1])[0])
"""


def test_a_fetch_whose_process_was_killed_is_continued_by_the_next(
    s3_server: S3Server, sources: CountingSources, prefix: str, tmp_path: Path
) -> None:
    url = f"s3://{BUCKET}/{prefix}/rows.csv"
    put(s3_server, f"{prefix}/rows.csv", LARGE)
    child = subprocess.Popen(
        [sys.executable, "-c", FETCH_UNTIL_KILLED, url, str(tmp_path)],
        env=os.environ | {"AWS_ENDPOINT_URL": f"http://{s3_server.endpoint}"},
        stdout=subprocess.PIPE,
    )
    assert child.stdout
    assert [int(child.stdout.readline()) for _ in range(2)] == [PART_BYTES, 2 * PART_BYTES]
    child.send_signal(signal.SIGKILL)
    child.wait()
    (found,) = sources.list(url)
    with FetchFolder(sources, FolderStore(tmp_path / "store"), lambda *_: None, tmp_path) as fetched:
        assert fetched.fetch(found).read_bytes() == LARGE
    assert sorted(start for _, start, _ in sources.reads)[0] == 2 * PART_BYTES
    assert sources.read_bytes == len(LARGE) - 2 * PART_BYTES
    assert list(tmp_path.glob("*.part")) == []


def test_a_fetch_that_is_stopped_leaves_its_parts_and_two_processes_do_not_mix_theirs(
    s3_server: S3Server, sources: CountingSources, prefix: str, tmp_path: Path
) -> None:
    url, store = f"s3://{BUCKET}/{prefix}/rows.csv", FolderStore(tmp_path / "store")
    put(s3_server, f"{prefix}/rows.csv", LARGE)
    (found,) = sources.list(url)

    def stop(_: object, done: int) -> None:
        raise StageStopped(f"at {done} bytes")

    with FetchFolder(sources, store, stop, tmp_path) as stopped, pytest.raises(StageStopped):
        stopped.fetch(found)
    assert (tmp_path / f"{found.identity}.part").stat().st_size == PART_BYTES
    with FetchFolder(sources, store, lambda *_: None, tmp_path) as first:
        path = first.fetch(found)
        with FetchFolder(sources, store, lambda *_: None, tmp_path) as second:
            assert second.fetch(found) != path
            assert second.fetch(found).read_bytes() == path.read_bytes() == LARGE


def test_the_copies_of_many_files_stay_within_their_limit(
    s3_server: S3Server, sources: CountingSources, prefix: str, tmp_path: Path
) -> None:
    for name in "abcd":
        put(s3_server, f"{prefix}/{name}.csv", ROWS)
    found = sources.list(f"s3://{BUCKET}/{prefix}")
    store, limit = FolderStore(tmp_path / "store"), 2 * len(ROWS)
    with FetchFolder(sources, store, lambda *_: None, tmp_path, limit) as fetched:
        for each in (*found, *found):
            assert fetched.fetch(each).read_bytes() == ROWS
            assert sum(path.stat().st_size for path in tmp_path.glob("*.part")) <= limit
    assert list(tmp_path.glob("*.part")) == []


def test_parts_that_nobody_continues_are_deleted_after_a_day(
    s3_server: S3Server, sources: CountingSources, prefix: str, tmp_path: Path
) -> None:
    put(s3_server, f"{prefix}/rows.csv", ROWS)
    (found,) = sources.list(f"s3://{BUCKET}/{prefix}/rows.csv")
    name, days_s = uuid.uuid4().hex, 86_400
    ages_s = {"old": 2 * days_s, "held": 2 * days_s, "young": days_s // 2}
    paths = {age: fetch_folder() / f"{name}-{age}.part" for age in ages_s}
    for age, path in paths.items():
        path.touch()
        os.utime(path, (time.time() - ages_s[age],) * 2)
    with paths["held"].open("r+b") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with FetchFolder(sources, FolderStore(tmp_path / "store"), lambda *_: None) as fetched:
            fetched.fetch(found)
    left = {age for age, path in paths.items() if path.exists()}
    for path in paths.values():
        path.unlink(missing_ok=True)
    assert left == {"held", "young"}


def test_a_copy_that_differs_from_what_was_read_before_is_not_used(
    s3_server: S3Server, sources: CountingSources, prefix: str, tmp_path: Path
) -> None:
    put(s3_server, f"{prefix}/rows.csv", LARGE)
    (found,) = sources.list(f"s3://{BUCKET}/{prefix}/rows.csv")
    store = FolderStore(tmp_path / "store")
    with FetchFolder(sources, store, lambda *_: None, tmp_path) as fetched:
        fetched.fetch(found)
    # Parts that a crashed machine, or another program, left under this name.
    (tmp_path / f"{found.identity}.part").write_bytes(bytes(PART_BYTES))
    with FetchFolder(sources, store, lambda *_: None, tmp_path) as fetched:
        with pytest.raises(DataError, match=r"rows.csv differs from what was read before .* run again"):
            fetched.fetch(found)
        assert fetched.fetch(found).read_bytes() == LARGE
