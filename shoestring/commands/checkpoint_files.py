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
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote_from_bytes, unquote_to_bytes

from pydantic import Field, ValidationError

from shoestring.commands.folder_files import OpenFile, left_out_text, open_file, scan_folder, shown_path
from shoestring.core import store_layout
from shoestring.core.errors import DataError, NotInStore, StageStopped
from shoestring.core.interfaces import Store
from shoestring.core.record import Record, StoredRecord, record_bytes, validation_message

QUIET_S = 0.5
"""A program that has not changed a file for this long has probably finished writing them."""
LOOK_EVERY_S = 0.1
UNKNOWN_BYTES_PER_S = 50e6
"""How quickly files are expected to reach the store before any did."""


class KeptFile(Record):
    """A file as it was copied. `part`: the number of its object. `is_quoted`: its path is not UTF-8, and
    `path` has its bytes as a URL would, like `%FF.bin`.
    """

    path: str = Field(min_length=1)
    is_quoted: bool = Field(False, exclude_if=lambda quoted: not quoted)
    attempt: int
    part: int = Field(ge=0)
    sha256: str
    size_bytes: int = Field(ge=0)
    mode: int = 0o644

    @property
    def path_bytes(self) -> bytes:
        return unquote_to_bytes(self.path) if self.is_quoted else self.path.encode()


class KeptFiles(StoredRecord):
    """The files of the newest copy, and the attempt that made it."""

    attempt: int
    files: tuple[KeptFile, ...] = ()


class CheckpointFiles:
    """The folder `$SHOESTRING_CHECKPOINTS` of one attempt, and its copy in the store.

    `kept`: the newest copy. `bytes_per_s`: how quickly the last one reached the store. `left_out`: a
    sentence on what the last call of `save` found in the folder and cannot keep; empty: nothing.
    """

    def __init__(self, store: Store, run_id: str, stage: str, attempt: int, folder: Path) -> None:
        self.kept = KeptFiles(attempt=attempt)
        self.bytes_per_s = UNKNOWN_BYTES_PER_S
        self.left_out = ""
        self._store, self._run_id, self._stage = store, run_id, stage
        self._attempt, self._folder = attempt, folder
        self._copied: dict[bytes, tuple[int, int]] = {}

    def restore(self) -> int:
        """Write the files of the newest copy into the folder; return how many.

        Raises DataError: the copy is damaged, or a file would be written outside; StageStopped: a newer
        attempt made it.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        self.kept = self._newest() or self.kept
        for file in self.kept.files:
            shown = shown_path(file.path_bytes)
            target = open_file(self._folder, file.path_bytes, create=True)
            if target is None:
                raise DataError(f"{shown} leads out of the folder of checkpoints")
            with target, self._store.fetch(self._key(file)).open("rb") as source:
                shutil.copyfileobj(source, target, 1 << 20)
                target.seek(0)
                if digest_of(target) != file.sha256:
                    raise DataError(f"the stored copy of {shown} is damaged: delete it, or begin a new run")
                os.fchmod(target.fileno(), file.mode)
        self._copied = scan_folder(self._folder).files
        return len(self.kept.files)

    def size_to_copy(self) -> int:
        """Return the bytes that the next copy has to move."""
        files = scan_folder(self._folder).files
        return sum(size for path, (size, changed) in files.items() if self._is_new(path, size, changed))

    def save_when_quiet(self, wait: Callable[[float], object]) -> bool:
        """Copy the files, if some are new, at the first moment when none has changed for `QUIET_S`; return
        whether it did. `wait` waits for seconds, and returns true at the end of the command.
        """
        seen, quiet_s = scan_folder(self._folder).files, 0.0
        while seen != self._copied and quiet_s < QUIET_S:
            if wait(LOOK_EVERY_S):
                return False
            quiet_s += LOOK_EVERY_S
            if (now := scan_folder(self._folder).files) != seen:
                seen, quiet_s = now, 0.0
        return self.save()

    def save(self) -> bool:
        """Copy what is new or has changed, and drop what is gone; return whether there was anything.

        Raises StoreError, StoreFull; StageStopped: a newer attempt has made a copy, which stays.
        """
        scan = scan_folder(self._folder)
        found, self.left_out = scan.files, left_out_text(scan.left_out)
        # The last copy stays if the folder is now a link, or cannot be read.
        if found == self._copied or b"" in scan.left_out:
            return False
        self._newest()
        began_s, moved = time.monotonic(), 0
        before = {file.path_bytes: file for file in self.kept.files}
        taken = {file.part for file in self.kept.files if file.attempt == self._attempt}
        files = list[KeptFile]()
        for path, (size, changed) in sorted(found.items()):
            kept = before.get(path)
            if kept is None or self._is_new(path, size, changed):
                part = next(number for number in range(len(taken) + 1) if number not in taken)
                if (kept := self._put(path, part)) is None:
                    return False
                taken.add(part)
                moved += kept.size_bytes
            files.append(kept)
        if scan_folder(self._folder).files != found:
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

    def _put(self, path: bytes, part: int) -> KeptFile | None:
        """Copy a file. Returns None: it is gone, or something else has its name now."""
        if (source := open_file(self._folder, path)) is None:
            return None
        text, is_quoted = path_text(path)
        with source:
            info = os.fstat(source.fileno())
            file = KeptFile(
                path=text,
                is_quoted=is_quoted,
                attempt=self._attempt,
                part=part,
                sha256=digest_of(source),
                size_bytes=info.st_size,
                mode=stat.S_IMODE(info.st_mode),
            )
            source.seek(0)
            # By its name, the store could find another file.
            self._store.put(self._key(file), Path(f"/dev/fd/{source.fileno()}"))
        return file

    def _is_new(self, path: bytes, size: int, changed: int) -> bool:
        return self._copied.get(path) != (size, changed)


def path_text(path: bytes) -> tuple[str, bool]:
    """Return a path as text, and whether it had to be quoted."""
    try:
        return path.decode(), False
    except UnicodeDecodeError:
        return quote_from_bytes(path), True


def digest_of(file: OpenFile) -> str:
    """Return the SHA-256 digest of the rest of a file."""
    return hashlib.file_digest(file, "sha256").hexdigest()
