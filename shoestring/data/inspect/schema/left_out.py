"""The columns that are no features whatever they hold, since their types are those of files or nested."""

from __future__ import annotations

from collections.abc import Iterator

from shoestring.data.inspect.page_records import ColumnEntry
from shoestring.data.sources.images.image_bytes import ImageBytes
from shoestring.data.sources.open_table import left_out_of
from shoestring.data.sources.table import SourceTable


def left_out_entries(name: str, table: SourceTable) -> Iterator[ColumnEntry]:
    """Yield the columns of a table that are not read, and that of its images."""
    for column, why in left_out_of({name: table}).items():
        is_images = isinstance(table, ImageBytes) and column == table.column
        yield ColumnEntry(
            name=column,
            table=name,
            type=why.type,
            use="not used",
            reason="the images" if is_images else why.reason,
            values=0,
            missing=0,
            remarks=() if is_images else (f"left out, since it is {why.sentence}",),
        )
