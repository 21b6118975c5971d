"""A folder of source files in several formats, and what ingest read of it last."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from data_files import recipe_of

from shoestring.backends.folder_store import FolderStore
from shoestring.core.datasets import Manifest
from shoestring.core.types import Format
from shoestring.data.storage.part_writer import REUSING
from shoestring.data.transforms.ingest import ingest

ROWS = 40


def rows_of(seed: int, count: int = ROWS) -> pa.Table:
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "id": pa.array(random.integers(0, 10**6, count).tolist(), pa.int64()),
            "price": pa.array([None, *random.normal(100, 30, count - 1).round(3).tolist()], pa.float64()),
            "word": pa.array([None if each % 11 == 0 else f"w{each % 5}é" for each in range(count)]),
            "y": pa.array([each % 2 == 0 for each in range(count)], pa.bool_()),
        }
    )


def csv_of(table: pa.Table, bad_rows: int = 0) -> bytes:
    lines = [",".join(table.column_names)]
    lines += [
        ",".join("" if value is None else str(value) for value in row.values()) for row in table.to_pylist()
    ]
    return "\n".join([*lines, *["1,2"] * bad_rows, ""]).encode()


def json_of(table: pa.Table) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in table.to_pylist()).encode()


def parquet_of(table: pa.Table) -> bytes:
    pq.write_table(table, sink := pa.BufferOutputStream(), row_group_size=25)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def arrow_of(table: pa.Table) -> bytes:
    with pa.ipc.new_file(sink := pa.BufferOutputStream(), table.schema) as writer:
        writer.write_table(table, max_chunksize=25)
    data: bytes = sink.getvalue().to_pybytes()
    return data


WRITERS: dict[str, Callable[[pa.Table], bytes]] = {
    "csv": csv_of,
    "csv.gz": lambda table: gzip.compress(csv_of(table), mtime=0),
    "jsonl": json_of,
    "parquet": parquet_of,
    "arrow": arrow_of,
}


class Folder:
    """A folder of files, and what ingest read of it last."""

    def __init__(self, folder: Path, format: Format = Format.ARROW) -> None:
        self.data, self.scratch = folder / "data", folder / "scratch"
        for each in (self.data, self.scratch):
            each.mkdir(parents=True)
        self.store, self.format = FolderStore(folder / "store"), format
        self.recipe = recipe_of(self.data)
        self.read_rows = self.reused_rows = 0
        self._clock_ns = 10**18

    def write(self, files: Mapping[str, bytes]) -> None:
        for path in self.data.iterdir():
            if path.name not in files:
                path.unlink()
        for name, data in files.items():
            path = self.data / name
            if not path.exists() or path.read_bytes() != data:
                path.write_bytes(data)
                self._clock_ns += 1
                os.utime(path, ns=(self._clock_ns, self._clock_ns))

    def ingest(self, store: FolderStore | None = None) -> Manifest:
        self.read_rows = self.reused_rows = 0
        return ingest(self.recipe, self.format, store or self.store, self.scratch, self._report)[1]

    def cold(self) -> Manifest:
        """Ingest into a store that knows nothing."""
        return self.ingest(FolderStore(self.scratch / f"cold{len(list(self.scratch.iterdir()))}"))

    def _report(self, what: str, rows: int) -> None:
        if what == REUSING:
            self.reused_rows = rows
        else:
            self.read_rows = rows
