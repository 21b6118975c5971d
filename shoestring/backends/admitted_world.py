"""The world of a run on one machine, as it was when the run was admitted.

Each step of a run is a process that opens the world again. Its file may have been edited meanwhile. During a
run only prices change: the price lists, and the file's own rows for the policy's floating markets.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shoestring.backends.folder_store import FolderStore
from shoestring.backends.local import FilePrices, WorldFile, read_world_file
from shoestring.config.world import World
from shoestring.core.errors import WorldError
from shoestring.core.record import Record, digest, record_bytes
from shoestring.data.scratch.temporary_folders import temporary_folder

ADMITTED_VARIABLE = "SHOESTRING_ADMITTED_WORLD"
"""Names the file of an AdmittedWorld for the steps of a run, after its digest: SHA256:PATH."""


class AdmittedWorld(Record):
    """A world file as a run was admitted in it. `source`: its path."""

    source: Path
    world: WorldFile

    def read(self, source: Path) -> WorldFile:
        """Return the admitted file, with the prices that `source` has now on floating markets.

        Raises WorldError.
        """
        moving = self.world.policy.floating_markets
        fixed = [row for row in self.world.prices if row.get("market") not in moving]
        moved = [row for row in read_world_file(source).prices if row.get("market") in moving]
        return self.world.model_copy(update={"prices": (*fixed, *moved)})


@contextmanager
def admitted_variable(world: World, source: Path) -> Iterator[dict[str, str]]:
    """Yield the environment that gives a run's steps the world that was opened from `source`.

    Its file is deleted at the end.
    """
    if not isinstance(world.prices, FilePrices) or not isinstance(world.store, FolderStore):
        yield {}
        return
    file = world.prices.world.model_copy(update={"store": str(world.store.root)})
    content = record_bytes(AdmittedWorld(source=source.absolute(), world=file))
    with temporary_folder() as folder:
        path = folder / "world.json"
        path.write_bytes(content)
        yield {ADMITTED_VARIABLE: f"{digest(content)}:{path}"}


def admitted_world(source: Path) -> AdmittedWorld | None:
    """Return the world that this process's run was admitted in; None: it has none, or not from `source`.

    Raises:
        WorldError: its file was changed or deleted.
    """
    sha256, _, path = os.environ.get(ADMITTED_VARIABLE, "").partition(":")
    if not path:
        return None
    try:
        content = Path(path).read_bytes()
    except OSError:
        content = b""
    if digest(content) != sha256:
        raise WorldError(
            f"{path} is not what the launcher of this run wrote: the world in which the run was admitted is "
            "lost; resume the run"
        )
    found = AdmittedWorld.model_validate_json(content)
    return found if found.source == source.absolute() else None
