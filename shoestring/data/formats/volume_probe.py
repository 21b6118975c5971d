"""The measured speed of every format on one volume. A measurement takes a fraction of a second and is
valid for a week."""

from __future__ import annotations

import os
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

from shoestring.core import store_layout
from shoestring.core.errors import NO_SPACE, NotInStore, StoreError, StoreFull
from shoestring.core.interfaces import Clock, FetchedCopies, RangedReads, Store, VerifiedMarks
from shoestring.core.record import digest, record_bytes
from shoestring.pricing.format_speeds import MIN_FREE_BYTES, StoreFetch, StoreWait, VolumeProbe

MAX_PROBE_AGE = timedelta(days=7)

FETCH_BYTES, FETCH_REPEATS = 4 << 20, 3

FAR_S = 0.02
"""From this time for a request on, what a stage waits for its store is planned. The wait for a nearer one is
part of the set-up in its need.
"""
STAGE_REQUESTS = 35
"""Requests that the processes of a stage wait for, one after another: counted by bench/store_latency.py."""


def reading_fields(store: Store, clock: Clock) -> dict[str, Any]:
    """Return the measured speeds of the formats in the folder that the store serves files from, where stages
    read and write; and what it sends a second, if it copies them there, with the room that copies have.

    The room is that of this process's own volume: pods of stages are taken to have as much.
    """
    folder, request_s = time_requests(store, clock)
    probe = load_or_probe(store, folder, clock)
    found = {"speeds": probe.speeds, "store_wait": StoreWait(request_s=request_s, requests=STAGE_REQUESTS)}
    if not probe.fetch_bytes_per_s:
        return found
    room_bytes = max(0, shutil.disk_usage(folder).free - MIN_FREE_BYTES)
    fetching = StoreFetch(bytes_per_s=probe.fetch_bytes_per_s, room_bytes=room_bytes)
    return found | {"fetching": fetching}


def time_requests(store: Store, clock: Clock) -> tuple[Path, float]:
    """Return the folder that the store serves files from, and the seconds of the faster of two requests; 0:
    the store is near.
    """
    began_s = clock.monotonic_s()
    store.put(store_layout.LOCAL_PROBE, b"", if_absent=True)
    written_s = clock.monotonic_s()
    folder = store.fetch(store_layout.LOCAL_PROBE).parent
    request_s = min(written_s - began_s, clock.monotonic_s() - written_s)
    return folder, round(request_s, 3) if request_s >= FAR_S else 0.0


def load_or_probe(store: Store, folder: Path, clock: Clock) -> VolumeProbe:
    """Return the stored speeds of the volume of `folder`, or measure them if older than seven days.

    Raises StoreFull, StoreError.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return _load_or_probe(store, folder, clock)
    except OSError as error:
        kind = StoreFull if error.errno in NO_SPACE else StoreError
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

    found = VolumeProbe(
        volume=volume,
        as_of=clock.now(),
        speeds=measure_volume(folder, clock),
        fetch_bytes_per_s=measure_fetch(store, clock),
    )
    store.put(key, record_bytes(found))
    return found


def measure_fetch(store: Store, clock: Clock) -> int:
    """Return the bytes that the store sends in a second, from the fastest of three reads of 4 MiB; 0: its
    objects are files that are read where they are. Raises StoreError.
    """
    # A store that is opened for reading only marks files, too: what is put there never reaches the server.
    if isinstance(store, VerifiedMarks) or not isinstance(store, FetchedCopies):
        return 0
    assert isinstance(store, RangedReads), f"{type(store).__name__} reads whole objects only"
    key, times_s = store_layout.FETCH_PROBE, list[float]()
    store.put(key, os.urandom(FETCH_BYTES))
    for _ in range(FETCH_REPEATS):
        started_s = clock.monotonic_s()
        store.read(key, 0, FETCH_BYTES)
        times_s.append(clock.monotonic_s() - started_s)
    return max(1, round(FETCH_BYTES / max(min(times_s), 1e-9)))


def volume_id(folder: Path) -> str:
    """Return an id of the volume, from its device number and its size."""
    space = os.statvfs(folder)
    return digest(f"{folder.stat().st_dev} {space.f_blocks} {space.f_frsize}".encode())[:16]
