"""Files of text in folders with keys, whose values are columns of text like any other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from shoestring.data.sources.column_types import ColumnKind
from shoestring.data.sources.folders.folder_keys import constant, text_value
from shoestring.data.sources.folders.key_kinds import FolderKeys
from shoestring.data.sources.quarantine import Quarantine
from shoestring.data.sources.untyped_table import TextFile


class KeyedFile:
    """A file whose folders have keys, as columns after its own ones."""

    def __init__(self, file: TextFile) -> None:
        self._file = file
        self._values = {key: text_value(value) for key, value in file.keys.items()}

    @property
    def name(self) -> str:
        return self._file.name

    @property
    def keys(self) -> Mapping[str, str | None]:
        return self._file.keys

    @property
    def remarks(self) -> Sequence[str]:
        return self._file.remarks

    def blocks(self, block_bytes: int, quarantine: Quarantine | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows, with the keys. Raises DataError, also for a column of a key's name with other
        values."""
        for block in self._file.blocks(block_bytes, quarantine):
            columns = dict(zip(block.schema.names, block.columns, strict=True))
            for key, value in self._values.items():
                columns[key] = constant(key, value, columns.get(key), block.num_rows, self.name)
            yield pa.RecordBatch.from_arrays([*columns.values()], [*columns])

    def row_number(self, good_before: int) -> int:
        return self._file.row_number(good_before)

    def row_text(self, block: pa.RecordBatch, index: int) -> str:
        """Return a row as it would be written in the file, with its keys as well."""
        return self._file.row_text(block, index)


def with_folder_keys(
    files: Sequence[TextFile], kinds: Mapping[str, tuple[ColumnKind, ...]]
) -> tuple[Sequence[TextFile], dict[str, tuple[ColumnKind, ...]]]:
    """Return the files of a table and the kinds that its columns may have, with the keys of their folders.

    The kind of a key is inferred from its values in all files, also of those that a sample leaves out.
    """
    keys = FolderKeys({file.name: file.keys for file in files})
    if not [*keys]:
        return files, {**kinds}
    added = {key: keys.candidates(key) for key in keys if key not in kinds}
    return [KeyedFile(file) for file in files], {**kinds, **added}
