"""Tables with the bytes of images in a column, as the Hugging Face Hub has them in Parquet files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from shoestring.core.datasets import IMAGE_COLUMN
from shoestring.data.sources.data_file import DataFile
from shoestring.data.sources.images.image_tables import MAX_IMAGE_BYTES, ImagePaths, too_large
from shoestring.data.sources.parquet_reader import TypedTable
from shoestring.data.sources.quarantine import Quarantine
from shoestring.data.values import TEXT


class ImageBytes(ImagePaths):
    """A table with a column of the bytes of images, or of structs of `bytes` and `path`.

    The column is read as text: the path of each image, else FILE#NUMBER, from 0. Where bytes are missing, the
    image is the file at the path, relative to the folder of the table.
    """

    table: TypedTable

    def __init__(self, table: TypedTable, images: Sequence[DataFile], column: str) -> None:
        """Raises DataError when the table has a column of the name that is reserved for images."""
        super().__init__(table, images, column)
        self.names = [*table.names, column, IMAGE_COLUMN]

    @property
    def schema(self) -> pa.Schema:
        return self._named.append(pa.field(IMAGE_COLUMN, pa.binary()))

    @property
    def _named(self) -> pa.Schema:
        return self.table.schema.append(pa.field(self.column, TEXT))

    def batches(self, quarantine: Quarantine) -> Iterator[pa.Table]:
        """Yield the rows with their images, and quarantine those without one. Raises DataError."""
        before, start, file = 0, 0, ""
        for rows, batch in self.table.rows_with(self.table.names, self.column):
            if self.table.file != file:
                start, file = before, self.table.file
            found = _bytes_and_paths(batch.column(self.column))
            names = [path or f"{file}#{before - start + at}" for at, (_, path) in enumerate(found)]
            images = ((name, self._image(*each)) for name, each in zip(names, found, strict=True))
            named = pa.table([*rows.columns, pa.array(names, TEXT)], schema=self._named)
            yield from self._with_images(named, images, before, quarantine)
            before += batch.num_rows

    def images(self, count: int) -> list[bytes]:
        """Return at most `count` images, from a few places. Raises DataError."""
        sample = self.table.raw_sample(self.column, count)
        found = (self._image(*each) for values in sample for each in _bytes_and_paths(values))
        return [each for each in found if isinstance(each, bytes)][:count]

    def _image(self, data: bytes | None, path: str | None) -> bytes | str:
        """Return an image, or why there is none."""
        if data:
            return data if len(data) <= MAX_IMAGE_BYTES else too_large()
        found = self._image_at(path)
        return f"no bytes, and {found}" if isinstance(found, str) else found


def _bytes_and_paths(values: pa.Array) -> list[tuple[bytes | None, str | None]]:
    """Return the bytes and the path of each image."""
    if isinstance(values.type, pa.BaseExtensionType):
        values = values.storage
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if not pa.types.is_struct(values.type):
        return [(data, None) for data in values.to_pylist()]
    # A struct that is missing may have bytes below it, which do not count.
    fields = dict(zip((each.name for each in values.type), values.flatten(), strict=True))
    data = fields["bytes"].to_pylist()
    paths = fields["path"].cast(TEXT).to_pylist() if "path" in fields else [None] * len(values)
    return [*zip(data, paths, strict=True)]
