"""One S3 server for all tests, a prefix of its own for each, and a store on either side of the seam."""

from __future__ import annotations

import io
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from s3_server import ADMIN, S3Server, environment
from small_s3 import QuickClock, SmallS3, small_s3
from store_places import Place

from shoestring.backends.memory import MemoryStore
from shoestring.backends.s3.store import PROOF_KEY, S3Store, open_s3_store

FAST = "/dev/shm" if Path("/dev/shm").is_dir() else None


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    with tempfile.TemporaryDirectory(dir=FAST) as folder, pytest.MonkeyPatch.context() as variables:
        for name, value in environment(ADMIN).items():
            variables.setenv(name, value)
        server = S3Server(Path(folder))
        try:
            server.start()
            yield server
        finally:
            server.kill()


@pytest.fixture(scope="session")
def s3_proof(s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """That the server honours conditions: proven once, and laid into every test's prefix."""
    return Place(tmp_path_factory.mktemp("proof"), s3_server.place()).open().fetch(PROOF_KEY).read_bytes()


@pytest.fixture
def s3_place(s3_server: S3Server, s3_proof: bytes, tmp_path_factory: pytest.TempPathFactory) -> Place:
    place = s3_server.place(f"test/{uuid.uuid4().hex}")
    s3_server.minio().put_object(place.bucket, place.root + PROOF_KEY, io.BytesIO(s3_proof), len(s3_proof))
    return Place(tmp_path_factory.mktemp("scratch"), place)


@pytest.fixture(params=["a folder", "s3"])
def shared_place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Where a store lies, to be opened by whoever needs it: this process or another."""
    return Place(tmp_path / "store") if request.param == "a folder" else request.getfixturevalue("s3_place")


@pytest.fixture(params=["a folder", "s3", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """The same, and one that no other process can open."""
    if request.param == "memory":
        return Place(tmp_path, memory=MemoryStore())
    return Place(tmp_path / "store") if request.param == "a folder" else request.getfixturevalue("s3_place")


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment(ADMIN).items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def small(credentials: None) -> Iterator[SmallS3]:
    with small_s3() as server:
        yield server


@pytest.fixture
def clock() -> QuickClock:
    return QuickClock()


@pytest.fixture
def store(small: SmallS3, tmp_path: Path, clock: QuickClock) -> S3Store:
    found = open_s3_store(small.place(), tmp_path / "scratch", clock)
    small.asked.clear()
    return found
