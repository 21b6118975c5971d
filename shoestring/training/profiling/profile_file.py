"""The file in which a command's loop leaves its profile, and its copy in the store."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from shoestring.core import store_layout
from shoestring.core.errors import DataError
from shoestring.core.interfaces import Store
from shoestring.core.record import record_bytes
from shoestring.data.scratch.scratch_files import read_scratch_file
from shoestring.spending.budget_file import PROFILE_VARIABLE
from shoestring.training.profiling.profile import Profile

QUIET = {"KINETO_LOG_LEVEL": "6", "TORCH_CPP_LOG_LEVEL": "ERROR"}
"""PyTorch's profiler writes to stderr that it starts, and that it knows no blocks from before."""


class ProfileFile:
    """A file in a folder of a command. `is_asked`: its loop is to be profiled, unless it was before."""

    def __init__(self, store: Store, run_id: str, folder: Path, is_asked: bool) -> None:
        self._store, self._key, self._path = store, store_layout.profile(run_id), folder / "profile.json"
        self._is_asked = is_asked and self._key not in store.list(self._key)

    @property
    def variables(self) -> dict[str, str]:
        """The environment in which a loop finds it."""
        return {PROFILE_VARIABLE: str(self._path), **QUIET} if self._is_asked else {}

    def keep(self) -> None:
        """Store the profile; nothing, where the loop has left none that can be read."""
        with suppress(DataError):
            if self._is_asked and (found := read_scratch_file(self._path, Profile)) is not None:
                self._store.put(self._key, record_bytes(found))
