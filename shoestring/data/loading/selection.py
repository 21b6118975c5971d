"""Rows that are chosen from a split: a selection, which an epoch consists of, and which is stored as a blob
and named by its digest; and the rows of a validation."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from shoestring.core.errors import DataError
from shoestring.core.interfaces import Store
from shoestring.data.loading.samples import Positions, SampleReader, Samples
from shoestring.data.loading.shuffle import sample_indices
from shoestring.data.storage.blobs import open_blob, put_blob


def choose_share(rows: int, seed: int, share: float) -> Positions:
    """Return a share of the rows, at least one, in order: int64. A larger share holds all rows of a smaller
    one."""
    return np.sort(sample_indices(rows, seed, 0, 0, max(1, round(share * rows))))


def choose_samples(samples: SampleReader, seed: int, share: float) -> Positions:
    """Return a share of the samples to train on, as `choose_share`. Of streamed samples they are those of
    whole blocks, so that no other block is read."""
    if samples.order == 2:
        return choose_share(len(samples), seed, share)
    return samples.of_few_blocks(seed, max(1, round(share * len(samples))))


def store_selection(store: Store, positions: Positions) -> str:
    """Store the positions of selected rows; return the digest of the blob. Raises StoreFull."""
    buffer = io.BytesIO()
    np.save(buffer, positions, allow_pickle=False)
    return put_blob(store, buffer.getvalue())


def read_selection(store: Store, sha256: str, rows: int) -> Positions:
    """Return the positions of a selection from a split of `rows` rows. Raises CorruptObject, DataError."""
    positions: Positions = np.load(open_blob(store, sha256), allow_pickle=False)
    if not 0 <= positions.min() <= positions.max() < rows:
        raise DataError(f"the selection {sha256} is of another split: it names rows beyond {rows:,}")
    return positions


@dataclass(frozen=True, slots=True)
class ValidationShare:
    """All rows of a validation split, or a share of them that is always the same. A `ValidationRows`."""

    rows: SampleReader
    seed: int
    share: float = 1.0

    def batches(self, batch_rows: int) -> Iterator[Samples]:
        if self.share == 1:
            yield from self.rows.scan(batch_rows)
            return
        count = max(1, int(self.share * len(self.rows)))
        chosen = np.sort(sample_indices(len(self.rows), self.seed, 0, 0, count))
        for start in range(0, count, batch_rows):
            yield self.rows.take(chosen[start : start + batch_rows])
