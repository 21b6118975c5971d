"""What a command leaves in its folder besides regular files is named, and neither read nor followed."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from shoestring.backends.folder_store import FolderStore
from shoestring.commands.checkpoint_files import CheckpointFiles
from shoestring.commands.folder_files import MAX_DEPTH, UNFINISHED
from shoestring.core import store_layout
from shoestring.core.errors import DataError

NAMES = st.binary(min_size=1, max_size=255).filter(
    lambda name: not set(name) & set(b"/\0") and name not in (b".", b"..") and not name.endswith(UNFINISHED)
)


class BusyStore(FolderStore):
    """A store in which a write takes so long that the command does something meanwhile, once."""

    meanwhile: Callable[[], object] | None = None

    def put(self, key: str, data: bytes | Path, **options: Any) -> bool:
        if self.meanwhile is not None:
            act, self.meanwhile = self.meanwhile, None
            act()
        return super().put(key, data, **options)


class Place:
    """A store, and the folder of the first attempt."""

    def __init__(self, root: Path) -> None:
        self.root, self.folder, self.store = root, root / "work", BusyStore(root / "store")
        self.files = self.attempt(1, self.folder)
        self.files.restore()

    def attempt(self, number: int, folder: Path) -> CheckpointFiles:
        return CheckpointFiles(self.store, "r", "command", number, folder)

    def restored(self) -> dict[bytes, bytes]:
        """Return the files that the next attempt finds."""
        folder = self.root / "next"
        self.attempt(2, folder).restore()
        found = (Path(above, name) for above, _, names in os.walk(folder) for name in names)
        return {os.fsencode(path.relative_to(folder)): path.read_bytes() for path in found}

    def stored(self) -> list[bytes]:
        return [self.store.fetch(key).read_bytes() for key in self.store.list(store_layout.checkpoints("r"))]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder with a file that no copy may contain."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "a.pt").write_text("secret")
    return folder


@examples(40)
@given(st.dictionaries(NAMES, st.binary(max_size=8), min_size=1, max_size=4), NAMES)
def test_files_of_every_name_are_restored_byte_for_byte(
    tmp_path_factory: pytest.TempPathFactory, contents: dict[bytes, bytes], below: bytes
) -> None:
    place = Place(tmp_path_factory.mktemp("names"))
    above = Path(os.fsdecode(below))
    (place.folder / above).mkdir()
    for name, data in contents.items():
        (place.folder / above / os.fsdecode(name)).write_bytes(data)
    assert place.files.save() and not place.files.save() and not place.files.left_out
    assert place.restored() == {below + b"/" + name: data for name, data in contents.items()}


def test_the_record_of_a_name_in_utf8_is_the_one_that_earlier_versions_read(place: Place) -> None:
    for name in ("ä.pt", "100%25.pt", "two\nlines.pt"):
        (place.folder / name).write_text(name)
    place.files.save()
    text = place.store.fetch(store_layout.checkpoint_pointer("r", "command")).read_text()
    assert "is_quoted" not in text
    assert {path.decode() for path in place.restored()} == {"ä.pt", "100%25.pt", "two\nlines.pt"}


def test_what_is_no_regular_file_is_named_once_with_its_kind_and_the_others_are_kept(
    place: Place, outside: Path
) -> None:
    (place.folder / "a.pt").write_text("a")
    (place.folder / "linked").symlink_to(outside)
    os.mkfifo(place.folder / "\x1b[31m\n")
    bound = socket.socket(socket.AF_UNIX)
    bound.bind(os.path.relpath(place.folder / "asked"))
    bound.close()
    assert place.files.save()
    assert place.restored() == {b"a.pt": b"a"}
    named = r"\u001b[31m\n (a FIFO), asked (a socket), linked (a symbolic link)"
    assert place.files.left_out.startswith(f"not kept from $SHOESTRING_CHECKPOINTS: {named};")
    (place.folder / b"\xff".decode(errors="surrogateescape")).symlink_to("a.pt")
    place.files.save()
    assert "and 1 more;" in place.files.left_out and place.files.left_out.isprintable()
    for path in place.folder.iterdir():
        path.unlink()
    place.files.save()
    assert place.files.left_out == ""


def test_hard_links_and_sparse_files_are_kept_and_empty_folders_are_not(place: Place) -> None:
    (place.folder / "a.pt").write_text("a")
    (place.folder / "b.pt").hardlink_to(place.folder / "a.pt")
    (place.folder / "empty").mkdir()
    (place.folder / "sparse").touch()
    os.truncate(place.folder / "sparse", 1 << 20)
    assert place.files.save() and not place.files.left_out
    assert place.restored() == {b"a.pt": b"a", b"b.pt": b"a", b"sparse": bytes(1 << 20)}
    assert not (place.root / "next" / "empty").exists()


def test_a_file_deeper_than_the_limit_is_named_and_those_above_are_kept(place: Place) -> None:
    deepest = place.folder.joinpath(*"d" * MAX_DEPTH)
    (deepest / "e").mkdir(parents=True)
    (deepest / "a.pt").write_text("a")
    (deepest / "e" / "b.pt").write_text("b")
    place.files.save()
    assert set(place.restored()) == {b"d/" * MAX_DEPTH + b"a.pt"}
    assert "d/e (more than 100 folders deep);" in place.files.left_out


@pytest.mark.parametrize("kind", ["FIFO", "link", "folder", "nothing"])
def test_what_takes_the_place_of_a_file_during_a_copy_is_not_read(
    place: Place, outside: Path, kind: str
) -> None:
    (place.folder / "a.pt").write_text("a")
    taken = place.folder / "b.pt"
    taken.write_text("b")

    def replace() -> None:
        taken.unlink()
        {"FIFO": lambda: os.mkfifo(taken), "link": lambda: taken.symlink_to(outside / "a.pt")}.get(
            kind, taken.mkdir if kind == "folder" else bool
        )()

    place.store.meanwhile = replace
    assert not place.files.save() and place.files.save()
    assert ("b.pt" in place.files.left_out) == (kind in ("FIFO", "link"))
    assert place.restored() == {b"a.pt": b"a"} and b"secret" not in place.stored()


def test_a_folder_that_becomes_a_link_during_a_copy_is_not_followed(place: Place, outside: Path) -> None:
    (place.folder / "a.pt").write_text("a")
    below = place.folder / "b"
    below.mkdir()
    (below / "a.pt").write_text("b")

    def replace() -> None:
        below.rename(place.root / "moved")
        below.symlink_to(outside)

    place.store.meanwhile = replace
    assert not place.files.save() and place.files.save()
    assert "b (a symbolic link)" in place.files.left_out
    assert place.restored() == {b"a.pt": b"a"} and b"secret" not in place.stored()


def test_where_the_folder_itself_becomes_a_link_the_last_copy_stays(place: Place, outside: Path) -> None:
    (place.folder / "a.pt").write_text("a")
    place.files.save()
    place.folder.rename(place.root / "moved")
    place.folder.symlink_to(outside)
    assert not place.files.save() and not place.files.size_to_copy()
    assert "the folder itself (a symbolic link, or not a folder)" in place.files.left_out
    assert place.restored() == {b"a.pt": b"a"} and b"secret" not in place.stored()


@pytest.mark.parametrize("link", ["", "b", "b/a.pt"])
@pytest.mark.parametrize("target", ["outside", "loop"])
def test_no_file_is_restored_through_a_link(place: Place, outside: Path, link: str, target: str) -> None:
    (place.folder / "b").mkdir()
    (place.folder / "b" / "a.pt").write_text("b")
    place.files.save()
    found = place.root / "next" / link
    found.parent.mkdir(parents=True, exist_ok=True)
    (outside / "b").mkdir()
    to = outside / "a.pt" if link == "b/a.pt" else outside
    found.symlink_to(to if target == "outside" or not link else found)
    with pytest.raises(DataError, match=r"b/a\.pt leads out of the folder"):
        place.attempt(2, place.root / "next").restore()
    assert (outside / "a.pt").read_text() == "secret" and not list((outside / "b").iterdir())


@pytest.fixture
def user_place() -> Iterator[Place]:
    """A place in which the permissions of files apply, also where root runs the tests."""
    was_root = os.geteuid() == 0
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        if was_root:
            os.chown(folder, 65534, -1)
            os.seteuid(65534)
        try:
            yield Place(Path(folder) / "place")
        finally:
            if was_root:
                os.seteuid(0)


def test_what_cannot_be_read_is_named_and_the_others_are_kept(user_place: Place) -> None:
    for name in ("a.pt", "secret.pt", "closed/b.pt"):
        (user_place.folder / name).parent.mkdir(exist_ok=True)
        (user_place.folder / name).write_text(name)
    (user_place.folder / "secret.pt").chmod(0)
    (user_place.folder / "closed").chmod(0)
    assert user_place.files.save()
    assert user_place.restored() == {b"a.pt": b"a.pt"}
    why = "it cannot be read: Permission denied"
    assert f"closed ({why}), secret.pt ({why});" in user_place.files.left_out
    (user_place.folder / "closed").chmod(0o700)
