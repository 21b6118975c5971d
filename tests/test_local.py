"""The five seams on one machine: what the store promises, who is alive, which cores a stage gets, and what is wrong with a world file."""

from __future__ import annotations

import inspect
import multiprocessing
import os
import socket
import string
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import get_type_hints

import psutil
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from shoestring.backends.local import (
    THREAD_VARIABLES,
    FolderStore,
    LocalCluster,
    PsutilTelemetry,
    WorldFile,
    open_local_world,
    this_process,
)
from shoestring.core import interfaces
from shoestring.core.errors import NotInStore, StoreError, StoreFull, WorldError
from shoestring.core.types import Placement

ODD = string.ascii_letters + string.digits + " -_=+@%,~()[]{}#'!$&;*?é日"
NAMES = st.text(ODD, min_size=1, max_size=12)
KEYS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)


def no_key_is_a_folder_of_another(keys: dict[str, bytes]) -> bool:
    return not any(one != other and other.startswith(one + "/") for one in keys for other in keys)


OBJECTS = st.dictionaries(KEYS, st.binary(max_size=20), max_size=8).filter(no_key_is_a_folder_of_another)


@settings(max_examples=40)
@given(OBJECTS, KEYS, st.integers(0, 12))
def test_what_was_put_is_what_is_fetched_and_listed_sorted_by_any_prefix(
    objects: dict[str, bytes], key: str, cut: int
) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        store = FolderStore(Path(folder))
        for name, data in objects.items():
            assert store.put(name, data)
        assert {name: store.fetch(name).read_bytes() for name in objects} == objects
        for prefix in ("", key, key[:cut], *(name[:cut] for name in objects), *objects):
            assert list(store.list(prefix)) == sorted(name for name in objects if name.startswith(prefix))


