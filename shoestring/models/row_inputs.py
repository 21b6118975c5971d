"""Bring the columns of other data into the form that a model has learned from, with its joins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from shoestring.core.datasets import IMAGE_COLUMN
from shoestring.core.errors import DataError
from shoestring.data.source import ImageSettings
from shoestring.data.transforms.image_field import NoImage, decode_image
from shoestring.data.transforms.join import JoinLookup
from shoestring.models.inputs import ModelInputs
from shoestring.models.raw_columns import ColumnReader, RawColumn


def read_columns(table: pa.Table, readers: Sequence[ColumnReader]) -> dict[str, pa.Array]:
    """Return the columns of the readers, as the model knows them."""
    return {each.wanted.name: each.read(table[each.wanted.name].combine_chunks()) for each in readers}


def read_joined_table(inputs: ModelInputs, name: str, table: pa.Table) -> pa.Table:
    """Return the columns of a joined table that the model uses. Raises DataError for a column that is missing
    or of another type."""
    wanted = {each.name: each for each in inputs.joined[name]}
    require_columns([*wanted.values()], table.column_names, f"table {name}")
    readers = [ColumnReader(each) for each in wanted.values()]
    found = read_columns(table, readers)
    for each in readers:
        each.check()
    return pa.table(found)


class RowInputs:
    """Reads the rows of one file or frame. A joined column is taken from it if it is there, or else looked up
    in a table.
    """

    def __init__(
        self,
        inputs: ModelInputs,
        columns: Sequence[str],
        place: str,
        tables: Mapping[str, pa.Table],
        image: ImageSettings | None,
    ) -> None:
        """`columns`: those of the data, which messages call `place`. `tables`: the joined tables at hand.
        `image`: how the images in the column `_image` are decoded.

        Raises DataError for columns and tables that are missing.
        """
        readers = {each.name: each for each in inputs.main}
        self._lookups = list[JoinLookup]()
        for join in inputs.joins:
            if {*join.columns} <= {*columns}:
                readers |= {
                    each.name: each for each in inputs.joined[join.table] if each.name in join.columns
                }
                continue
            if join.table not in tables:
                raise DataError(
                    f"{place} lacks {', '.join(join.columns)} of table {join.table}, which is not kept with "
                    f"the model: add these columns, or give the table ({join.table}=FILE)"
                )
            self._lookups.append(JoinLookup(tables[join.table], join))
            readers |= {each.name: each for each in inputs.keys if each.name in join.by}
        require_columns([*readers.values()], columns, place)
        if image is not None and IMAGE_COLUMN not in columns:
            raise DataError(f"{place} has no column {IMAGE_COLUMN}: it holds the bytes of the image files")
        self._readers = [ColumnReader(each) for each in readers.values()]
        self._image = image

    def read(self, table: pa.Table) -> pa.Table:
        """Return the columns that features are computed from. Raises DataError for a column of another type,
        and for an image that cannot be decoded."""
        columns = read_columns(table, self._readers)
        if self._image is not None:
            columns[IMAGE_COLUMN] = _pixels(table, self._image)
        found = pa.table(columns)
        for lookup in self._lookups:
            found = lookup.join(found)
        return found

    def check(self) -> None:
        """Raise DataError when the values of a column were too often of another kind."""
        for each in self._readers:
            each.check()

    @property
    def notes(self) -> list[str]:
        """A sentence for each column with values that are read as missing."""
        return [each.note for each in self._readers if each.note]


def _pixels(table: pa.Table, image: ImageSettings) -> pa.Array:
    """Return the decoded images. Raises DataError for one that cannot be decoded."""
    found = list[bytes]()
    for row, data in enumerate(table[IMAGE_COLUMN]):
        try:
            found.append(decode_image(data.as_py() or b"", image).tobytes())
        except NoImage as error:
            named = table[image.column][row] if image.column in table.column_names else f"row {row + 1}"
            raise DataError(
                f"{named} is {error}, so nothing is predicted: replace it, or remove it"
            ) from None
    return pa.array(found, pa.binary(image.size_bytes))


def require_columns(wanted: Sequence[RawColumn], columns: Sequence[str], place: str) -> None:
    """Raise DataError for columns that are missing."""
    if missing := [each for each in wanted if each.name not in columns]:
        named = ", ".join(f"{each.name} ({each.described})" for each in missing)
        count = "a column" if len(missing) == 1 else f"{len(missing)} columns"
        raise DataError(
            f"{place} lacks {count} that the model reads: {named}; it has {', '.join(columns) or 'no column'}"
        )
