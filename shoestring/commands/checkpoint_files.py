"""The files that a command keeps between its attempts: copied to the store while it runs and at its end, and
back before the next attempt.

As with the checkpoints of a training, no object is overwritten that the newest list of files names: one copy
is whole while the other is written. Each attempt has objects of its own.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pydantic import Field, ValidationError

from shoestring.core import store_layout
from shoestring.core.errors import DataError, NotInStore, StageStopped
from shoestring.core.interfaces import Store
from shoestring.core.record import Record, StoredRecord, record_bytes, validation_message

UNFINISHED = (".new", ".tmp")
"""Names of files that a program writes before it renames them end like this; they are not kept."""
QUIET_S = 0.5
"""A program that has not changed a file for this long has probably finished writing them."""
LOOK_EVERY_S = 0.1
UNKNOWN_BYTES_PER_S = 50e6
"""How quickly files are expected to reach the store before any did."""


class KeptFile(Record):
    """A file as it was copied. `part`: the number of its object."""

    path: str = Field(min_length=1)
    attempt: int
    part: int = Field(ge=0)
    sha256: str
    size_bytes: int = Field(ge=0)
    mode: int = 0o644


class KeptFiles(StoredRecord):
    """The files of the newest copy, and the attempt that made it."""

    attempt: int
    files: tuple[KeptFile, ...] = ()


Look = dict[str, tuple[int, int]]
"""Path below the folder -> size in bytes and time of the last change in nanoseconds."""


class CheckpointFiles:
    """The folder `$SHOESTRING_CHECKPOINTS` of one attempt, and its copy in the store.

    `kept`: the newest copy. `bytes_per_s`: how quickly the last one reached the store.
    """

    def __init__(self, store: Store, run_id: str, stage: str, attempt: int, folder: Path) -> None:
        self.kept = KeptFiles(attempt=attempt)
        self.bytes_per_s = UNKNOWN_BYTES_PER_S
        self._store, self._run_id, self._stage = store, run_id, stage
        self._attempt, self._folder = attempt, folder
        self._copied: Look = {}

    def restore(self) -> int:
        """Write the files of the newest copy into the folder; return how many.

        Raises DataError: the copy is damaged; StageStopped: a newer attempt made it.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        self.kept = self._newest() or self.kept
        for file in self.kept.files:
            target = self._folder / file.path
            if not target.resolve().is_relative_to(self._folder.resolve()):
                raise DataError(f"{file.path} leads out of the folder of checkpoints")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self._store.fetch(self._key(file)), target)
            target.chmod(file.mode)
            if digest_of(target) != file.sha256:
                raise DataError(f"the stored copy of {file.path} is damaged: delete it, or begin a new run")
        self._copied = self._look()
        return len(self.kept.files)

    def size_to_copy(self) -> int:
        """Return the bytes that the next copy has to move."""
        return sum(
            size for path, (size, changed) in self._look().items() if self._is_new(path, size, changed)
        )

    def save_when_quiet(self, wait: Callable[[float], object]) -> bool:
        """Copy the files, if some are new, at the first moment when none has changed for `QUIET_S`; return
        whether it did. `wait` waits for seconds, and returns true at the end of the command.
        """
        seen, quiet_s = self._look(), 0.0
        while seen != self._copied and quiet_s < QUIET_S:
            if wait(LOOK_EVERY_S):
                return False
            quiet_s += LOOK_EVERY_S
            if (now := self._look()) != seen:
                seen, quiet_s = now, 0.0
        try:
            return self.save()
        except FileNotFoundError:
            # The command deleted one of them.
            return False

    def save(self) -> bool:
        """Copy what is new or has changed, and drop what is gone; return whether there was anything.

        Raises StoreError, StoreFull; StageStopped: a newer attempt has made a copy, which stays.
        """
        found = self._look()
        if found == self._copied:
            return False
        self._newest()
        began_s, moved = time.monotonic(), 0
        before = {file.path: file for file in self.kept.files}
        taken = {file.part for file in self.kept.files if file.attempt == self._attempt}
        files = list[KeptFile]()
        for path, (size, changed) in sorted(found.items()):
            kept = before.get(path)
            if kept is None or self._is_new(path, size, changed):
                part = next(number for number in range(len(taken) + 1) if number not in taken)
                kept = self._put(path, part)
                taken.add(part)
                moved += kept.size_bytes
            files.append(kept)
        if self._look() != found:
            # The command wrote meanwhile, so the copies may belong to different moments.
            return False
        self.kept = KeptFiles(attempt=self._attempt, files=tuple(files))
        self._store.put(self._pointer, record_bytes(self.kept))
        self._copied = found
        if moved:
            self.bytes_per_s = moved / max(1e-3, time.monotonic() - began_s)
        return True

    @property
    def _pointer(self) -> str:
        return store_layout.checkpoint_pointer(self._run_id, self._stage)

    def _key(self, file: KeptFile) -> str:
        return f"{store_layout.checkpoints(self._run_id)}/{self._stage}-{file.attempt}-{file.part}"

    def _newest(self) -> KeptFiles | None:
        try:
            found = KeptFiles.model_validate_json(self._store.fetch(self._pointer).read_bytes())
        except NotInStore:
            return None
        except ValidationError as error:
            message = validation_message(error)
            raise DataError(f"{self._pointer} is not a list of files: {message}; begin a new run") from None
        if found.attempt > self._attempt:
            raise StageStopped(f"attempt {found.attempt} of this command has begun", "lost")
        return found

    def _put(self, path: str, part: int) -> KeptFile:
        source = self._folder / path
        info = source.stat()
        file = KeptFile(
            path=path,
            attempt=self._attempt,
            part=part,
            sha256=digest_of(source),
            size_bytes=info.st_size,
            mode=stat.S_IMODE(info.st_mode),
        )
        self._store.put(self._key(file), source)
        return file

    def _is_new(self, path: str, size: int, changed: int) -> bool:
        return self._copied.get(path) != (size, changed)

    def _look(self) -> Look:
        found: Look = {}
        for path in self._regular_files():
            try:
                info = path.lstat()
            except OSError:
                # It was deleted meanwhile.
                continue
            if stat.S_ISREG(info.st_mode):
                found[str(path.relative_to(self._folder))] = (info.st_size, info.st_mtime_ns)
        return found

    def _regular_files(self) -> Iterator[Path]:
        for folder, _, names in os.walk(self._folder):
            yield from (Path(folder, name) for name in names if not name.endswith(UNFINISHED))


def digest_of(path: Path) -> str:
    """Return the SHA-256 digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
