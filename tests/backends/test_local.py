"""The interfaces on one machine: the store's guarantees, lifetimes of processes, cores of a stage, and
invalid world files.
"""

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
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import get_type_hints

import psutil
import pytest
import yaml
from examples import examples
from hypothesis import given
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
from shoestring.config import world
from shoestring.core import interfaces
from shoestring.core.errors import NotInStore, StoreError, StoreFull, WorldError
from shoestring.core.pod_ref import LocalProcess
from shoestring.core.types import Placement

ODD = string.ascii_letters + string.digits + " -_=+@%,~()[]{}#'!$&;*?é日"
NAMES = st.text(ODD, min_size=1, max_size=12)
KEYS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)


def no_key_is_a_folder_of_another(keys: dict[str, bytes]) -> bool:
    return not any(one != other and other.startswith(one + "/") for one in keys for other in keys)


OBJECTS = st.dictionaries(KEYS, st.binary(max_size=20), max_size=8).filter(no_key_is_a_folder_of_another)


@examples(40)
@given(OBJECTS, KEYS, st.integers(0, 12))
def test_objects_are_fetched_as_put_and_listed_sorted_by_any_prefix(
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


def test_missing_keys_and_folders_are_not_in_the_store(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.put("a/b", b"")
    for key in ("c", "a", "a/b/c"):
        with pytest.raises(NotInStore, match=key):
            store.fetch(key)
    with pytest.raises(StoreError, match="a/b/c"):
        store.put("a/b/c", b"")


def test_a_failed_put_changes_nothing_and_leaves_no_temporary_file(tmp_path: Path) -> None:
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


def test_a_file_above_the_size_limit_is_a_full_store_and_nothing_is_written(
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


def test_exactly_one_of_many_processes_succeeds_with_put_if_absent(tmp_path: Path) -> None:
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


def test_a_reader_sees_a_complete_object_while_it_is_replaced(tmp_path: Path) -> None:
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


def test_a_process_is_identified_by_host_id_and_creation_time() -> None:
    cluster = LocalCluster(())
    this = this_process()
    assert cluster.lifetime(this).alive
    reused = replace(this, created_ms=this.created_ms - 60_000)
    assert not cluster.lifetime(reused).alive
    # This machine cannot see the process, so it must not settle it.
    assert cluster.lifetime(replace(this, host=f"elsewhere.{this.host}")).alive


def process_ref(pid: int) -> LocalProcess:
    return LocalProcess(socket.gethostname(), pid, int(psutil.Process(pid).create_time() * 1000))


def test_an_ended_process_is_not_alive_even_before_its_parent_waited_for_it() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process = process_ref(child.pid)
    cluster = LocalCluster(())
    assert cluster.lifetime(process).alive
    child.kill()
    while psutil.Process(child.pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    assert not cluster.lifetime(process).alive
    child.wait()
    assert not cluster.lifetime(process).alive
    assert cluster.lifetime(process).started_at is not None


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


def test_the_age_of_a_process_is_exact_to_20_ms() -> None:
    before = datetime.now(UTC)
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
    ) as child:
        started_at = LocalCluster(()).lifetime(process_ref(child.pid)).started_at
        after = datetime.now(UTC)
    tick = timedelta(seconds=0.02)
    assert started_at is not None and before - tick <= started_at <= after + tick


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot pin a process to cores")
def test_applying_a_placement_pins_the_process_and_returns_its_thread_variables() -> None:
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


def test_the_usage_of_an_ended_process_is_zero() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert PsutilTelemetry().usage(child.pid) == interfaces.ProcessUsage(0.0, 0)
    assert PsutilTelemetry().usage(os.getpid()).rss_bytes > 0


def test_no_interface_has_more_than_three_methods() -> None:
    holders = [
        get_type_hints(world.World)[name] for name in ("prices", "cluster", "store", "telemetry", "clock")
    ]
    protocols = [
        value
        for module in (interfaces, world)
        for _, value in inspect.getmembers(module, inspect.isclass)
        if getattr(value, "_is_protocol", False)
    ]
    mine = {
        protocol for protocol in protocols if protocol.__module__ in (interfaces.__name__, world.__name__)
    }
    # PendingPods is the reaper's own interface and no part of a World: no other process may end pods.
    assert mine == {*holders, interfaces.PendingPods}
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


def test_a_world_file_opens_as_a_world_with_its_store_in_the_home_folder(tmp_path: Path) -> None:
    opened = open_local_world(written(tmp_path))
    assert [quote.pool for quote in opened.prices.book().quotes] == ["cpu-1"]
    assert isinstance(opened.store, FolderStore)
    assert opened.store.root == Path("~/store").expanduser()
    assert open_local_world(written(tmp_path), store=tmp_path / "other").digest == opened.digest


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"pools": []}, "pools"),
        ({"pools": [*WORLD["pools"], *WORLD["pools"]]}, "pools named twice: cpu-1"),
        ({"prizes": []}, "prizes"),
        ({"pools": [{"name": "cpu-1", "cores": 1, "memory_gb": 0}]}, "pools.0.memory_gb"),
        ({"purpose": "fun"}, "purpose"),
        ({"prices": [WORLD["prices"][0] | {"pool": "gpu"}]}, "gpu"),  # type: ignore[operator, index]
        ({"schema_version": 2}, "schema version 2 is not readable"),
    ],
)
def test_an_invalid_world_file_is_refused_with_the_field(
    changes: dict[str, object], said: str, tmp_path: Path
) -> None:
    with pytest.raises(WorldError, match=said):
        open_local_world(written(tmp_path, **changes))


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"\xff\xfe\x00", b"pools: [", b"as_of: 2026-13-45", b"name: &a [*a]"]
)
def test_a_file_that_is_no_world_file_is_a_world_error(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "world.yaml").write_bytes(text)
    with pytest.raises(WorldError, match=r"world\.yaml"):
        open_local_world(tmp_path / "world.yaml")


def test_a_missing_world_file_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(WorldError, match="shoestring world init"):
        open_local_world(tmp_path / "nowhere.yaml")
    with pytest.raises(WorldError):
        open_local_world(tmp_path)


def test_pools_of_several_machines_can_only_be_planned_with() -> None:
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
        ValidationError, match="pair: a stage's pod runs on one machine; set `purpose: plan`, or nodes: 1"
    ):
        WorldFile.model_validate(planned | {"purpose": "run"})
