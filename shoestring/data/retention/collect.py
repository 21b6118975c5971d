"""Delete what nothing kept refers to, while runs run. A kill at any moment leaves nothing dangling.

1. Entries of the cache, reports and checkpoints go first: nothing refers to them.
2. After a pause, all references are read again. A run that read an entry just before it was deleted has
   written it again meanwhile (`cache.renew`), and what it names stays.
3. Manifests, then blobs. A stage that makes one of them again writes it again (`put_blob`), and an object
   that was written lately is not deleted.

What is left when it is killed, the next run of it finds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

from shoestring.config.retention import RetentionPolicy
from shoestring.core import store_layout
from shoestring.core.interfaces import PARALLEL_READS, Clock, ObjectDeletion, Store, StoreInventory
from shoestring.data.retention.garbage import Garbage, find_garbage
from shoestring.data.storage.store_clock import store_time

SETTLE_S = 5.0
"""Seconds between the deletion of cache entries and the second search. A run needs milliseconds from its last
look at an entry to writing it again.
"""


def collect(
    store: Store,
    inventory: StoreInventory,
    deletion: ObjectDeletion,
    retention: RetentionPolicy,
    clock: Clock,
) -> tuple[Garbage, tuple[str, ...]]:
    """Delete what may go. Returns what was found, and the keys that were deleted. Raises StoreError."""
    now = store_time(store, inventory, store_layout.CLEAN_UP_PROBE)
    found = find_garbage(store, inventory, retention, now)
    delete = _deleter(deletion, found.windows.keep_since)
    deleted = delete(found.first)
    if found.manifests or found.blobs:
        clock.sleep(SETTLE_S)
        again = find_garbage(store, inventory, retention, now)
        delete = _deleter(deletion, min(found.windows.keep_since, again.windows.keep_since))
        for keys, still in ((found.manifests, again.manifests), (found.blobs, again.blobs)):
            deleted += delete(set(keys) & set(still))
    return found, tuple(deleted)


def _deleter(deletion: ObjectDeletion, keep_since: datetime) -> Callable[[Iterable[str]], list[str]]:
    def delete(keys: Iterable[str]) -> list[str]:
        """Delete these objects, except those that were written since; return which were deleted."""
        ordered = list(keys)
        with ThreadPoolExecutor(PARALLEL_READS) as deleters:
            gone = deleters.map(lambda key: deletion.delete(key, keep_since), ordered)
            return [key for key, is_gone in zip(ordered, gone, strict=True) if is_gone]

    return delete