def test_a_put_replaces_and_a_put_if_absent_does_not(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    assert store.put("a/b", b"1", if_absent=True)
    assert not store.put("a/b", b"2", if_absent=True)
    assert store.fetch("a/b").read_bytes() == b"1"
    assert store.put("a/b", b"3")
    assert store.fetch("a/b").read_bytes() == b"3"
    (tmp_path / "source").write_bytes(b"4")
    assert store.put("a/b", tmp_path / "source")
    (tmp_path / "source").write_bytes(b"5")
    assert store.fetch("a/b").read_bytes() == b"4"


def test_what_is_not_there_and_what_is_a_folder_is_not_in_the_store(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.put("a/b", b"")
    for key in ("c", "a", "a/b/c"):
        with pytest.raises(NotInStore, match=key):
            store.fetch(key)
    with pytest.raises(StoreError, match="a/b/c"):
        store.put("a/b/c", b"")


def test_a_put_that_failed_leaves_what_was_there_and_no_temporary_file(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.put("a/b", b"before")
    with pytest.raises(StoreError):
        store.put("a/b", tmp_path / "no such file")
    assert store.fetch("a/b").read_bytes() == b"before"
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b"]


def test_temporary_files_are_never_listed(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.put("a/b", b"")
    (tmp_path / "a" / ".b.0123456789abcdef").write_bytes(b"half")
    (tmp_path / ".probe-x").mkdir()
    (tmp_path / ".probe-x" / "table").write_bytes(b"half")
    assert list(store.list("")) == ["a/b"]


def test_a_file_larger_than_the_limit_of_the_process_is_a_full_store_and_nothing_of_it_is_there(
    tmp_path: Path,
) -> None:
    text = f"""
import resource, signal
from pathlib import Path
from shoestring.core.errors import StoreFull
from shoestring.backends.folder_store import FolderStore
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    FolderStore(Path({str(tmp_path)!r})).put("a/b", bytes(2000))
except StoreFull as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert "no space left for a/b" in done.stdout
    assert list((tmp_path / "a").iterdir()) == []
    assert issubclass(StoreFull, StoreError)


def put_if_absent(root: Path, me: int, starts_s: float, wins: multiprocessing.Queue[tuple[int, int]]) -> None:
    store = FolderStore(root)
    time.sleep(max(0.0, starts_s - time.monotonic()))
    for number in range(50):
        if store.put(f"race/{number}", str(me).encode() * 1000, if_absent=True):
            wins.put((number, me))


def test_of_many_processes_that_put_if_absent_exactly_one_wins(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    wins = context.Queue()
    starts_s = time.monotonic() + 0.3
    racers = [context.Process(target=put_if_absent, args=(tmp_path, me, starts_s, wins)) for me in range(4)]
    for racer in racers:
        racer.start()
    won = [wins.get(timeout=60) for _ in range(50)]
    for racer in racers:
        racer.join()
    assert wins.empty()
    assert sorted(number for number, _ in won) == list(range(50))
    for number, me in won:
        assert (tmp_path / "race" / str(number)).read_bytes() == str(me).encode() * 1000


def replace_again_and_again(root: Path, over: Callable[[], bool]) -> None:
    store = FolderStore(root)
    while not over():
        for letter in b"ab":
            store.put("a/b", bytes([letter]) * 100_000)


def test_a_reader_sees_an_object_whole_while_it_is_replaced(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    over = context.Event()
    store = FolderStore(tmp_path)
    store.put("a/b", b"a" * 100_000)
    writer = context.Process(target=replace_again_and_again, args=(tmp_path, over.is_set))
    writer.start()
    for _ in range(300):
        data = store.fetch("a/b").read_bytes()
        assert data in (b"a" * 100_000, b"b" * 100_000)
        assert list(store.list("a/")) == ["a/b"]
    over.set()
    writer.join()


def test_who_is_alive_is_told_by_host_process_and_its_creation() -> None:
    cluster = LocalCluster(())
    mine = this_process()
    host, pid, created_ms = mine.rsplit(".", 2)
    me = cluster.lifetime(mine)
    assert me.alive
    reused = f"{host}.{pid}.{int(created_ms) - 60_000}"
    assert not cluster.lifetime(reused).alive
    # Nobody can tell from here, so nobody settles it from here.
    assert cluster.lifetime(f"elsewhere.{host}.{pid}.{created_ms}").alive


def test_a_process_that_ended_is_not_alive_even_before_its_parent_has_heard() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    uid = f"{socket.gethostname()}.{child.pid}.{int(psutil.Process(child.pid).create_time() * 1000)}"
    cluster = LocalCluster(())
    assert cluster.lifetime(uid).alive
    child.kill()
    while psutil.Process(child.pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    assert not cluster.lifetime(uid).alive
    child.wait()
    assert not cluster.lifetime(uid).alive
    assert cluster.lifetime(uid).started_at is not None


def placed(cpu: str) -> Placement:
    return Placement(
        node_selector={},
        tolerations=(),
        affinity={},
        cpu=cpu,
        memory="1G",
        accelerator="",
        accelerator_count="0",
        image="base",
    )


def test_a_process_is_as_old_as_it_is_and_not_up_to_a_second_older() -> None:
    before = datetime.now(UTC)
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
    ) as child:
        created_ms = int(psutil.Process(child.pid).create_time() * 1000)
        started_at = LocalCluster(()).lifetime(f"{socket.gethostname()}.{child.pid}.{created_ms}").started_at
        after = datetime.now(UTC)
    tick = timedelta(seconds=0.02)
    assert started_at is not None and before - tick <= started_at <= after + tick


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot pin a process to cores")
def test_entering_a_placement_pins_the_process_and_returns_its_thread_variables() -> None:
    text = f"""
import os
from shoestring.backends.local import LocalCluster
from shoestring.core.types import Placement
before = os.sched_getaffinity(0)
variables = LocalCluster(()).apply_placement(Placement.model_validate_json({placed("1").model_dump_json()!r}))
after = os.sched_getaffinity(0)
print(len(after), after <= before, variables)
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    count, inside, variables = done.stdout.split(maxsplit=2)
    assert (count, inside) == ("1", "True")
    assert all(f"'{name}': '1'" in variables for name in THREAD_VARIABLES)


def test_the_usage_of_a_process_that_is_gone_is_nothing() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert PsutilTelemetry().usage(child.pid) == interfaces.ProcessUsage(0.0, 0)
    assert PsutilTelemetry().usage(os.getpid()).rss_bytes > 0


def test_no_seam_has_more_than_three_verbs() -> None:
    holders = [
        get_type_hints(interfaces.World)[name]
        for name in ("prices", "cluster", "store", "telemetry", "clock")
    ]
    protocols = [
        value
        for _, value in inspect.getmembers(interfaces, inspect.isclass)
        if getattr(value, "_is_protocol", False)
    ]
    mine = [protocol for protocol in protocols if protocol.__module__ == interfaces.__name__]
    # Waiting is the sweeper's own, and no part of a World: nobody else may end pods.
    assert set(mine) == {*holders, interfaces.PendingPods}
    for protocol in mine:
        verbs = [
            name for name, _ in inspect.getmembers(protocol, inspect.isfunction) if not name.startswith("_")
        ]
        assert 1 <= len(verbs) <= 3, f"{protocol.__name__}: {verbs}"


WORLD = {
    "store": "~/store",
    "pools": [{"name": "cpu-1", "cores": 1, "memory_gb": 4}],
    "prices": [
        {
            "pool": "cpu-1",
            "market": "on-demand",
            "usd_per_hour": "0.04",
            "as_of": "2026-11-01",
            "source": "a test",
        }
    ],
}


def written(folder: Path, **changes: object) -> Path:
    (folder / "world.yaml").write_text(yaml.safe_dump(WORLD | changes))
    return folder / "world.yaml"


def test_a_world_file_is_a_world_with_its_store_at_home(tmp_path: Path) -> None:
    world = open_local_world(written(tmp_path))
    assert [quote.pool for quote in world.prices.book().quotes] == ["cpu-1"]
    assert isinstance(world.store, FolderStore)
    assert world.store.root == Path("~/store").expanduser()
    assert open_local_world(written(tmp_path), store=tmp_path / "other").digest == world.digest


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"pools": []}, "pools"),
        ({"pools": [*WORLD["pools"], *WORLD["pools"]]}, "pools named twice: cpu-1"),
        ({"prizes": []}, "prizes"),
        ({"pools": [{"name": "cpu-1", "cores": 1, "memory_gb": 0}]}, "pools.0.memory_gb"),
        ({"purpose": "fun"}, "purpose"),
        ({"prices": [WORLD["prices"][0] | {"pool": "gpu"}]}, "gpu"),  # type: ignore[operator, index]
        ({"schema_version": 2}, "schema_version"),
    ],
)
def test_what_is_wrong_with_a_world_file_is_named(
    changes: dict[str, object], said: str, tmp_path: Path
) -> None:
    with pytest.raises(WorldError, match=said):
        open_local_world(written(tmp_path, **changes))


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"\xff\xfe\x00", b"pools: [", b"as_of: 2026-13-45", b"name: &a [*a]"]
)
def test_what_is_no_world_file_at_all_is_a_world_error(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "world.yaml").write_bytes(text)
    with pytest.raises(WorldError, match=r"world\.yaml"):
        open_local_world(tmp_path / "world.yaml")


def test_a_missing_world_file_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(WorldError, match="shoestring world init"):
        open_local_world(tmp_path / "nowhere.yaml")
    with pytest.raises(WorldError):
        open_local_world(tmp_path)


def test_pools_of_several_machines_are_only_to_plan_with() -> None:
    pool = {"name": "pair", "cores": 1, "memory_gb": 1, "nodes": 2}
    price = {
        "pool": "pair",
        "market": "on-demand",
        "usd_per_hour": "1",
        "as_of": "2026-11-01",
        "source": "test",
    }
    planned = {"purpose": "plan", "store": "s", "pools": [pool], "prices": [price]}
    assert WorldFile.model_validate(planned).pools[0].nodes == 2
    with pytest.raises(
        ValidationError, match="pair: a stage's pod runs on one machine; say `purpose: plan`, or nodes: 1"
    ):
        WorldFile.model_validate(planned | {"purpose": "run"})
