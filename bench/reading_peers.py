"""Peers of bench/reading.py that read sample by sample: litdata, and MosaicML's streaming.

They write the arrays of each row as NumPy arrays of their own format, and read them in random order through
PyTorch's DataLoader, in this process.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from reading_rows import Array, RowKind
from torch.utils.data import DataLoader

from shoestring.data.formats.packed import pack, record_type


def ready_rows(kind: RowKind, rows: int) -> tuple[Array, ...]:
    """Return the arrays that models read, of `rows` rows in order."""
    table = kind.table(np.random.default_rng(0), rows)
    records = np.empty(rows, record_type(table.schema))
    pack(table, records)
    return kind.by_hand(records)(np.arange(rows))


def litdata(kind: RowKind, folder: Path, rows: int, batch_rows: int) -> Callable[[int], object]:
    """Write the rows for litdata; return the function that reads an epoch. Raises ImportError."""
    from litdata import StreamingDataset
    from litdata.streaming.writer import BinaryWriter

    arrays, writer = ready_rows(kind, rows), BinaryWriter(str(folder), chunk_bytes=1 << 26)
    for row in range(rows):
        writer[row] = {use: np.atleast_1d(each[row]) for use, each in zip(kind.uses, arrays, strict=True)}
    writer.done()
    writer.merge()

    def read(number: int) -> None:
        dataset = StreamingDataset(str(folder), shuffle=True, seed=number)
        for _batch in DataLoader(dataset, batch_rows):
            pass

    return read


def mosaicml(kind: RowKind, folder: Path, rows: int, batch_rows: int) -> Callable[[int], object]:
    """Write the rows for MosaicML; return the function that reads an epoch. Raises ImportError."""
    from streaming import MDSWriter, StreamingDataset
    from streaming.base.util import clean_stale_shared_memory

    arrays = ready_rows(kind, rows)
    columns = {use: f"ndarray:{each.dtype.name}" for use, each in zip(kind.uses, arrays, strict=True)}
    with MDSWriter(out=str(folder), columns=columns) as writer:
        for row in range(rows):
            writer.write({use: np.atleast_1d(each[row]) for use, each in zip(kind.uses, arrays, strict=True)})
    clean_stale_shared_memory()
    dataset = StreamingDataset(local=str(folder), shuffle=True, batch_size=batch_rows)

    def read(_: int) -> None:
        for _batch in DataLoader(dataset, batch_rows):
            pass

    return read


PEERS: dict[str, Callable[[RowKind, Path, int, int], Callable[[int], object]]] = {
    "litdata": litdata,
    "MosaicML streaming": mosaicml,
}
