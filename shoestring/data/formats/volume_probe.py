"""The measured speed of every format on one volume. A measurement takes a fraction of a second and is
valid for a week."""

from __future__ import annotations

import errno
import os
from datetime import timedelta
from pathlib import Path

from shoestring.core import store_layout
from shoestring.core.datasets import VolumeProbe
from shoestring.core.errors import NotInStore, StoreError, StoreFull
from shoestring.core.interfaces import Clock, Store
from shoestring.core.record import digest, record_bytes

MAX_PROBE_AGE = timedelta(days=7)


def load_or_probe(store: Store, folder: Path, clock: Clock) -> VolumeProbe:
    """Return the stored speeds of the volume of `folder`, or measure them if older than seven days.

    Raises StoreFull, StoreError.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return _load_or_probe(store, folder, clock)
    except OSError as error:
        kind = StoreFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else StoreError
        raise kind(
            f"cannot measure the disk of {folder}: {error.strerror or error}; "
            "free some space, or use another store"
        ) from error


def _load_or_probe(store: Store, folder: Path, clock: Clock) -> VolumeProbe:
    volume = volume_id(folder)
    key = store_layout.probe(volume)
    try:
        known = VolumeProbe.model_validate_json(store.fetch(key).read_bytes())
        if timedelta(0) <= clock.now() - known.as_of < MAX_PROBE_AGE:
            return known
    except (NotInStore, ValueError):
        pass
    # Imported late: a router that finds a stored probe does not need the libraries that measure one.
    from shoestring.data.formats.format_benchmark import measure_volume

    found = VolumeProbe(volume=volume, as_of=clock.now(), speeds=measure_volume(folder, clock))
    store.put(key, record_bytes(found))
    return found


def volume_id(folder: Path) -> str:
    """Return an id of the volume, from its device number and its size."""
    space = os.statvfs(folder)
    return digest(f"{folder.stat().st_dev} {space.f_blocks} {space.f_frsize}".encode())[:16]
