"""One S3 server for all tests, with a separate prefix for each test, and stores of every kind."""

from __future__ import annotations

import io
import os
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import Finished
from counting_sources import CountingSources
from kube_server import KubeServer, kube_server
from remote_lab import RemoteLab
from s3_server import ADMIN, DATA_KEYS, S3Server, environment, start_server
from small_s3 import QuickClock, SmallS3, small_s3
from store_locations import StoreLocation

from shoestring.backends.folder_store import FolderStore
from shoestring.backends.memory import MemoryStore
from shoestring.backends.s3.store import S3Store, open_s3_store
from shoestring.backends.sources.data_variables import S3Server as NamedServer
from shoestring.backends.sources.obstore_sources import ObstoreSources
from shoestring.core.store_layout import CONDITIONAL_WRITE_PROOF

FAST = "/dev/shm" if Path("/dev/shm").is_dir() else None


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    with tempfile.TemporaryDirectory(dir=FAST) as folder, pytest.MonkeyPatch.context() as variables:
        for name, value in environment(ADMIN).items():
            variables.setenv(name, value)
        server = start_server(Path(folder))
        try:
            yield server
        finally:
            server.kill()


@pytest.fixture(scope="module")
def data_server() -> Iterator[S3Server]:
    """Run another S3 server, which accepts none of the administrator's keys of the first."""
    with tempfile.TemporaryDirectory(dir=FAST) as folder:
        server = start_server(Path(folder), admin=DATA_KEYS)
        try:
            yield server
        finally:
            server.kill()


@pytest.fixture(scope="session")
def s3_proof(s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return the proof that the server honours conditional writes.

    It is copied to the prefix of every test.
    """
    return (
        StoreLocation(tmp_path_factory.mktemp("proof"), s3_server.location())
        .open()
        .fetch(CONDITIONAL_WRITE_PROOF)
        .read_bytes()
    )


@pytest.fixture
def s3_location(
    s3_server: S3Server, s3_proof: bytes, tmp_path_factory: pytest.TempPathFactory
) -> StoreLocation:
    location = s3_server.location(f"test/{uuid.uuid4().hex}")
    s3_server.minio().put_object(
        location.bucket, location.root + CONDITIONAL_WRITE_PROOF, io.BytesIO(s3_proof), len(s3_proof)
    )
    return StoreLocation(tmp_path_factory.mktemp("scratch"), location)


@pytest.fixture(params=["a folder", "s3"])
def shared_location(request: pytest.FixtureRequest, tmp_path: Path) -> StoreLocation:
    """Return the location of a store that other processes can open, too."""
    return (
        StoreLocation(tmp_path / "store")
        if request.param == "a folder"
        else request.getfixturevalue("s3_location")
    )


@pytest.fixture(params=["a folder", "s3", "memory"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> StoreLocation:
    """Return the location of a store of any kind, also of one in the memory of this process."""
    if request.param == "memory":
        return StoreLocation(tmp_path, memory=MemoryStore())
    return (
        StoreLocation(tmp_path / "store")
        if request.param == "a folder"
        else request.getfixturevalue("s3_location")
    )


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
    found = open_s3_store(small.location(), tmp_path / "scratch", clock)
    small.requests.clear()
    return found


@pytest.fixture
def kube() -> Iterator[KubeServer]:
    with kube_server() as server:
        # A person who may read neither nodes nor the pods of other namespaces, on a cluster without Argo.
        server.denied += ["/api/v1/nodes", "/api/v1/pods"]
        yield server


@pytest.fixture
def lab(kube: KubeServer, s3_server: S3Server, finished: Finished, tmp_path: Path) -> RemoteLab:
    location = s3_server.location(f"remote/{uuid.uuid4().hex}")
    store = FolderStore(finished.store)
    for key in store.list(""):
        if not key.startswith(("blobs/", "cache/")):
            data = store.fetch(key).read_bytes()
            s3_server.minio().put_object(location.bucket, location.root + key, io.BytesIO(data), len(data))
    found = RemoteLab(kube, s3_server, location, finished, tmp_path)
    found.install()
    return found


@pytest.fixture
def relay(lab: RemoteLab, tmp_path: Path) -> dict[str, str]:
    """Return the variables with which `kubectl port-forward` relays to the store."""
    program = tmp_path / "bin" / "kubectl"
    program.parent.mkdir()
    script = Path(__file__).parent / "relay_kubectl.py"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$@"\n')
    program.chmod(0o755)
    return {
        "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}",
        "RELAY_TO": lab.s3.endpoint,
        "RELAY_LOG": str(tmp_path / "relay.log"),
    }


@pytest.fixture
def prefix() -> str:
    """Return a folder in the bucket that no other test uses."""
    return f"sources/{uuid.uuid4().hex}"


@pytest.fixture
def sources(s3_server: S3Server) -> CountingSources:
    return CountingSources(ObstoreSources(NamedServer(f"http://{s3_server.endpoint}", "us-east-1")))
