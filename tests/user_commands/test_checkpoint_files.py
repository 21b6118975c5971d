"""The files of a command survive any moment of death: the store has one whole copy of them at all times."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoestring.backends.folder_store import FolderStore
from shoestring.commands.checkpoint_files import CheckpointFiles
from shoestring.core import store_layout
from shoestring.core.errors import DataError, StageStopped, StoreError


class DyingStore(FolderStore):
    """A store that fails from its `puts`-th write on."""

    puts: int = 1 << 30

    def put(self, key: str, data: bytes | Path, **options: Any) -> bool:
        self.puts -= 1
        if self.puts < 0:
            raise StoreError("the process was killed here")
        return super().put(key, data, **options)


def content(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_text() for path in files}


def fill(folder: Path, files: dict[str, str]) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_file() and str(path.relative_to(folder)) not in files:
            path.unlink()
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def restored(store: FolderStore, attempt: int, folder: Path) -> dict[str, str]:
    CheckpointFiles(store, "r", "command", attempt, folder).restore()
    return content(folder)


@given(st.integers(0, 2**32 - 1), st.integers(1, 30))
def test_a_death_at_any_write_leaves_the_last_whole_copy(
    tmp_path_factory: pytest.TempPathFactory, seed: int, puts: int
) -> None:
    rng, place = random.Random(seed), tmp_path_factory.mktemp("files")
    store = DyingStore(place / "store")
    store.puts = puts
    folder = place / "work"
    files = CheckpointFiles(store, "r", "command", 1, folder)
    files.restore()
    whole: dict[str, str] = {}
    try:
        for step in range(12):
            wanted = {f"{rng.choice('abc')}/{rng.randrange(4)}.pt": f"{step}" * rng.randrange(1, 9)}
            wanted |= {name: text for name, text in content(folder).items() if rng.random() < 0.6}
            fill(folder, wanted)
            files.save()
            whole = content(folder)
    except StoreError:
        pass
    store.puts = 1 << 30
    assert restored(store, 2, place / "next") == whole


def test_names_that_come_and_go_do_not_fill_the_store(tmp_path: Path) -> None:
    store, folder = FolderStore(tmp_path / "store"), tmp_path / "work"
    files = CheckpointFiles(store, "r", "command", 1, folder)
    files.restore()
    for step in range(40):
        fill(folder, {f"checkpoint-{step}.pt": str(step), f"checkpoint-{step - 1}.pt": str(step - 1)})
        assert files.save() and not files.save()
    assert len(list(store.list(store_layout.checkpoints("r")))) <= 5
    assert set(restored(store, 2, tmp_path / "next")) == {"checkpoint-39.pt", "checkpoint-38.pt"}


def test_unfinished_files_and_links_are_not_kept(tmp_path: Path) -> None:
    store, folder = FolderStore(tmp_path / "store"), tmp_path / "work"
    files = CheckpointFiles(store, "r", "command", 1, folder)
    files.restore()
    fill(folder, {"a.pt": "a", "a.new": "half", "b.tmp": "half"})
    (folder / "link").symlink_to(tmp_path)
    (folder / "passwd").symlink_to("/etc/passwd")
    files.save()
    assert restored(store, 2, tmp_path / "next") == {"a.pt": "a"}


def test_a_file_that_is_still_being_written_waits(tmp_path: Path) -> None:
    store, folder = FolderStore(tmp_path / "store"), tmp_path / "work"
    files = CheckpointFiles(store, "r", "command", 1, folder)
    files.restore()
    fill(folder, {"a.pt": "a"})
    texts = iter(f"{number} so far" for number in range(7))

    def wait(_: float) -> bool:
        if text := next(texts, ""):
            fill(folder, {"a.pt": text})
        assert text or content(folder) == {"a.pt": "6 so far"}
        return False

    assert not files.save_when_quiet(lambda _: True)
    assert files.save_when_quiet(wait) and not next(texts, "")
    assert not files.save_when_quiet(lambda _: False)
    assert restored(store, 2, tmp_path / "next") == {"a.pt": "6 so far"}


def test_an_attempt_that_was_taken_for_lost_does_not_overwrite_the_next_ones_files(tmp_path: Path) -> None:
    store, old, new = FolderStore(tmp_path / "store"), tmp_path / "old", tmp_path / "new"
    first = CheckpointFiles(store, "r", "command", 1, old)
    first.restore()
    second = CheckpointFiles(store, "r", "command", 2, new)
    second.restore()
    fill(new, {"a.pt": "new"})
    assert second.save()
    fill(old, {"a.pt": "old"})
    with pytest.raises(StageStopped, match="attempt 2"):
        first.save()
    assert restored(store, 3, tmp_path / "next") == {"a.pt": "new"}


def test_a_damaged_copy_is_refused_with_its_name(tmp_path: Path) -> None:
    store, folder = FolderStore(tmp_path / "store"), tmp_path / "work"
    files = CheckpointFiles(store, "r", "command", 1, folder)
    files.restore()
    fill(folder, {"a.pt": "a" * 100})
    files.save()
    store.put(f"{store_layout.checkpoints('r')}/command-1-0", b"b" * 100)
    with pytest.raises(DataError, match=r"a\.pt is damaged"):
        restored(store, 2, tmp_path / "next")
    store.put(store_layout.checkpoint_pointer("r", "command"), b"{}")
    with pytest.raises(DataError, match="not a list of files"):
        restored(store, 2, tmp_path / "next")
