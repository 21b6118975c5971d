"""The guarantees of the store that is a folder."""

from __future__ import annotations

import multiprocessing
import string
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from shoestring.backends.local import (
    FolderStore,
)
from shoestring.core.errors import NotInStore, StoreError, StoreFull

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


MAKES_PROBES = """
import shutil, sys
from pathlib import Path

root = Path(sys.argv[1])
while root.is_dir():
    folder = root / "learned" / ".probe-1"
    for number in range(20):
        (folder / str(number)).mkdir(parents=True)
    shutil.rmtree(folder)
"""


def test_a_folder_that_is_removed_while_a_store_is_listed_is_no_error(tmp_path: Path) -> None:
    """Another run measures the volume in a temporary folder."""
    store = FolderStore(tmp_path / "store")
    store.put("learned/one", b"1")
    other = subprocess.Popen([sys.executable, "-c", MAKES_PROBES, str(tmp_path / "store")])
    try:
        ends_s = time.monotonic() + 1
        while time.monotonic() < ends_s:
            assert list(store.list("")) == ["learned/one"]
    finally:
        other.kill()
        other.wait()


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
