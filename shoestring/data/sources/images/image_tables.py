"""Tables of images: the files of a folder, IDX files, or a table with a column of paths.

Each has the column `_image` with the bytes of image files, which preprocess decodes. The images of IDX files
become files in the format PGM or PPM, which are their pixels after a short header.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

import numpy as np
import pyarrow as pa

from shoestring.core.datasets import IMAGE_COLUMN
from shoestring.core.errors import DataError
from shoestring.data.sources.data_file import DataFile
from shoestring.data.sources.images.idx_reader import Array, IdxHeader, idx_rows, read_idx_header
from shoestring.data.sources.images.image_files import ImageFiles, idx_pairs
from shoestring.data.sources.quarantine import Quarantine
from shoestring.data.sources.table import SourceTable
from shoestring.data.split_settings import SPLIT_COLUMN, split_of_name

LABEL_COLUMN, PATH_COLUMN = "label", "path"

BATCH_BYTES = 16 << 20
BATCH_IMAGES = 4096

MAX_IMAGE_BYTES = 64 << 20
"""The largest image file that is read. A larger one is quarantined."""


class ImageFolder:
    """Image files, each with the name of the folder that holds it as its label; null at the top, and in the
    folder of a split. Where files are named by their split, with that."""

    def __init__(self, files: Sequence[DataFile]) -> None:
        self.schema = _with_split(
            files, [(IMAGE_COLUMN, pa.binary()), (LABEL_COLUMN, pa.string()), (PATH_COLUMN, pa.string())]
        )
        self.names = self.schema.names
        self.files = files

    @property
    def rows(self) -> int:
        return len(self.files)

    def batches(self, quarantine: Quarantine) -> Iterator[pa.Table]:
        """Yield the images, and quarantine files that are too large. Raises DataError."""
        rows: list[tuple[bytes, DataFile]] = []
        size_bytes = 0
        for number, file in enumerate(self.files, 1):
            if file.size_bytes > MAX_IMAGE_BYTES:
                quarantine.add(file.name, number, too_large(), "")
                continue
            rows.append((read_image(file), file))
            size_bytes += len(rows[-1][0])
            if size_bytes >= BATCH_BYTES or len(rows) == BATCH_IMAGES:
                yield self._table(rows)
                rows, size_bytes = [], 0
        yield self._table(rows)

    def _table(self, rows: Sequence[tuple[bytes, DataFile]]) -> pa.Table:
        images = pa.array([data for data, _ in rows], pa.binary())
        return pa.table([images, *self._columns([file for _, file in rows])], self.schema)

    def peek(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """Yield these columns of all rows, without the images."""
        yield pa.table(self._columns(self.files), self.names[1:]).select(list(names))

    def images(self, count: int) -> list[bytes]:
        """Return the files of at most `count` images, spread over all. Raises DataError."""
        return _spread_images(self.files, count)

    def _columns(self, files: Sequence[DataFile]) -> list[pa.Array]:
        """Return the columns after the image."""
        columns = [map(_label, files), (file.name for file in files)]
        if SPLIT_COLUMN in self.names:
            columns.append(split_of_name(file.name) for file in files)
        return [pa.array([*column], pa.string()) for column in columns]


class IdxImages:
    """IDX files of images and of labels. The path of an image is that of its file, with its number from 0."""

    def __init__(self, files: ImageFiles) -> None:
        """Raises RecipeError for images without labels, DataError for files that do not fit together."""
        self.schema = _with_split(
            files.idx_images,
            [(IMAGE_COLUMN, pa.binary()), (LABEL_COLUMN, pa.int64()), (PATH_COLUMN, pa.string())],
        )
        self.names = self.schema.names
        self._pairs = [(images, labels, _checked(images, labels)) for images, labels in idx_pairs(files)]

    @property
    def rows(self) -> int:
        return sum(header.shape[0] for _, _, header in self._pairs)

    def batches(self, quarantine: Quarantine) -> Iterator[pa.Table]:
        for images, labels, header in self._pairs:
            batch_rows = min(BATCH_IMAGES, max(1, BATCH_BYTES // header.row_bytes))
            start, numbers = 0, idx_rows(labels, batch_rows)
            for pixels, found in zip(idx_rows(images, batch_rows), numbers, strict=True):
                yield pa.table(
                    [_as_files(pixels), *_idx_columns(images, found, start)],
                    self.schema,
                )
                start += len(found)

    def peek(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """Yield these columns of all rows, without the images. Raises DataError."""
        for images, labels, _ in self._pairs:
            start = 0
            for found in idx_rows(labels, 1 << 16):
                columns = _idx_columns(images, found, start)
                yield pa.table(columns, self.names[1:]).select(list(names))
                start += len(found)

    def images(self, count: int) -> list[bytes]:
        """Return at most `count` images, the first, as files. Raises DataError."""
        images, _, _ = self._pairs[0]
        found: list[bytes] = _as_files(next(idx_rows(images, count))).to_pylist()
        return found


class ImagePaths:
    """A table with a column of paths, and the images at these, relative to the folder of the table."""

    def __init__(self, table: SourceTable, images: Sequence[DataFile], column: str) -> None:
        """Raises DataError when the table has a column of the name that is reserved for images."""
        if IMAGE_COLUMN in table.names:
            raise DataError(f"the table has a column {IMAGE_COLUMN}, a name that is reserved: rename it")
        self.table, self.column = table, column
        self._images: Mapping[str, DataFile] = {file.name: file for file in images}
        self.names = [*table.names, IMAGE_COLUMN]

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema.append(pa.field(IMAGE_COLUMN, pa.binary()))

    def batches(self, quarantine: Quarantine) -> Iterator[pa.Table]:
        """Yield the rows with their images, and quarantine those whose image is missing or too large.

        Raises DataError, TypesChanged.
        """
        before = 0
        for batch in self.table.batches(quarantine):
            batch = self.with_splits(batch)
            for start in range(0, batch.num_rows, BATCH_IMAGES):
                rows = batch.slice(start, BATCH_IMAGES)
                images = ((path or "", self._image_at(path)) for path in self._paths(rows))
                yield from self._with_images(rows, images, before + start, quarantine)
            if not batch.num_rows:
                yield self.schema.empty_table()
            before += batch.num_rows

    def peek(self, names: Sequence[str]) -> Iterator[pa.Table]:
        own = [name for name in names if name != IMAGE_COLUMN]
        if SPLIT_COLUMN not in own or self.column not in self.table.names:
            yield from self.table.peek(own)
            return
        for rows in self.table.peek([*dict.fromkeys([*own, self.column])]):
            yield self.with_splits(rows).select(own)

    def with_splits(self, rows: pa.Table) -> pa.Table:
        """Return rows with the splits that their paths name, where the name of the table names none."""
        has_both = {SPLIT_COLUMN, self.column} <= {*rows.column_names}
        if not has_both or not rows[SPLIT_COLUMN].null_count:
            return rows
        pairs = zip(rows[SPLIT_COLUMN].to_pylist(), self._paths(rows), strict=True)
        splits = pa.array([split or split_of_name(path or "") for split, path in pairs], pa.string())
        return rows.set_column(rows.column_names.index(SPLIT_COLUMN), SPLIT_COLUMN, splits)

    def _paths(self, rows: pa.Table) -> list[str | None]:
        found: list[str | None] = rows[self.column].cast(pa.string()).to_pylist()
        return found

    def images(self, count: int) -> list[bytes]:
        """Return the files of at most `count` images of the folder, spread over all. Raises DataError."""
        return _spread_images([*self._images.values()], count)

    def _image_at(self, path: str | None) -> bytes | str:
        """Return the image at a path, or why there is none. Raises DataError."""
        file = self._images.get(_plain(path))
        if file is None:
            return "no image of this path in the folder of the table"
        return too_large() if file.size_bytes > MAX_IMAGE_BYTES else read_image(file)

    def _with_images(
        self,
        rows: pa.Table,
        images: Iterable[tuple[str, bytes | str]],
        before: int,
        quarantine: Quarantine,
    ) -> Iterator[pa.Table]:
        """Yield the rows with their images, and quarantine those without one. `images`: of each row its name
        and its image."""
        kept: list[int] = []
        found: list[bytes] = []
        size_bytes = 0
        for index, (name, image) in enumerate(images):
            if isinstance(image, str):
                quarantine.add(name, before + index + 1, image, "")
                continue
            kept.append(index)
            found.append(image)
            size_bytes += len(image)
            if size_bytes >= BATCH_BYTES:
                yield self._table(rows, kept, found)
                kept, found, size_bytes = [], [], 0
        yield self._table(rows, kept, found)

    def _table(self, rows: pa.Table, kept: Sequence[int], found: Sequence[bytes]) -> pa.Table:
        return rows.take(pa.array(kept, pa.int64())).append_column(
            pa.field(IMAGE_COLUMN, pa.binary()), pa.array(found, pa.binary())
        )


def _spread_images(files: Sequence[DataFile], count: int) -> list[bytes]:
    chosen = files[:: -(-len(files) // count)] if files else ()
    return [read_image(file) for file in chosen if file.size_bytes <= MAX_IMAGE_BYTES]


def read_image(file: DataFile) -> bytes:
    """Return the bytes of an image file. Raises DataError, and what RemoteSources raises."""
    place = file.whole()
    if isinstance(place, Path):
        try:
            return place.read_bytes()
        except OSError as error:
            raise DataError(f"{file.name} cannot be read: {error}") from None
    with place:
        return place.read()


def _plain(path: str | None) -> str:
    """Return a path as the files of the folder are named. One with `..` or from the root is none of them."""
    return str(PurePosixPath((path or "").strip().replace("\\", "/")))


def too_large() -> str:
    return f"a file of more than {MAX_IMAGE_BYTES >> 20} MB"


def _checked(images: DataFile, labels: DataFile) -> IdxHeader:
    header, count = read_idx_header(images), read_idx_header(labels)
    shape = header.shape
    if header.dtype != np.uint8 or len(shape) not in (3, 4) or (len(shape) == 4 and shape[3] != 3):
        raise DataError(
            f"{images.name} holds {header.dtype} of shape {shape}: images are bytes of shape (rows, height, "
            "width) or (rows, height, width, 3)"
        )
    if not header.row_bytes:
        raise DataError(f"{images.name} holds images without pixels, of shape {shape}")
    if count.shape != shape[:1]:
        raise DataError(f"{images.name} holds {shape[0]:,} images, and {labels.name} {count.shape} labels")
    return header


def _label(file: DataFile) -> str | None:
    folder = PurePosixPath(file.name).parent
    is_split = file.splits and split_of_name(folder.name) and not split_of_name(str(folder.parent))
    return None if is_split else folder.name or None


def _with_split(files: Sequence[DataFile], columns: Sequence[tuple[str, pa.DataType]]) -> pa.Schema:
    """Return the columns, and that of the splits if the files are named by these."""
    split = [(SPLIT_COLUMN, pa.string())] if files and files[0].splits else []
    return pa.schema([*columns, *split])


def _as_files(pixels: Array) -> pa.Array:
    """Return each image as a file: its pixels after the header of a PGM or PPM file."""
    height, width = pixels.shape[1:3]
    kind = "P5" if pixels.ndim == 3 else "P6"
    header = np.frombuffer(f"{kind} {width} {height} 255\n".encode(), np.uint8)
    rows = np.concatenate([np.tile(header, (len(pixels), 1)), pixels.reshape(len(pixels), -1)], axis=1)
    offsets = np.arange(len(rows) + 1, dtype=np.int32) * rows.shape[1]
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(rows)]
    return pa.Array.from_buffers(pa.binary(), len(rows), buffers)


def _idx_columns(images: DataFile, labels: Array, start: int) -> list[pa.Array]:
    paths = [f"{images.name}#{start + index}" for index in range(len(labels))]
    split = [pa.array([split_of_name(images.name)] * len(labels), pa.string())] if images.splits else []
    return [pa.array(labels.astype(np.int64).tolist(), pa.int64()), pa.array(paths, pa.string()), *split]
