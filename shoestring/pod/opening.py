"""From the `world` argument of a component to a World."""

from __future__ import annotations

import os
from pathlib import Path

from shoestring.local import open_local_world
from shoestring.seams import World

STORE_VARIABLE = "SHOESTRING_STORE"


def open_world(world: str) -> World:
    """Open the world that a component was given: a path, or empty for the default place.

    `$SHOESTRING_STORE`, where it is set, takes the place of the store that the world file names, in every pod of a run alike.

    Raises:
        WorldError: missing or malformed.
    """
    store = os.environ.get(STORE_VARIABLE)
    return open_local_world(Path(world) if world else None, store=Path(store) if store else None)
