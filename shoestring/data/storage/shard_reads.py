"""Read stored shards in parts, without a copy of the whole object."""

from __future__ import annotations

from shoestring.core.datasets import DatasetPart
from shoestring.core.errors import DataError
from shoestring.core.interfaces import RangedReads, Store
from shoestring.data.formats.shards import ShardIndex, read_index


def open_shard(store: Store, part: DatasetPart) -> ShardIndex:
    """Return the index of a stored shard. Raises NotInStore, DataError for a damaged or another one."""
    index = read_index(
        lambda start, stop: read_range(store, part.key, start, stop), part.size_bytes, part.key
    )
    if sum(block.rows for block in index.blocks) != part.rows:
        raise DataError(f"{part.key} is damaged: its index does not have the {part.rows:,} rows of the part")
    return index


def read_range(store: Store, key: str, start: int, stop: int) -> bytes:
    """Return bytes of an object. Raises NotInStore, StoreError."""
    assert isinstance(store, RangedReads), f"{type(store).__name__} reads whole objects only"
    return store.read(key, start, stop)
